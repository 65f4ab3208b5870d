"""`splitsecond watch`, from the command line to the files. Sleeping moves the wall clock instead of
waiting."""

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import Split
from tests.cli.peer import Peer, ReceivedRequest, answer, stream
from tests.processes import Process
from tests.waiting import WITHIN_S

from splitsecond.benchmark.rows import condition
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.runs import watching
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.log.store.folder import read_observations, read_run

HOUR_NS = 3600 * NS_PER_S
FEW = ("-n", 4, "--warmup", 1, "--input-tokens", 64, "--output-tokens", 8, "--no-html")


@pytest.fixture(autouse=True)
def a_machine_that_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes rows INVALID, which are not judged; the one that runs these tests is
    busy."""
    monkeypatch.setattr(condition, "invalid_reasons", lambda _: [])


@pytest.fixture(autouse=True)
def hours(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sleeping ends at once, and the wall clock shows when it was to end. How many hours each sleep
    was."""
    slept: list[int] = []
    ahead_ns = 0

    async def sleep_until(due_ns: int) -> None:
        nonlocal ahead_ns
        ahead_ns = max(0, due_ns - clock.now_ns())
        slept.append(round(ahead_ns / HOUR_NS))

    monkeypatch.setattr(watching, "sleep_until", sleep_until)
    with clock.using(time.monotonic_ns, lambda: time.time_ns() + ahead_ns):
        yield slept


def rounds_of(folder: Path) -> list[Run]:
    return [read_run(path.parent, Run) for path in sorted(folder.glob("*/run.json"))]


def past(folder: Path, run: Run, *, count: int, ttft: float) -> None:
    """Write rounds like `run`, an hour apart, with `ttft` times its TTFT, give or take 3%.

    Their TPS is half of its own, so that a busy machine never looks like a drift of TPS for the
    worse.
    """
    for number in range(count):
        made = msgspec.convert(msgspec.to_builtins(run), Run)
        day, hour = divmod(number, 24)
        made.began = f"2026-01-{day + 1:02d}T{hour:02d}:00:00.000+00:00"
        for row in made.conditions:
            row.ttft_ms.p50 = (
                (row.ttft_ms.p50 or 0.0) * ttft * (1, 1.03, 0.97, 1.01, 0.99)[number % 5]
            )
            row.tps.p50 = (row.tps.p50 or 0.0) / 2
        (folder / made.began[:13]).mkdir(parents=True)
        (folder / made.began[:13] / "run.json").write_bytes(msgspec.json.encode(made))


def test_each_round_is_a_run_in_its_own_folder(
    split: Split, endpoint: list[str], tmp_path: Path, hours: list[int]
) -> None:
    ended = split("watch", *endpoint, "--every", "3h", "--times", 2, *FEW, "--json", "found.json")
    assert (ended.code, ended.err) == (0, "")
    assert hours == [0, 3]
    first, second = ended.out.splitlines()
    assert "quick c=1  TTFT " in first
    assert first.endswith("errors 0  learning what is usual: round 1 of 8.")
    assert second.endswith("round 2 of 8.")
    runs = rounds_of(tmp_path / "watch")
    assert [run.finished for run in runs] == [True, True]
    assert len({run.id for run in runs}) == 2, (
        "a round that has the prompts of another meets a warm cache"
    )
    plan = (tmp_path / "watch/plan.toml").read_text()
    assert 'every = "3h"' in plan
    folders = sorted(path.parent.name for path in (tmp_path / "watch").glob("*/run.json"))
    # a folder is made before its run begins, maybe a second earlier
    for run, name in zip(runs, folders, strict=True):
        made = datetime.strptime(name, "%Y-%m-%dT%H%M%S%z")
        assert timedelta(0) <= datetime.fromisoformat(run.began) - made < timedelta(minutes=1)
    measured = [
        [o.role for o in read_observations(tmp_path / "watch" / folder)].count("measured")
        for folder in folders
    ]
    assert measured[0] == measured[1] > 0  # how many calibrate a prompt's length is left to each
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["schema"], found["rounds"], found["every_s"]) == ("splitsecond.watch/1", 2, 10800)
    assert [line["figure"] for line in found["lines"]] == ["ttft_ms", "tps", "errors"]
    assert [point["at"] for point in found["lines"][0]["points"]] == [run.began for run in runs]
    compared = split("compare", *(tmp_path / "watch" / name for name in folders))
    assert compared.code == 0
    assert split("report", tmp_path / "watch" / folders[0], "--no-html").code == 0


def test_watch_continues_earlier_rounds_and_reports_a_drift(
    split: Split, endpoint: list[str], tmp_path: Path
) -> None:
    assert split("watch", *endpoint, "--times", 1, *FEW, "--out", "one").code == 0
    (run,) = rounds_of(tmp_path / "one")
    past(tmp_path / "watch", run, count=12, ttft=0.2)
    gates = ["--fail-if", "ttft_ms.p50 > +50%", "--fail-if", "errors > 0"]
    ended = split("watch", *endpoint, "--times", 3, *FEW, "-n", 60, *gates, "--json", "-")
    assert ended.code == 1
    assert "Continuing after 12 rounds in watch." in ended.err
    assert ended.words.count("FAILED: quick at concurrency 1: ttft_ms.p50 went from ") == 3
    assert "TTFT p50 is unusual" in ended.words
    assert "TTFT p50 has drifted since 20" in ended.words
    found = ended.json
    assert found["rounds"] == 15
    assert found["lines"][0]["drifts"][0]["worse"] is True
    assert [point["state"] for point in found["lines"][0]["points"]][11:] == [
        "usual",
        *["drifted"] * 3,
    ]
    faster = split(
        "watch", *endpoint, "--times", 1, *FEW, "--out", "one", "--fail-if", "ttft_ms.p95 > +20%"
    )
    assert faster.code == 0
    assert (
        "'ttft_ms.p95 > +20%' cannot be checked yet for quick at concurrency 1: too few rounds."
        in faster.words
    )


def test_a_drift_that_stays_fails_until_it_is_accepted(
    split: Split, endpoint: list[str], tmp_path: Path
) -> None:
    assert split("watch", *endpoint, "--times", 1, *FEW, "--out", "one").code == 0
    (run,) = rounds_of(tmp_path / "one")
    past(tmp_path / "watch", run, count=60, ttft=1)
    for number, path in enumerate(sorted((tmp_path / "watch").glob("*/run.json"))):
        made = read_run(path, Run)
        scatter = 1 + 0.1 * (number * 7 % 11 - 5)  # a busy machine is within the usual
        for row in made.conditions:
            row.ttft_ms.p50 = (row.ttft_ms.p50 or 0.0) * (0.1 if number < 20 else 1) * scatter
        path.write_bytes(msgspec.json.encode(made))
    again = split("watch", *endpoint, "--times", 1, *FEW, "-n", 60)
    assert again.code == 1
    assert "and stays there. `--accept` acknowledges it." in again.words
    accepted = split("watch", "--accept", "--json", "found.json")
    assert accepted.code == 0
    assert (
        "accepted: quick at concurrency 1: TTFT p50 has drifted since 2026-01-01 20:00, from "
        in accepted.words
    )
    assert "and stayed there" in json.loads((tmp_path / "found.json").read_text())["statements"][0]
    assert (tmp_path / "watch" / "report.html").exists()
    assert split("watch", *endpoint, "--times", 1, *FEW, "-n", 60).code == 0
    assert "No drift is open." in split("watch", "--accept", "--no-html").words
    assert split("watch", "--accept", "--out", "elsewhere").code == 2


def test_drift_for_the_better_is_not_a_failure(
    split: Split, endpoint: list[str], tmp_path: Path
) -> None:
    assert split("watch", *endpoint, "--times", 1, *FEW, "--out", "one").code == 0
    past(tmp_path / "watch", rounds_of(tmp_path / "one")[0], count=12, ttft=5)
    ended = split("watch", *endpoint, "--times", 3, *FEW)
    assert ended.code == 0
    assert "TTFT p50 has drifted since" in ended.words


@pytest.mark.system
def test_failed_round_is_kept_and_the_next_one_runs(
    split: Split, tmp_path: Path, hours: list[int]
) -> None:
    nobody = ["--base-url", "http://127.0.0.1:1/v1", "--model", "m", "--name", "gone"]
    ended = split(
        "watch", *nobody, "--times", 2, *FEW, "--json", "found.json", "--fail-if", "errors > 5"
    )
    assert ended.code == 1
    assert hours == [0, 1]
    assert ended.out.count("the round failed: gone: cannot connect to http://127.0.0.1:1") == 2
    for run in rounds_of(tmp_path / "watch"):
        assert run.finished is False
        assert run.conditions[0].requests == 0
        assert "Connection refused" in run.invalid[0]
    found = json.loads((tmp_path / "found.json").read_text())
    assert (len(found["failed"]), found["lines"]) == (2, [])
    assert split("report", min((tmp_path / "watch").iterdir()), "--no-html").code == 0


@pytest.mark.system
def test_failing_target_does_not_stop_the_others(
    split: Split, quick_profile: Path, tmp_path: Path
) -> None:
    def refuse(_: ReceivedRequest) -> bytes:
        return answer(401, '{"error": {"message": "no such key"}}')

    with Peer(refuse) as peer:
        asked = ["--base-url", peer.base_url, "--model", "m", "--name", "refused"]
        ended = split("watch", f"sim/{quick_profile}", *asked, "--times", 1, *FEW)
    assert ended.code == 0
    assert len(peer.asked) == 1
    (run,) = rounds_of(tmp_path / "watch")
    measured, refused = run.conditions
    assert (measured.requests, measured.errors, run.finished) == (4, 0, True)
    assert (refused.target, refused.requests) == ("refused", 0)
    assert any("no such key. Check the API key" in note for note in refused.notes)
    assert "not measured. HTTP 401: no such key" in ended.words


def test_all_rounds_share_one_budget(split: Split, endpoint: list[str], tmp_path: Path) -> None:
    money = ("--price", "1000,1000", "--max-cost", 2)
    first = split("watch", *endpoint, "--every", "30m", "--times", 9, *FEW, *money)
    assert first.code == 1
    announced = (
        "for 8 requests (4 of them for warm-up and cool-down) plus a few calibration "
        "requests: about $"
    )
    assert announced in first.words
    assert "The watch stops when all rounds have cost $2.00." in first.words
    assert "the run was stopped: it has cost $1." in first.err
    runs = rounds_of(tmp_path / "watch")
    assert [run.finished for run in runs[:-1]] == [True] * (len(runs) - 1)
    assert 1 < sum(run.cost_usd or 0 for run in runs) <= 2
    again = split("watch", *endpoint, "--times", 1, *FEW, *money)
    assert again.code == 1
    assert "the first requests alone may cost" in again.err
    assert len(rounds_of(tmp_path / "watch")) == len(runs)


def test_cost_limit_includes_forgotten_rounds(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "REMEMBERED", 1)
    run = Run(
        id="r", began="2026-01-01T00:00:00.000+00:00", began_ns=1, finished=True, cost_usd=1.5
    )
    past(tmp_path / "watch", run, count=3, ttft=1)
    ended = split(
        "watch",
        "--base-url",
        "http://127.0.0.1:1/v1",
        "--model",
        "m",
        "--price",
        "1,1",
        "--max-cost",
        4,
    )
    assert (ended.code, ended.out) == (1, "")
    assert "the rounds in watch have cost $4.50, the limit is $4.00" in ended.complaint


def test_folder_that_is_not_a_round_is_ignored(
    split: Split, endpoint: list[str], tmp_path: Path
) -> None:
    (tmp_path / "watch" / "2026-01-01T000000Z").mkdir(parents=True)
    (tmp_path / "watch" / "2026-01-01T000000Z" / "run.json").write_text("{")
    ended = split("watch", *endpoint, "--times", 1, *FEW)
    assert ended.code == 0
    assert "ignored: watch/2026-01-01T000000Z/run.json is not a run of this version" in ended.words


def test_signal_while_waiting_keeps_the_findings(
    split: Split, endpoint: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([False, True])

    async def sleep_until(_: int) -> None:
        if next(waits):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()

    monkeypatch.setattr(watching, "sleep_until", sleep_until)
    ended = split("watch", *endpoint, *FEW, "--json", "-")
    assert (ended.code, ended.json["rounds"]) == (143, 1)
    assert ended.err.endswith("splitsecond: ended by SIGTERM\n")


def test_a_signal_in_a_finalizer_between_rounds_ends_the_watch(
    split: Split, endpoint: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops what a finalizer raises: a handler that raises would be heard by nobody."""

    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    judge = watching.Watch._judged

    def judged(watch: watching.Watch, run: Run, folder: Path) -> watching.MeasuredRound:
        ended = judge(watch, run, folder)
        Finalized()
        return ended

    monkeypatch.setattr(watching.Watch, "_judged", judged)
    ended = split("watch", *endpoint, "--times", 3, *FEW, "--json", "-")
    assert (ended.code, ended.json["rounds"]) == (143, 1)


@pytest.mark.parametrize(
    ("how", "words"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")],
    ids=["SIGINT", "SIGTERM"],
)
@pytest.mark.system
def test_signal_in_a_round_keeps_its_observations(
    tmp_path: Path, how: signal.Signals, words: str
) -> None:
    enough = threading.Event()

    def say(asked: ReceivedRequest) -> bytes:
        if asked.number < 12:
            return stream(asked)
        enough.set()
        return b""

    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "watch",
        "--model",
        "m",
        "-n",
        "50",
        "--no-html",
    ]
    with Peer(say) as peer:
        options = ["--base-url", peer.base_url, "--output-tokens", "8", "--json", "found.json"]
        with Process(
            [*command, *options], cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True
        ) as process:
            assert enough.wait(WITHIN_S)
            process.send_signal(how)
            out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, err) == (128 + how, f"splitsecond: {words}\n")
    assert "interrupted, so it is not judged." in out
    (run,) = rounds_of(tmp_path / "watch")
    assert run.finished is False
    assert run.conditions[0].requests > 0
    assert json.loads((tmp_path / "found.json").read_text())["lines"] == []


def test_unwritable_folder_ends_the_watch(
    split: Split, endpoint: list[str], tmp_path: Path
) -> None:
    (tmp_path / "watch").write_text("a file")
    ended = split("watch", *endpoint, *FEW)
    assert ended.code == 2
    assert "cannot write the run to watch/" in ended.complaint


def test_watch_writes_its_page(split: Split, endpoint: list[str], tmp_path: Path) -> None:
    ended = split("watch", *endpoint, "--times", 1, *FEW[:-1])
    assert ended.code == 0
    assert ended.out.endswith("watch/report.html\n")
    assert "<h1>quick over time" in (tmp_path / "watch" / "report.html").read_text()


WRONG: list[tuple[tuple[Any, ...], tuple[str, ...]]] = [
    (
        ("--every", "5x"),
        ('--every is "5x", expected a duration such as "2s" or "300ms", at most 30 days',),
    ),
    (("--every", "31d"), ('--every is "31d"', "at most 30 days")),
    (("--every", "500ms"), ("--every: got '500ms', expected a second or more",)),
    (("--times", "0"), ("--times: got 0, expected 1 or more",)),
    (("-n", "0"), ("--requests: got 0",)),
    (("-c", "x"), ("-c: got 'x'",)),
    (("--max-cost", "-1"), ("--max-cost: got -1.0, expected US dollars, 0 or more",)),
    (("--max-cost", "1"), ("a cost limit needs the price of 127.0.0.1:1/m, which is unknown",)),
    (("--fail-if", "speed"), ("cannot read the gate 'speed'",)),
    (("--json", "nowhere/x.json"), ("there is no folder nowhere",)),
    (("--policy", "race("), ("was never closed",)),
]


@pytest.mark.parametrize(
    ("options", "words"),
    WRONG,
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_is_reported_and_nothing_is_written(
    split: Split, tmp_path: Path, options: tuple[Any, ...], words: tuple[str, ...]
) -> None:
    ended = split("watch", "--base-url", "http://127.0.0.1:1/v1", "--model", "m", *options)
    assert (ended.code, ended.out) == (2, "")
    assert all(each in ended.complaint for each in words)
    assert list(tmp_path.iterdir()) == []


def test_no_target_is_wrong_use(split: Split) -> None:
    assert "no target given" in split("watch").complaint
