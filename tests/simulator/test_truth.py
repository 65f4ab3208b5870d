"""The truth: bounded in memory, complete in the log, and without effect on the simulator when a
disk is full."""

from array import array
from pathlib import Path

import msgspec
import pytest

from splitsecond.core.errors import CallerFault
from splitsecond.simulator.truth import TruthLog, TruthRecord


def record(name: str, *, profile: str = "p", tokens: int = 4) -> TruthRecord:
    return TruthRecord(
        request_id=name,
        profile=profile,
        in_flight=1,
        arrived_ns=1,
        began_ns=1,
        planned_ns=array("q", range(tokens)),
        actual_ns=array("q", range(tokens)),
        prompt_tokens=3,
        cached_tokens=0,
        cache_write_tokens=0,
        output_tokens=tokens,
        fault="",
        ended_ns=2,
        closed_by_client=False,
    )


def ids(truth: TruthLog) -> list[str]:
    return [one.request_id for one in truth.records()]


def test_oldest_records_are_dropped_beyond_max_stamps() -> None:
    truth = TruthLog(max_stamps=30)
    for name in "abcde":
        truth.add(record(name))
    assert ids(truth) == ["c", "d", "e"]
    truth.add(record("empty", tokens=0))
    assert ids(truth) == ["c", "d", "e", "empty"]


def test_profiles_are_read_and_cleared_apart() -> None:
    truth = TruthLog(max_stamps=30)
    truth.add(record("a"))
    truth.add(record("b", profile="q"))
    (found,) = msgspec.json.decode(truth.as_json("q"))
    assert (found["request_id"], found["planned_ns"]) == ("b", [0, 1, 2, 3])
    truth.clear("p")
    assert ids(truth) == ["b"]
    truth.add(record("c"))
    truth.add(record("d"))
    assert ids(truth) == ["b", "c", "d"]


def test_the_log_gets_every_record_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    truth = TruthLog(log, max_stamps=10)
    for name in "abc":
        truth.add(record(name))
        assert [msgspec.json.decode(line)["request_id"] for line in log.read_bytes().splitlines()][
            -1
        ] == name
    truth.close()
    truth.close()
    assert len(log.read_bytes().splitlines()) == 3


def test_a_log_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match="cannot write the log"):
        TruthLog(tmp_path)


def test_a_full_disk_ends_the_log_and_not_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    truth = TruthLog(Path("/dev/full"))
    truth.add(record("a"))
    truth.add(record("b"))
    assert ids(truth) == ["a", "b"]
    assert capsys.readouterr().err.count("cannot be written any more: ") == 1
