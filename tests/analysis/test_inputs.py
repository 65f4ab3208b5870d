"""Rows of embeddings and rankings: latency to the end of the answer, inputs per second, cost."""

from typing import Any

import msgspec
import pytest
from tests.analysis.made import MS, asked, request

from splitsecond.benchmark.findings.compare import RunData, compare
from splitsecond.benchmark.report import rows
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.core.catalog.price import Price
from splitsecond.core.observation import Observation

BATCH = 8


def requests_of_inputs(**changes: Any) -> list[Observation]:
    """20 requests one after another: first vector after 40 ms, end after 50 ms."""
    requests = []
    for number in range(20):
        one = request(1000 + 50 * number, ttft_ms=40, tokens=1, name=f"r{number}")
        end_ns = (one.sent_ns or 0) + 50 * MS
        requests.append(
            msgspec.structs.replace(
                one, inputs=BATCH, output_tokens=0, input_tokens=400, end_ns=end_ns, **changes
            )
        )
    return requests


def embedded(**changes: Any) -> ConditionFindings:
    own = msgspec.structs.replace(asked(), inputs=BATCH, output_tokens=0)
    prices = {"a/x": Price(input_usd=0.5)}
    (found,) = condition_rows([own], requests_of_inputs(**changes), [], prices=prices)
    return found


def test_latency_ends_with_the_answer_and_no_ttft_exists() -> None:
    row = embedded()
    assert row.latency_ms.p50 == pytest.approx(50)
    text = ("ttft_ms", "tps", "e2e_ms", "total_tps", "itl_ms")
    assert all(FIGURES[name].summary(row).n == 0 for name in text)
    assert row.output_tokens_per_s is None
    assert row.phases_ms == {}


def test_speed_and_cost_are_those_of_inputs() -> None:
    row = embedded()
    assert row.requests_per_s is not None
    assert row.inputs_per_s == pytest.approx(BATCH * row.requests_per_s)
    assert row.input_tokens_per_s == pytest.approx(400 * row.requests_per_s)
    assert row.usd_per_million == pytest.approx(0.5)
    assert row.usd_per_1000_inputs == pytest.approx(400 / 1e6 * 0.5 / BATCH * 1000)


def test_vectors_counted_by_events_need_no_note() -> None:
    assert not any("event" in note for note in embedded(token_source="events").notes)


def test_comparison_has_latency_and_no_ttft() -> None:
    run = Run(id="r", began="2026-11-27T00:00:00Z", began_ns=0, conditions=[embedded()])
    side = [RunData(run, requests_of_inputs())]
    changes = compare(side, side).conditions
    names = [column.name for column in rows.compared_columns(changes)]
    assert names == ["latency p50", "latency p95", "inputs/s"]
