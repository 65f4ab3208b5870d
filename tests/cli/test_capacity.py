"""`splitsecond capacity`, from the command line to the files, against an engine whose slots are its
capacity."""

import json
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from tests.cases import each_case
from tests.cli.conftest import Split, run_splitsecond
from tests.cli.peer import Peer, ReceivedRequest, answer, stream
from tests.processes import Process
from tests.waiting import WITHIN_S

from splitsecond.simulator.process import RunningProvider, run_simulator

SLOTS = 4
ENGINE = f"""
title = "Four slots"
model = "m"
source = "a test"
measured = "2026-11"
output_tokens = 10

[engine]
slots = {SLOTS}
prefill_tokens_per_s = 1000000
prefill_chunk_tokens = 4096
step_base_ms = 20
step_per_sequence_ms = 0.001
"""
"""Answers of 200 ms, whose first token comes within 40; who finds no slot waits for most of an
answer."""
LIMIT_MS = 125
FEW = (
    "--input-tokens",
    64,
    "--output-tokens",
    10,
    "-n",
    12,
    "--share",
    "90%",
    "--slo",
    f"ttft={LIMIT_MS}ms",
)


@pytest.fixture(scope="module")
def engine(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProvider]:
    path = tmp_path_factory.mktemp("profile") / "slots.toml"
    path.write_text(ENGINE)
    with run_simulator(str(path)) as (found,):
        yield found


def capacity(base_url: str, *more: object) -> Any:
    return run_splitsecond(
        "capacity", "--base-url", base_url, "--model", "m", "--name", "mine", *FEW, *more
    )


@pytest.fixture(scope="module")
def kept(engine: RunningProvider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search from 4 to 8, with what was printed in table.txt beside it."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    ended = capacity(
        engine.base_url, "--from", 4, "--to", 8, "--price-per-hour", 2, "--out", folder
    )
    folder.with_name("table.txt").write_text(ended.words)
    assert "mine@c4: " in ended.err
    assert ended.code == (0 if read(folder)["capacity"]["holds"] else 1)
    return folder


def read(folder: Path) -> Any:
    return json.loads((folder / "run.json").read_text())


def test_capacity_equals_the_slots_of_the_server(kept: Path) -> None:
    """Slots end one after another, so one waiting request waits 50 ms and often meets the limit;
    two waiting ones miss it. A very busy machine can only make it less, or undecided."""
    run = read(kept)
    found = run["capacity"]
    assert (found["target"], found["share"], found["limits"]) == ("mine", 0.9, {"ttft": LIMIT_MS})
    assert [step["load"] for step in found["steps"]][:2] == [4, 8] or found["steps"][0][
        "verdict"
    ] != "promising"
    disturbed = any(step["verdict"] == "invalid" for step in found["steps"])
    assert found["holds"] in (SLOTS, SLOTS + 1) or SLOTS in found["undecided"] or disturbed
    assert found["ceiling"] > SLOTS or disturbed
    for step in found["steps"]:
        if step["load"] > SLOTS + 1:
            assert step["missed"]["ttft"] >= step["sent"] / 8
            assert step["verdict"] != "holds"


def test_each_step_is_a_row_with_all_its_requests(kept: Path) -> None:
    run = read(kept)
    steps = run["capacity"]["steps"]
    assert [step["condition"] for step in steps] == [row["condition"] for row in run["conditions"]]
    assert [step["sent"] for step in steps] == [row["requests"] for row in run["conditions"]]
    assert all(step["sent"] % 12 == 0 for step in steps)
    assert [asked["condition"] for asked in run["asked"]["conditions"]] == [
        step["condition"] for step in steps
    ]
    assert run["asked"]["share"] == 0.9
    assert run["finished"]


def test_the_terminal_and_the_page_show_the_search(kept: Path) -> None:
    run, words, page = (
        read(kept),
        kept.with_name("table.txt").read_text(),
        (kept / "report.html").read_text(),
    )
    assert "mine: steps of the search, times in ms" in words
    assert run["conclusion"][0] in " ".join(words.split())
    assert 'id="plot-capacity-ttft"' in page
    assert 'id="plot-capacity-throughput"' in page
    assert "<h1>Capacity of mine" in page


def test_report_finds_the_same_again_and_judges_by_other_limits(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept, tmp_path / "run")
    again = run_splitsecond("report", tmp_path / "run", "--no-html", "--json", "-")
    assert again.json["capacity"] == read(kept)["capacity"]
    loose = run_splitsecond("report", tmp_path / "run", "--slo", "ttft=3600s", "--json", "-")
    found = loose.json["capacity"]
    assert found["limits"] == {"ttft": 3_600_000}
    assert all(step["met"] == step["sent"] for step in found["steps"])


@pytest.mark.system
def test_a_server_that_breaks_ends_the_search_at_once(tmp_path: Path) -> None:
    asked_before = 4  # the length of the prompts is measured with a few

    def say(asked: ReceivedRequest) -> bytes:
        return (
            stream(asked)
            if asked.number < asked_before
            else answer(500, '{"error": {"message": "out of memory"}}')
        )

    with Peer(say) as peer:
        ended = capacity(peer.base_url, "--no-html", "--out", tmp_path / "run")
        assert len(peer.asked) < asked_before + 12
    assert ended.code == 1
    assert "mine does not even handle concurrency 1" in ended.words
    assert "c=1, the server broke: " in ended.words
    assert [step["verdict"] for step in read(tmp_path / "run")["capacity"]["steps"]] == ["breaks"]


@pytest.mark.system
def test_ctrl_c_keeps_the_steps_with_a_verdict(tmp_path: Path) -> None:
    """This provider sends each answer in one piece, which says nothing of a stream: the first load
    is tried again."""
    answered, enough = 24, threading.Event()

    def say(asked: ReceivedRequest) -> bytes:
        if asked.number < answered:
            return stream(asked)
        enough.set()
        return b""

    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "capacity",
        "--model",
        "m",
        "--name",
        "mine",
        "--no-html",
    ]
    with Peer(say) as peer:
        options = [*map(str, FEW), "--base-url", peer.base_url, "--out", "run"]
        with Process(
            [*command, *options], cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True
        ) as process:
            assert enough.wait(WITHIN_S)
            so_far = read(tmp_path / "run")["asked"]["conditions"]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, err) == (
        130,
        "mine@c1: INVALID, 12 of 12 requests within the limits\n",
    )
    run, words = read(tmp_path / "run"), " ".join(out.split())
    assert (run["finished"], run["asked"]["conditions"]) == (False, so_far)
    assert [(step["condition"], step["sent"]) for step in run["capacity"]["steps"]] == [
        ("mine@c1", 12)
    ]
    assert "The capacity of mine is unknown: the figures at concurrency 1 are INVALID." in words
    assert "This run was stopped before its end" in words
    assert (
        run_splitsecond("report", tmp_path / "run", "--no-html", "--json", "-").json["capacity"]
        == run["capacity"]
    )


def test_an_open_loop_is_searched_by_rate(engine: RunningProvider, tmp_path: Path) -> None:
    load = ("--by-rate", "--from", 40, "--to", 40)  # twice what four slots of 0.2 s each can give
    ended = capacity(engine.base_url, *load, "--no-html", "--out", tmp_path / "run")
    run = read(tmp_path / "run")
    assert run["capacity"]["open_loop"]
    assert {row["rate"] for row in run["conditions"]} == {40}
    assert run["capacity"]["holds"] is None
    assert "40 requests/s" in ended.words
    assert ended.code == 1


def test_target_paid_by_the_token_needs_a_cost_limit(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "k")
    ended = split("capacity", "groq/openai/gpt-oss-120b")
    assert ended.code == 2
    assert (
        "--max-cost: got None, expected US dollars, because groq/openai/gpt-oss-120b is paid by "
        "the token" in ended.words
    )


SOMEWHERE = ("capacity", "--base-url", "http://127.0.0.1:1/v1", "--model", "m")


@each_case(
    ("arguments", "words"),
    [
        (("capacity",), "no target given"),
        (
            (*SOMEWHERE, "sim/groq"),
            "--target: got 'http://127.0.0.1:1/v1', expected either it or sim/groq",
        ),
        ((*SOMEWHERE, "--from", "0"), "--from: got 0.0, expected a whole number from 1"),
        ((*SOMEWHERE, "--from", "1.5"), "--from: got 1.5, expected a whole number from 1"),
        (
            (*SOMEWHERE, "--by-rate", "--from", "-1"),
            "--from: got -1.0, expected requests a second, above 0",
        ),
        (
            (*SOMEWHERE, "--from", "9", "--to", "8"),
            "--to: got 8.0, expected 9 or more, the lowest load",
        ),
        ((*SOMEWHERE, "--to", "inf"), "--to: got inf, expected a whole number from 1"),
        ((*SOMEWHERE, "--share", "all"), "--share: got 'all', expected a share such as 95%"),
        ((*SOMEWHERE, "--share", "100%"), "--share: got 1.0, expected a share such as 95%"),
        ((*SOMEWHERE, "--share", "nan"), "--share: got 'nan', expected a share such as 95%"),
        ((*SOMEWHERE, "--slo", "soon"), "cannot read the limits 'soon'"),
        ((*SOMEWHERE, "-n", "0"), "--requests: got 0, expected 1 or more"),
        ((*SOMEWHERE, "-n", "10"), "12 times 10 requests cannot show that 95"),
        ((*SOMEWHERE, "--processes", "0"), "--processes: got 0, expected 1 or more"),
        ((*SOMEWHERE, "--max-cost", "-1"), "--max-cost: got -1.0, expected US dollars"),
        (
            (*SOMEWHERE, "--max-cost", "1"),
            "a cost limit needs the price of 127.0.0.1:1/m, which is unknown",
        ),
        ((*SOMEWHERE, "--json", "nowhere/x"), "there is no folder nowhere"),
    ],
    ids=lambda each: " ".join(map(str, each)) if isinstance(each, tuple) else "",
)
def test_wrong_use_is_reported_in_one_sentence(
    split: Split, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    ended = split(*arguments)
    assert ended.code == 2
    assert words in ended.complaint
    assert not any(tmp_path.iterdir())
