"""Findings computed again from a run's folder, and folders that are damaged or not a run."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Split

pytestmark = pytest.mark.system


@pytest.fixture
def run(kept_run: Path, tmp_path: Path) -> Path:
    """A copy of the run, in the current folder."""
    return Path(shutil.copytree(kept_run, tmp_path / "run"))


def test_the_same_findings_come_out_of_the_observations(split: Split, run: Path) -> None:
    before = json.loads((run / "run.json").read_text())
    emptied = {**before, "conditions": [], "statements": []}
    (run / "run.json").write_text(json.dumps(emptied))
    ended = split("report", run, "--json", "-")
    assert ended.code == 0
    assert ended.json == before == json.loads((run / "run.json").read_text())
    assert "Concurrency 4" in ended.err


def test_report_judges_by_other_limits(split: Split, run: Path) -> None:
    ended = split("report", "run/run.json", "--slo", "ttft=1ms", "--no-html", "--json", "-")
    assert [row["goodput"]["met"] for row in ended.json["conditions"]] == [0, 0]


def test_several_runs_are_a_list(split: Split, run: Path) -> None:
    shutil.copytree(run, "again")
    ended = split("report", run, "again", "--no-html", "--json", "-")
    assert [found["id"] for found in ended.json] == [ended.json[0]["id"]] * 2


def rewrite(file: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        content = json.loads((run / file).read_text())
        (run / file).write_text(json.dumps(change(content)))

    return damage


DAMAGES = [
    (lambda run: (run / "run.json").unlink(), "no run at run: the folder has no run.json"),
    (lambda run: (run / "run.json").write_text("{"), "run/run.json is not a run of this version"),
    (
        lambda run: (run / "run.json").write_bytes(b'{"id": "\xff"}'),
        "run/run.json is not a run of this version",
    ),
    (lambda run: (run / "run.json").write_text("[]"), "Expected `object`, got `array`"),
    (lambda run: (run / "run.json").write_text('{"name": "a package"}'), "missing required field"),
    (rewrite("run.json", lambda run: {**run, "schema": "other/1"}), "got the schema 'other/1'"),
    (rewrite("run.json", lambda run: {**run, "asked": {}}), "what was asked cannot be read"),
    (
        rewrite("run.json", lambda run: {**run, "conditions": 3}),
        "Expected `array`, got `int` - at `$.conditions`",
    ),
    (
        lambda run: (run / "observations.jsonl").unlink(),
        "cannot read run/observations.jsonl: No such file",
    ),
    (lambda run: (run / "readings.jsonl").unlink(), "cannot read run/readings.jsonl: No such file"),
    (lambda run: (run / "observations.jsonl").write_text("\n\n"), "run/observations.jsonl:1: "),
    (
        lambda run: (run / "observations.jsonl").write_bytes(b'{"id": "\xff"}\n'),
        "run/observations.jsonl:1: ",
    ),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_damaged_or_foreign_folder(
    split: Split, run: Path, kept_run: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(run)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for arguments in (("report", "run"), ("compare", kept_run, "run")):
        ended = split(*arguments)
        assert (ended.code, ended.out) == (2, "")
        assert words in ended.complaint
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_last_line_that_was_cut_is_passed_over(split: Split, run: Path) -> None:
    whole = (run / "observations.jsonl").read_bytes()
    (run / "observations.jsonl").write_bytes(whole[:-50])
    ended = split("report", "run", "--no-html", "--json", "-")
    assert ended.code == 0
    assert sum(row["requests"] for row in ended.json["conditions"]) == 15


def test_two_runs_compared(split: Split, run: Path, kept_run: Path) -> None:
    ended = split(
        "compare",
        kept_run,
        run,
        "--json",
        "-",
        "--fail-if",
        "ttft_ms.p50 > +10%",
        "--fail-if",
        "errors > 0",
    )
    assert ended.code == 0
    assert [row["concurrency"] for row in ended.json["conditions"]] == [1, 4]
    assert not any(figure["real"] for row in ended.json["conditions"] for figure in row["figures"])
    assert "Passed: none of ttft_ms.p50 > +10%, errors > 0." in ended.err


def test_breached_gate_sets_the_exit_code(split: Split, run: Path, kept_run: Path) -> None:
    ended = split("compare", kept_run, run, "--fail-if", "errors < 1", "--fail-if", "errors > 0")
    assert ended.code == 1
    assert ended.words.count("FAILED: quick at concurrency") == 2
    assert "Passed" not in ended.words


def test_gate_that_cannot_be_checked_has_its_own_exit_code(
    split: Split, run: Path, kept_run: Path
) -> None:
    ended = split(
        "compare", kept_run, run, "--fail-if", "ttft_ms.p95 > 1", "--fail-if", "errors > 0"
    )
    assert ended.code == 3
    assert ended.words.count("NOT CHECKED: quick at concurrency") == 2
    assert "Use -n 150." in ended.words


def test_rows_as_csv_and_tables_as_markdown(split: Split, kept_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(kept_run, tmp_path / "run")
    ended = split("report", run, "--csv", "-", "--markdown", tmp_path / "run.md")
    assert ended.code == 0
    found = list(csv.DictReader(io.StringIO(ended.out)))
    assert [(row["target"], row["load"], row["requests"]) for row in found] == [
        ("quick", "c=1", "8"),
        ("quick", "c=4", "8"),
    ]
    assert float(found[0]["ttft_ms.p50"]) > 0
    assert "Concurrency 4" in ended.err
    assert "**Concurrency 4**" in (tmp_path / "run.md").read_text()
    page = tmp_path / "changes.html"
    compared = split("compare", run, run, "--markdown", "-", "--html", page)
    assert "| quick |" in compared.out
    assert " only: no change beyond chance." in page.read_text()
    assert "how it differs" in compared.err
    assert f"Before: {run}. After: {run}." in " ".join(compared.err.split())
    assert f"Before: {run}. After: {run}." in page.read_text()


def test_only_one_file_goes_to_standard_output(split: Split, kept_run: Path) -> None:
    ended = split("compare", kept_run, kept_run, "--csv", "-", "--json", "-")
    assert ended.code == 2
    assert "--json and --csv cannot both go to standard output. Name a file." in ended.complaint
