"""The same attempts, read as rows and as columns, and compared."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from splitsecond.core.observation import Observation
from splitsecond.core.timing.columns import (
    OUTCOMES,
    SOURCES,
    WAIT_CLOSED,
    WAIT_ENDED,
    AttemptColumns,
    AttemptLabel,
)
from splitsecond.log.store.log import Past
from splitsecond.log.store.rows import ATTEMPT_COLUMNS, observation
from splitsecond.log.store.tables import ATTEMPTS

LONG_AGO, LONG_AFTER = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def by_rows(past: Past) -> list[tuple[datetime, Observation]]:
    """Every attempt of the log as an observation, with the time of its call: what the columns
    replace."""
    with past._connection() as connection:
        found = connection.execute(select(*ATTEMPT_COLUMNS).order_by(ATTEMPTS.c.n)).all()
    return [(EPOCH + timedelta(microseconds=row.came_us), observation(row)) for row in found]


def figures(columns: AttemptColumns) -> list[tuple[Any, ...]]:
    """Every number and figure of each attempt, with None for one that it does not have."""
    names = [
        name for name in columns.__struct_fields__ if name not in ("labels", "label", "attempts")
    ]
    parts = [
        columns.total_tps,
        columns.tps,
        columns.wait_ms,
        columns.hours,
        *(getattr(columns, each) for each in names),
    ]
    return [
        tuple(None if isinstance(each, float) and math.isnan(each) else each for each in row)
        for row in zip(*(part.tolist() for part in parts), strict=True)
    ]


def check_columns(url: str) -> int:
    """Fails where a figure of a column is another than that of the observation; returns the number
    of attempts."""
    past = Past.open(url)
    rows = by_rows(past)
    made = AttemptColumns.of(rows)
    for (_, o), row, (outcome, source, wait, *flags) in zip(
        rows, figures(made), _flags(made), strict=True
    ):
        total, tps, waited, *_ = row
        assert (OUTCOMES[outcome], SOURCES[source]) == (o.outcome, o.token_source)
        assert tuple(flags) == (o.unbilled, o.closed_early, o.role == "loser")
        for figure, expected in ((total, o.total_tps), (tps, o.tps)):
            assert figure == (None if expected is None else pytest.approx(expected))
        closed = o.closed_by_us
        if o.streamed and o.ttft_ns is not None:
            assert (wait, waited) == (WAIT_ENDED, o.ttft_ms)
        elif o.streamed and o.sent_ns is not None and closed:
            assert (wait, waited) == (WAIT_CLOSED, (o.end_ns - o.sent_ns) / 1e6)
        else:
            assert (wait, waited) == (0, None)
    blocks = [block for block, _ in past.attempts(LONG_AGO, LONG_AFTER)]
    read = [
        (block.labels[place], attempts, row)
        for block in blocks
        for place, attempts, row in zip(
            block.label.tolist(), block.attempts.tolist(), figures(block), strict=True
        )
    ]
    by_hand = [(*names, row) for names, row in zip(_by_hand(past), figures(made), strict=True)]
    # a server reads one partition after another
    assert sorted(read, key=repr) == sorted(by_hand, key=repr)
    return len(rows)


def _flags(block: AttemptColumns) -> list[tuple[Any, ...]]:
    columns = (
        block.outcomes,
        block.sources,
        block.waits,
        block.unbilled,
        block.closed_early,
        block.losers,
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _by_hand(past: Past) -> list[tuple[AttemptLabel, int]]:
    """The names of each attempt, and the number of attempts of its call."""
    with past._connection() as connection:
        found = connection.exec_driver_sql(
            "SELECT a.target, a.client, c.route, a.tier, a.fault, coalesce(c.team, ''), "
            "coalesce(c.tags, ''), c.stated_usd IS NOT NULL, c.attempts "
            "FROM attempts a JOIN calls c ON c.call = a.call AND c.came_us = a.came_us ORDER BY a.n"
        ).all()
    return [(AttemptLabel(*names), attempts) for *names, attempts in found]
