"""Rows that several nodes sent: the part of each node, and clocks that are not known well
enough."""

from typing import Any

import msgspec
import pytest
from tests.analysis.made import MS, S, asked, closed_loop, request

from splitsecond.benchmark.rows.condition import condition_findings
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading


def sent_by(node: str, count: int = 10, **made: Any) -> list[Observation]:
    return [msgspec.structs.replace(o, node=node) for o in closed_loop(1, count, **made)]


def read_at(node: str, error_ms: float = 0.1, **more: Any) -> InstrumentReading:
    times = {
        "begin_ns": 0,
        "end_ns": S,
        "clock_error_ns": round(error_ms * MS),
        "clock_offset_ns": 5 * S,
    }
    return InstrumentReading(condition="c", node=node, **(times | more))


def row(observations: list[Observation], *readings: InstrumentReading) -> ConditionFindings:
    return condition_findings(asked(concurrency=2), observations, readings)


def test_a_row_of_one_machine_has_no_nodes() -> None:
    assert condition_findings(asked(), closed_loop(1, 10), []).nodes == []


def test_each_node_has_its_requests_and_its_own_instrument() -> None:
    slow = [msgspec.structs.replace(o, lag_max_ns=3 * MS) for o in sent_by("b", ttft_ms=200)]
    found = row(sent_by("a") + slow, read_at("a"), read_at("b", 0.4))
    assert [(part.node, part.requests, part.errors, part.ttft_p50_ms) for part in found.nodes] == [
        ("a", 10, 0, 100), ("b", 10, 0, 200),
    ]  # fmt: skip
    assert [part.instrument.lag_max_ms for part in found.nodes] == [0, 3]
    assert [(part.clock_offset_ms, part.clock_error_ms) for part in found.nodes] == [
        (5000, 0.1),
        (5000, 0.4),
    ]
    assert [part.instrument.in_flight for part in found.nodes] == [pytest.approx(1, abs=0.1)] * 2
    assert [part.invalid for part in found.nodes] == [[], []]


def test_row_percentiles_cover_the_requests_of_all_nodes() -> None:
    found = row(sent_by("a", 30) + sent_by("b", 10, ttft_ms=200), read_at("a"), read_at("b"))
    assert found.ttft_ms.p50 == 100
    assert found.ttft_ms.n == 40


def test_a_node_that_reads_late_is_invalid_by_itself() -> None:
    late = [
        msgspec.structs.replace(o, kernel_time=False, lag_max_ns=3 * MS) for o in sent_by("b", 2)
    ]
    found = row(sent_by("a", 60) + late, read_at("a"), read_at("b"))
    assert [bool(part.invalid) for part in found.nodes] == [False, True]
    assert any(
        note.startswith("the part of node b is INVALID: client overloaded") for note in found.notes
    )


def test_a_lost_node_is_invalid_and_keeps_its_requests() -> None:
    found = row(
        sent_by("a") + sent_by("b", 3),
        read_at("a"),
        read_at("b", lost="worker on node b: lost the node"),
    )
    assert [(part.node, part.requests) for part in found.nodes] == [("a", 10), ("b", 3)]
    assert found.nodes[1].invalid == [
        "lost during a block: worker on node b: lost the node. What it had finished is kept."
    ]


def test_node_without_requests_is_listed() -> None:
    found = row(sent_by("a"), read_at("a"), read_at("b", lost="gone"))
    assert [(part.node, part.requests, part.ttft_p50_ms) for part in found.nodes] == [
        ("a", 10, 100),
        ("b", 0, None),
    ]


@pytest.mark.parametrize(("error_ms", "trusted"), [(20, True), (21, False)])
def test_large_clock_error_makes_the_throughput_invalid(error_ms: float, trusted: bool) -> None:
    """The steady window has 2 s, and each of its ends is known to `error_ms`."""
    both = [
        request(1000 + 200 * i, name=f"{node}{i}", node=node) for node in "ab" for i in range(10)
    ]
    found = row(both, read_at("a", error_ms), read_at("b"))
    assert found.steady_s == pytest.approx(2)
    reasons = [
        reason
        for reason in found.invalid
        if reason.startswith("the clocks of the nodes are known to")
    ]
    assert (reasons == []) is trusted


def test_the_clock_of_a_single_node_does_not_matter() -> None:
    found = condition_findings(asked(), sent_by("a"), [read_at("a", 500)])
    assert found.invalid == []
