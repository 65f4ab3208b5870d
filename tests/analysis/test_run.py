"""A run: every requested condition has its row, and rows of one target are compared with each
other."""

import pytest
from tests.analysis.made import S, asked, closed_loop, renamed, request, row

from splitsecond.benchmark.rows.condition import condition_rows, with_batching_efficiency
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.core.timing.instrument import InstrumentReading


def test_each_condition_gets_its_own_requests_and_readings() -> None:
    alone = renamed(closed_loop(1, 10), "one", "a/x")
    many = renamed(closed_loop(8, 10), "eight", "a/x")
    stray = renamed([request()], "unasked", "a/x")
    rows = condition_rows(
        [asked(8, condition="eight"), asked(1, condition="one"), asked(4, condition="never")],
        alone + many + stray,
        [InstrumentReading(condition="eight", begin_ns=0, end_ns=S, collections=1)],
        slo=parse_slo("chat"),
    )
    assert [(r.condition, r.requests, r.instrument.collections) for r in rows] == [
        ("eight", 80, 1),
        ("one", 10, 0),
        ("never", 0, 0),
    ]
    assert rows[0].batching_efficiency == pytest.approx(8, rel=0.01)
    assert rows[1].batching_efficiency == 1
    assert rows[2].batching_efficiency is None
    assert rows[0].goodput is not None


def test_batching_needs_the_same_target_alone() -> None:
    rows = with_batching_efficiency(
        [
            row(target="a", concurrency=1, output_tokens_per_s=0.0),
            row(target="a", concurrency=8, output_tokens_per_s=80.0),
            row(target="b", concurrency=8, output_tokens_per_s=80.0),
            row(target="c", concurrency=1, output_tokens_per_s=10.0),
            row(target="c", concurrency=8, output_tokens_per_s=None),
            row(target="c", concurrency=None, rate=2.0, output_tokens_per_s=20.0),
        ]
    )
    assert [r.batching_efficiency for r in rows] == [None, None, None, 1.0, None, None]
