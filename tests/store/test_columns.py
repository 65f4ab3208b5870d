"""Attempts read as columns: the same as read one by one, in blocks, and of the days, targets and
keys asked for."""

import sqlite3
import tempfile
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import Connection
from tests.store.columns import LONG_AFTER, LONG_AGO, by_rows, check_columns
from tests.store.records import answered, records

from splitsecond.core import clock
from splitsecond.core.observation import FaultRecord
from splitsecond.core.timing.columns import AttemptLabel
from splitsecond.log.store import columns
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.log import Log, Past


def written(url: str, given: list[CallRecord]) -> Past:
    with Log.open(url) as log:
        for record in given:
            log.put(record)
    return Past.open(url)


@given(st.lists(records(), min_size=1, max_size=8))
def test_columns_have_the_figures_of_the_observations(given: list[CallRecord]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/log.db"
        written(url, given)
        assert check_columns(url) == sum(len(record.attempts) for record in given)


def test_a_timeout_fault_of_a_good_attempt_is_ignored(tmp_path: Path) -> None:
    """Such an attempt cannot exist. All definitions of "closed early" agree on it all the same."""
    call = answered(1)
    timeout = FaultRecord(type="TimedOut", kind="total", phase="total", message="")
    odd = replace(call, attempts=(replace(call.attempts[0], fault=timeout, token_source="events"),))
    url = f"sqlite:///{tmp_path}/log.db"
    written(url, [odd])
    assert check_columns(url) == 1


def test_an_answer_that_arrived_at_once_has_no_speed(tmp_path: Path) -> None:
    """100 tokens in one packet and one a millisecond later are not 1,000 tokens per second."""
    call = answered(1)
    usual = call.attempts[0]
    at = [usual.first_token_ns or 0] * 100 + [(usual.first_token_ns or 0) + clock.NS_PER_MS]
    burst = replace(
        usual,
        token_at=at,
        token_lengths=[4] * 101,
        last_token_ns=at[-1],
        output_tokens=101,
        max_read_tokens=100,
    )
    assert usual.tps == pytest.approx(50)
    assert burst.tps is None
    url = f"sqlite:///{tmp_path}/log.db"
    past = written(url, [replace(call, attempts=(burst,))])
    assert check_columns(url) == 1
    assert [o.tps for _, o in by_rows(past)] == [None]


def test_ordinary_numbers_are_not_read_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_row(*_: object) -> None:
        raise AssertionError

    url = f"sqlite:///{tmp_path}/log.db"
    written(url, [answered(n) for n in range(3)])
    monkeypatch.setattr(columns, "_by_row", by_row)
    assert check_columns(url) == 3


def test_rows_of_an_older_version_have_the_same_figures(past: Past, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("UPDATE attempts SET packed = NULL WHERE n % 3 = 0")
    connection.close()
    assert check_columns(f"sqlite:///{tmp_path}/log.db") == 50


def test_rows_may_be_deleted_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the query of their numbers and that of their names. Then what is left is read."""
    url, labels = f"sqlite:///{tmp_path}/log.db", columns._labels
    past = written(url, [answered(n, target=f"t/{n}") for n in range(3)])

    def after_deletion(connection: Connection, *asked: Any) -> dict[int, AttemptLabel]:
        with sqlite3.connect(tmp_path / "log.db") as other:
            other.execute("DELETE FROM attempts WHERE n < 3")
        other.close()
        return labels(connection, *asked)

    monkeypatch.setattr(columns, "_labels", after_deletion)
    assert [
        target for block, _ in past.attempts(LONG_AGO, LONG_AFTER) for target in block.targets
    ] == ["t/2"]


def test_labels_are_found_in_any_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_LABELS_AT_ONCE", 3)
    url = f"sqlite:///{tmp_path}/log.db"
    written(
        url,
        [answered(n, target=f"t/{n}", route=f"r{n % 4}", client=f"k{n % 5}") for n in range(20)],
    )
    assert check_columns(url) == 20


@pytest.mark.parametrize(
    "change",
    [
        {"input_tokens": 1 << 31},
        {"output_tokens": 1 << 40},
        {"cached_tokens": -9_000},
        {"end_ns": 1 << 41},
        {"end_ns": (1 << 62) - 1},
        {"first_token_ns": -5, "sent_ns": 5},
    ],
)
def test_too_large_number_is_read(tmp_path: Path, change: dict[str, int]) -> None:
    call = answered(1)
    (attempt,) = call.attempts
    strange = replace(call, attempts=(replace(attempt, start_ns=0, **change),), start_ns=0)
    url = f"sqlite:///{tmp_path}/log.db"
    written(url, [answered(0), strange, answered(2)])
    assert check_columns(url) == 3


@pytest.fixture
def past(tmp_path: str, monkeypatch: pytest.MonkeyPatch) -> Past:
    monkeypatch.setattr(columns, "ROWS", 7)
    return written(
        f"sqlite:///{tmp_path}/log.db",
        [
            answered(n, target=f"t/{n % 3}", client=f"key-{n % 2}", ago_s=3600.0 * (50 - n))
            for n in range(50)
        ],
    )


def test_blocks_are_read_in_order_with_their_share(past: Past) -> None:
    found = list(past.attempts(LONG_AGO, LONG_AFTER))
    assert [len(block.label) for block, _ in found] == [7] * 7 + [1]
    assert [target for block, _ in found for target in block.targets] == [
        f"t/{n % 3}" for n in range(50)
    ]
    shares = [share for _, share in found]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_each_unordered_row_is_in_one_block_of_even_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an import leaves them: not in the order of time, several of one time, some deleted
    since."""
    monkeypatch.setattr(columns, "ROWS", 7)
    monkeypatch.setattr(columns, "_NUMBERS_AT_ONCE", 10)
    url = f"sqlite:///{tmp_path}/log.db"
    now_ns = clock.now_ns()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now_ns", lambda: now_ns)
        given = [answered(n, ago_s=1000.0 * (n * 37 % 211 // 4)) for n in range(211)]
    past = written(url, given)
    with sqlite3.connect(tmp_path / "log.db") as connection:
        for table in ("calls", "attempts"):
            connection.execute(f"DELETE FROM {table} WHERE n BETWEEN 50 AND 90")
    connection.close()
    assert check_columns(url) == 170
    blocks = [block for block, _ in past.attempts(LONG_AGO, LONG_AFTER)]
    assert 170 / 7 / 2 < len(blocks) <= 170 / 7 + 1
    assert max(len(block.label) for block in blocks) < 7 * 5
    times = [(int(block.came_us.min()), int(block.came_us.max())) for block in blocks]
    assert all(before[1] < after[0] for before, after in pairwise(times))


def test_a_log_without_calls_has_no_blocks(tmp_path: Path) -> None:
    assert list(written(f"sqlite:///{tmp_path}/log.db", []).attempts(LONG_AGO, LONG_AFTER)) == []


def test_only_rows_of_the_requested_days_are_read(past: Past) -> None:
    now = clock.wall_time()
    found = list(past.attempts(now - timedelta(hours=20.5), now - timedelta(hours=10.5)))
    assert sum(len(block.hours) for block, _ in found) == 10
    assert list(past.attempts(LONG_AFTER, LONG_AFTER + timedelta(days=1))) == []
    first = past.first(now - timedelta(hours=20.5))
    assert first is not None
    assert abs(first - (now - timedelta(hours=20))) < timedelta(minutes=1)
    assert past.first(LONG_AFTER) is None


def test_only_rows_of_the_requested_targets_are_read(past: Past) -> None:
    found = [block for block, _ in past.attempts(LONG_AGO, LONG_AFTER, ["t/1"])]
    assert {target for block in found for target in block.targets} == {"t/1"}
    assert sum(len(block.hours) for block in found) == 17
