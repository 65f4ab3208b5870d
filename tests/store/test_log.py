"""The log returns the records that were put into it."""

import contextlib
import math
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.store.records import answered, kept, records, same_figures

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.log import _PAGE, Log, Past
from splitsecond.log.store.tables import VERSION

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


def written(url: str, records: list[CallRecord], **options: Any) -> Log:
    """The closed log that holds `records`; it can still be read."""
    with Log.open(url, **options) as log:
        for record in records:
            log.put(record)
    assert (log.written, log.dropped, log.errors) == (len(records), 0, 0)
    return log


def read(log: Log, since: datetime = LONG_AGO, until: datetime | None = None) -> list[CallRecord]:
    return [served for _, served in log.calls(since, until)]


@examples(60)
@given(given=st.lists(records(), max_size=20, unique_by=lambda served: served.call))
def test_records_are_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, given: list[CallRecord]
) -> None:
    log = written(f"sqlite:///{tmp_path_factory.mktemp('log')}/log.db", given)
    found = {served.call: served for served in read(log)}
    assert found == {served.call: kept(served) for served in given}
    for served in given:
        same_figures(served, found[served.call])


def test_a_call_is_dated_by_the_wall_clock(url: str) -> None:
    with clock.using(lambda: 7_000_000_000, lambda: 1_790_000_000_123_456_000):
        log = written(url, [answered(1, ago_s=3)])
        [(came, _)] = log.calls(LONG_AGO, datetime(2030, 1, 1, tzinfo=UTC))
    assert came == datetime(2026, 9, 21, 14, 13, 17, 123456, tzinfo=UTC)


def test_a_step_of_the_wall_clock_hides_no_call(url: str) -> None:
    """A record that is written again after the step would be in the log twice."""
    record = msgspec.structs.replace(answered(1), wall_us=clock.wall_offset_us())
    log, step_ns = written(url, [record]), 7200 * clock.NS_PER_S
    monotonic_ns, offset_ns = clock.now_ns, clock.wall_offset_ns()
    with clock.using(monotonic_ns, lambda: monotonic_ns() + offset_ns + step_ns):
        assert log.contained([record, answered(2)]) == {record.call}
        (came, _), *_ = log.calls(LONG_AGO, datetime(2100, 1, 1, tzinfo=UTC))
    assert came.timestamp() == pytest.approx((record.start_ns + offset_ns) / 1e9)


def test_tables_can_be_queried_with_sql(url: str, tmp_path: Path) -> None:
    lost = Observation(
        id="req-1.2",
        call="req-1",
        target="slow/er",
        role="loser",
        outcome="cancelled",
        input_tokens=9,
    )
    record = answered(1)
    written(url, [msgspec.structs.replace(record, attempts=(*record.attempts, lost))])
    connection = sqlite3.connect(tmp_path / "log.db")
    assert connection.execute(
        "SELECT route, client, status, target, outcome, attempts, input_tokens, output_tokens, "
        "token_source,"
        " first_token_ns / 1000000, end_ns / 1000000 FROM calls"
    ).fetchall() == [("fast", "team", 200, "groq/fast", "ok", 2, 100, 20, "usage", 200, 501)]
    assert connection.execute(
        "SELECT target, role, (first_token_ns - sent_ns) / 1000000, first_event_tokens FROM "
        "attempts ORDER BY n"
    ).fetchall() == [("groq/fast", "winner", 199, 5), ("slow/er", "loser", None, None)]
    assert connection.execute("SELECT version_num FROM splitsecond_log").fetchall() == [
        (str(VERSION),)
    ]
    connection.close()


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        # Groq's, within its usage, and Cerebras': seconds
        (
            {"queue_time": 0.5, "prompt_time": 0.25, "completion_time": 1.5, "total_time": 2.25},
            (SECOND // 2, SECOND // 4, SECOND * 3 // 2, None, SECOND * 9 // 4),
        ),
        # llama.cpp's: milliseconds, and fields that are not times
        (
            {
                "prompt_n": 6,
                "prompt_ms": 2.5,
                "prompt_per_token_ms": 0.4,
                "predicted_ms": 4,
                "predicted_per_second": 9,
            },
            (None, 2_500_000, 4_000_000, None, None),
        ),
        # Ollama's: nanoseconds
        (
            {
                "total_duration": 9e9,
                "load_duration": 5e9,
                "prompt_eval_duration": 1e9,
                "eval_duration": 2e9,
            },
            (None, SECOND, 2 * SECOND, None, 9 * SECOND),
        ),
        # OpenAI's header
        ({"processing_ms": 214.0}, (None, None, None, 214_000_000, None)),
        # nothing, and what no server can have taken
        ({}, (None,) * 5),
        (
            {
                "queue_time": math.nan,
                "prompt_time": -0.1,
                "completion_time": math.inf,
                "total_time": 1e300,
            },
            (None,) * 5,
        ),
    ],
)
def test_server_times_are_stored_in_nanoseconds(
    url: str, tmp_path: Path, said: dict[str, float], expected: tuple[int | None, ...]
) -> None:
    written(url, [answered(1, server_timings=said)])
    with contextlib.closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        found = connection.execute(
            "SELECT server_queue_ns, server_prefill_ns, server_decode_ns, server_head_ns, "
            "server_total_ns FROM attempts"
        ).fetchall()
    assert found == [expected]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a\0b", "a b"),
        ("half \ud800 a pair", "half a pair"),
        ("two\nlines", "two lines"),
        ("x" * 100_000, "x" * 200),
    ],
)
def test_a_name_that_a_client_chose_is_kept_as_a_short_line(
    url: str, given: str, expected: str
) -> None:
    [found] = read(written(url, [answered(1, route=given)]))
    assert found.route == expected


def test_the_latest_attempts_of_each_target(url: str) -> None:
    with clock.using(lambda: 7_000_000_000, lambda: 1_790_000_000_000_000_000):
        given = [
            *(answered(i, target="a/x", ago_s=100 - i) for i in range(10)),
            *(answered(20 + i, target="b/y", ago_s=10 - i) for i in range(2)),
            answered(30, target="c/z", ago_s=2 * 86400),
        ]
        found = written(url, given).recent(timedelta(days=1), each=3)
    assert [o.id for o, _ in found] == ["req-7.1", "req-8.1", "req-9.1", "req-20.1", "req-21.1"]
    # Since the end of each, which is 501 ms after it came.
    assert [age for _, age in found] == pytest.approx([92.499, 91.499, 90.499, 9.499, 8.499])
    assert {o.ttft_ns for o, _ in found} == {199 * clock.NS_PER_MS}


def test_the_latest_attempts_of_an_empty_log(url: str) -> None:
    assert written(url, []).recent(timedelta(days=1)) == []


def test_spent_tokens_of_a_client(url: str) -> None:
    midnight = clock.wall_time() - timedelta(hours=1)
    won = answered(1, ago_s=60)
    lost = Observation(
        id="req-1.2",
        call="req-1",
        target="slow/er",
        role="loser",
        input_tokens=9,
        cache_write_tokens=2,
        cache_write_1h_tokens=1,
    )
    given = [
        msgspec.structs.replace(won, attempts=(*won.attempts, lost)),
        answered(2, ago_s=30),
        answered(3, ago_s=30, client="other"),
        answered(4, ago_s=7200),
    ]
    spent = written(url, given).spent_tokens("team", midnight)
    assert sorted(map(msgspec.structs.astuple, spent)) == [
        ("groq/fast", "", 100, 2, 200, 80, 0, 0, 40),
        ("slow/er", "", 9, 1, 9, 0, 2, 1, 0),
    ]
    assert written(url, []).spent_tokens("nobody", midnight) == []


def test_what_was_used_at_other_rates_is_apart(url: str) -> None:
    def attempt(number: int, tokens: int | None, tier: str = "") -> Observation:
        return Observation(
            id=f"req-1.{number}", call="req-1", target="a/x", input_tokens=tokens, tier=tier
        )

    sizes = [999, 1000, 1001, None, 200_000, 200_001]
    attempts = [
        *(attempt(n, tokens) for n, tokens in enumerate(sizes)),
        attempt(9, 1000, "priority"),
    ]
    one = msgspec.structs.replace(answered(1, ago_s=60), attempts=tuple(attempts))
    spent = written(url, [one]).spent_tokens("team", clock.wall_time() - timedelta(hours=1))
    assert sorted(
        (each.tier, each.longest_prompt, each.attempts, each.input_tokens) for each in spent
    ) == [
        ("", 0, 1, 0),
        ("", 1000, 2, 1999),
        ("", 1001, 1, 1001),
        ("", 200_000, 1, 200_000),
        ("", 200_001, 1, 200_001),
        ("priority", 1000, 1, 1000),
    ]


def test_the_calls_of_a_window_come_in_order_over_pages(url: str) -> None:
    start, wall_us = clock.now_ns() - 3600 * clock.NS_PER_S, clock.wall_offset_us()
    # Many of one microsecond, so that a page ends among them. The difference of the clocks is read
    # once: readings differ by a fraction of a microsecond.
    given = [
        answered(i, start_ns=start + i // 700 * 1_000_000, wall_us=wall_us)
        for i in range(2 * _PAGE + 300)
    ]
    log = written(url, given)
    assert [served.call for served in read(log)] == [record.call for record in given]
    assert all(len(served.attempts) == 1 for served in read(log))


def test_a_window_has_its_beginning_and_not_its_end(url: str) -> None:
    log = written(url, [answered(i, ago_s=60 - i) for i in range(5)])
    came = [moment for moment, _ in log.calls(LONG_AGO)]
    assert [served.call for served in read(log, came[1], came[3])] == ["req-1", "req-2"]


def test_calls_are_summed_by_period(url: str) -> None:
    def call(number: int, ago_s: float, status: int = 200, **changes: Any) -> CallRecord:
        return msgspec.structs.replace(answered(number, ago_s=ago_s), status=status, **changes)

    with clock.using(lambda: 10**15, lambda: 1_790_000_040_000_000_000):  # a full minute
        log = written(
            url,
            [
                call(1, ago_s=3600),
                call(2, ago_s=70),
                call(3, ago_s=65, status=429),
                call(4, ago_s=61, status=499),
                call(5, ago_s=5, status=502, first_token_ns=None, attempts=()),
            ],
        )
    found = log.periods(datetime.fromtimestamp(1_790_000_040 - 600, UTC), timedelta(seconds=60))
    assert [(each.at_s, each.calls, each.failed) for each in found] == [
        (1_789_999_920, 3, 1),
        (1_789_999_980, 1, 1),
    ]
    assert found[0].ttft_ms == pytest.approx(200)
    assert (found[1].ttft_ms, found[1].output_tokens) == (None, 0)
    assert found[0].output_tokens == 3 * 20


def test_reopened_log_keeps_its_calls(url: str) -> None:
    written(url, [answered(1)])
    assert len(read(written(url, [answered(2)]))) == 2


def test_old_calls_are_forgotten(url: str) -> None:
    day = 86400
    given = [answered(i, ago_s=age * day) for i, age in enumerate([40, 31, 29, 0])]
    log = written(url, given, keep_days=30)
    written(url, [answered(9)], keep_days=30)
    assert [served.call for served in read(log)] == ["req-2", "req-3", "req-9"]
    assert [o.id for o, _ in log.recent(timedelta(days=100))] == ["req-2.1", "req-3.1", "req-9.1"]


def test_unreadable_log_is_reported(url: str, tmp_path: Path) -> None:
    log = written(url, [answered(1)])
    (tmp_path / "log.db").write_bytes(b"nonsense" * 1000)
    (tmp_path / "log.db-wal").unlink(missing_ok=True)
    questions: list[Callable[[], object]] = [
        lambda: log.recent(timedelta(days=1)),
        lambda: log.spent_tokens("team", LONG_AGO),
        lambda: read(log),
    ]
    for question in questions:
        with pytest.raises(
            CallerFault, match=r"cannot read the log .*log\.db: file is not a database"
        ):
            question()


def test_missing_log_is_not_created_for_reading(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match="there is no log") as refused:
        Past.open(f"sqlite:///{tmp_path}/none.db")
    assert refused.value.kind == "no_log"
    assert list(tmp_path.iterdir()) == []


def test_log_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    with Log.open(f"sqlite:///{tmp_path}/log.db") as log, log._connection() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM sqlite_master").all()
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"log.db": 0o600, "log.db-wal": 0o600, "log.db-shm": 0o600}
