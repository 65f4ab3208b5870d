import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.analysis.made import row
from tests.pages import ROOT, blocks

from splitsecond.benchmark.findings.front import front
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.runs.concluding import recompute
from splitsecond.benchmark.runs.measuring import NoProgress
from splitsecond.benchmark.runs.server_sweep import FAILURE, Sweep, SweepPlan, read_plan
from splitsecond.core.errors import CallerFault
from splitsecond.log.statistics.summary import Summary
from splitsecond.log.store.folder import RunFolder

SIMULATE = f"{sys.executable} -m splitsecond simulate {{profile}} --port {{port}}"


def measured(
    target: str, concurrency: int, ttft_p95_ms: float, tokens_per_s: float
) -> ConditionFindings:
    return row(
        condition=f"{target} c={concurrency}",
        target=target,
        concurrency=concurrency,
        ttft_ms=Summary(n=20, p95=ttft_p95_ms),
        output_tokens_per_s=tokens_per_s,
    )


def test_front_has_the_rows_that_no_other_beats() -> None:
    rows = [
        measured("a", 1, 50, 100),
        measured("b", 1, 60, 90),
        measured("a", 8, 200, 600),
        measured("b", 8, 200, 700),
    ]
    assert [each.condition for each in front(rows)] == ["a c=1", "b c=8"]


def test_setups_are_all_combinations() -> None:
    plan = SweepPlan(command="x {port} {a} {b}", settings={"a": [1, 2], "b": ["--fast", ""]})
    assert [(each.name, each.command) for each in plan.setups()] == [
        ("a=1 b=--fast", "x {port} 1 --fast"),
        ("a=1 b=none", "x {port} 1 "),
        ("a=2 b=--fast", "x {port} 2 --fast"),
        ("a=2 b=none", "x {port} 2 "),
    ]


def test_the_plan_in_the_documents_has_six_setups(tmp_path: Path) -> None:
    (block,) = [each for each in blocks(ROOT / "docs/sweeps.md") if each.kind == "toml"]
    (tmp_path / "engines.toml").write_text(block.text, encoding="utf-8")
    assert len(read_plan(tmp_path / "engines.toml").setups()) == 6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "either a command"),
        ('command = "x {port}"\nservers.a = "http://h"', "either a command"),
        ('command = "x"', "{port}"),
        ('command = "x {port} {b}"\nsettings.a = [1]', "{port}, {a}"),
        ('command = "x {port"', "cannot be read"),
        ('command = "x {port} {a}"\nsettings.a = ["y z", "y/z"]', "the same name"),
        ("trials = 0\ncommand = 'x {port}'", "trials"),
        ("nonsense = 1", "nonsense"),
        ("= 1", "toml"),
    ],
)
def test_bad_plan_says_what_is_expected(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CallerFault, match=words.replace("{", r"\{")):
        read_plan(path)


@pytest.mark.system
def test_sweep_continues_and_reports_settings_that_fail(tmp_path: Path) -> None:
    plan = SweepPlan(
        command=SIMULATE,
        settings={"profile": ["runpod-h100-mistral-7b", "no-such-profile"]},
        concurrency=(1, 2),
        requests=3,
        trials=2,
        output_tokens=8,
    )
    notes: list[str] = []
    asyncio.run(Sweep(plan, tmp_path, notes.append, NoProgress).measure())
    shutil.rmtree(tmp_path / "profile=runpod-h100-mistral-7b" / "trial-2")
    before = len(notes)
    sweep = Sweep(plan, tmp_path, notes.append, NoProgress)
    asyncio.run(sweep.measure())
    assert notes[before:] == ["trial 2 of 2: profile=runpod-h100-mistral-7b"]
    run, observations = sweep.concluded()
    assert run.finished
    assert [(each.concurrency, each.requests, each.errors) for each in run.conditions] == [
        (1, 6, 0),
        (2, 6, 0),
    ]
    assert {o.round for o in observations} == {1, 2}
    assert any(
        "no-such-profile did not run" in each and "unknown profile" in each
        for each in run.statements
    )
    with RunFolder.open(tmp_path) as folder:
        folder.write_run(run)
    again, _ = recompute(tmp_path)
    assert again.statements == run.statements
    assert [row.notes for row in again.conditions] == [row.notes for row in run.conditions]


@pytest.mark.system
def test_server_that_dies_under_load_is_a_result(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "import http.server, os, sys\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        '        body = b\'{"data": [{"id": "m"}]}\'\n'
        "        self.send_response(200)\n"
        "        self.send_header('content-length', str(len(body)))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(body)\n"
        "    def do_POST(self):\n"
        "        print('torch.OutOfMemoryError: CUDA out of memory.', flush=True)\n"
        "        os._exit(1)\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n",
        encoding="utf-8",
    )
    plan = SweepPlan(
        command=f"{sys.executable} {server} {{port}}", concurrency=(1,), requests=2, trials=1
    )
    sweep = Sweep(plan, tmp_path / "out", lambda text: None, NoProgress)
    asyncio.run(sweep.measure())
    failure = (tmp_path / "out" / "server" / "trial-1" / FAILURE).read_text("utf-8")
    assert "CUDA out of memory" in failure
    with pytest.raises(CallerFault, match="no server was measured"):
        sweep.concluded()
    assert not [
        name for name in os.listdir(tmp_path / "out" / "server" / "trial-1") if name == "run.json"
    ]
