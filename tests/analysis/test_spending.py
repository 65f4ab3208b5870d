"""Spending: sums that can be checked by hand, the losers of a race, caches, machines by the
hour."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.made import failure, request
from tests.cases import each_case

from splitsecond.core.catalog.price import Price
from splitsecond.core.money.closed_early import BillingRule
from splitsecond.core.money.cost import cost_usd
from splitsecond.core.observation import Observation
from splitsecond.core.timing.columns import AttemptColumns
from splitsecond.log.production.spending import (
    By,
    Spending,
    SpendingLedger,
    UsualLengths,
    per_month,
)

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY_S = 86_400.0
PRICES = {
    "a/x": Price(input_usd=1.0, output_usd=10.0, cached_usd=0.1, cache_write_usd=2.0),
    "b/y": Price(input_usd=2.0, output_usd=20.0),
    "own/llama": Price(per_hour_usd=3.0),
    "own/qwen": Price(per_hour_usd=3.0),
}


def attempt(
    target: str = "a/x", *, tokens: tuple[int | None, int | None] = (1000, 100), **changes: object
) -> Observation:
    """By the prices above it costs 0.002 at a/x, and twice that at b/y."""
    made = {
        "role": "winner",
        "target": target,
        "input_tokens": tokens[0],
        "output_tokens": tokens[1],
        **changes,
    }
    return request(**made)  # type: ignore[arg-type] # fields of an observation


def ledger_of(
    prices: Callable[[str], Price | None],
    *calls: list[Observation],
    by: By = "target",
    stops_billing: BillingRule = lambda target: None,
    blocks: int = 1,
) -> SpendingLedger:
    """The ledger of calls, one a day, that are read in so many blocks."""
    parts = [
        AttemptColumns.of(
            ((NOON + timedelta(days=number), replace(o, call=f"call-{number}")) for o in attempts),
            client="team",
            route=f"route-{number % 2}",
        )
        for number, attempts in enumerate(calls)
    ]
    every = AttemptColumns.joined(parts)
    usual = UsualLengths()
    usual.add(every)
    ledger = SpendingLedger(prices, usual, by, stops_billing=stops_billing)
    for at in np.array_split(np.arange(len(every.label)), blocks):
        ledger.add(every.taken(at))
    return ledger


def spent(
    *calls: list[Observation], by: By = "target", span_s: float = DAY_S, blocks: int = 1
) -> tuple[dict[str, Spending], Spending]:
    ledger = ledger_of(PRICES.get, *calls, by=by, blocks=blocks)
    return {row.name: row for row in ledger.rows(span_s)}, ledger.total(span_s)


def test_a_call_costs_all_of_its_attempts() -> None:
    lost = attempt("b/y", tokens=(1000, 10), role="loser", outcome="cancelled")
    rows, total = spent([attempt(), lost])
    assert list(rows) == ["b/y", "a/x"]  # the dearest first
    assert (total.calls, total.attempts) == (1, 2)
    assert total.usd == pytest.approx(0.002 + 0.0022)
    assert total.lost_usd == pytest.approx(0.0022)
    assert (rows["a/x"].calls, rows["b/y"].calls, rows["a/x"].lost_usd) == (1, 1, 0)
    assert rows["a/x"].usd_per_million == pytest.approx(0.002 / 1100 * 1e6)


def test_estimated_counts_are_counted_as_estimates() -> None:
    _, total = spent([attempt(token_source="estimate")], [attempt()])
    assert (total.attempts, total.estimated) == (2, 1)
    assert total.usd == pytest.approx(0.004)


def test_an_attempt_costs_the_price_of_the_tier_that_served_it() -> None:
    prices = {"a/x@fast": Price(input_usd=2.0, output_usd=20.0, by_tier={"default": 0.5})}
    served = [attempt("a/x@fast", tier=tier) for tier in ("fast", "default", "")]
    total = ledger_of(prices.get, served).total(DAY_S)
    assert total.usd == pytest.approx(0.004 + 0.002 + 0.004)
    assert total.other_tier == 1


@pytest.mark.parametrize(
    ("stops", "usd", "high"), [(True, 0.0022, 0.0022), (False, 0.004, 0.022), (None, 0.0022, 0.022)]
)
def test_closed_attempt_costs_by_its_providers_billing_rule(
    stops: bool | None, usd: float, high: float
) -> None:
    """10 tokens had arrived; the winner has 100, and the longest answer of the target 1,000."""
    longest = [attempt("b/y", tokens=(1000, 1000))]
    lost = attempt(
        "b/y", tokens=(1000, 10), role="loser", outcome="cancelled", token_source="events"
    )
    ledger = ledger_of(PRICES.get, [attempt(), lost], longest, stops_billing=lambda target: stops)
    total = ledger.total(DAY_S)
    complete = 0.022 + 0.002
    assert total.lost_usd == pytest.approx(usd)
    assert (total.low_usd, total.usd, total.high_usd) == pytest.approx(
        (complete + 0.0022, complete + usd, complete + high)
    )


@each_case(
    ("by", "names"),
    [
        ("target", {"a/x": 3, "b/y": 1}),
        ("model", {"x": 3, "y": 1}),
        ("provider", {"a": 3, "b": 1}),
        ("route", {"route-0": 2, "route-1": 1}),
        ("client", {"team": 3}),
        ("day", {"2026-11-01": 1, "2026-11-02": 1, "2026-11-03": 1}),
    ],
)
def test_calls_are_grouped_by_each_property(by: By, names: dict[str, int]) -> None:
    rows, total = spent([attempt(), attempt("b/y", role="loser")], [attempt()], [attempt()], by=by)
    assert {name: row.calls for name, row in rows.items()} == names
    assert sum(row.usd for row in rows.values()) == pytest.approx(total.usd)
    assert total.calls == 3
    assert total.usd_per_call == pytest.approx(total.usd / 3)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_call_with_attempts_in_two_blocks_is_counted_once(blocks: int) -> None:
    lost = attempt(
        "b/y", tokens=(None, 10), role="loser", outcome="cancelled", token_source="events"
    )
    rows, total = spent(
        [attempt()], [attempt(), lost], [lost, attempt(), attempt("b/y")], blocks=blocks
    )
    assert (total.calls, total.attempts, total.estimated) == (3, 6, 2)
    assert (rows["a/x"].calls, rows["b/y"].calls) == (3, 2)
    assert rows["b/y"].usd == pytest.approx(2 * 0.0022 + 0.004)  # the prompt of the other attempt


def test_call_with_a_missing_attempt_is_counted() -> None:
    columns = AttemptColumns.of([(NOON, attempt()), (NOON, attempt("b/y"))])
    ledger = SpendingLedger(PRICES.get, UsualLengths())
    ledger.add(columns.taken(np.array([0])))
    total = ledger.total(DAY_S)
    assert total.calls == 1
    assert total.usd == pytest.approx(0.002)


def test_missing_token_counts_are_estimated() -> None:
    left = attempt(tokens=(None, None), outcome="cancelled")
    rows, _ = spent([attempt(tokens=(1000, 100))], [attempt(tokens=(3000, 100))], [left])
    assert (rows["a/x"].estimated, rows["a/x"].unpriced) == (1, 0)
    assert rows["a/x"].usd == pytest.approx(0.002 + 0.004 + 0.002)  # as a prompt of 2,000 tokens
    rows, _ = spent([left])
    assert (rows["a/x"].unpriced, rows["a/x"].usd_per_call) == (1, None)


def test_refusals_cost_nothing_and_unknown_costs_are_in_no_sum() -> None:
    refused = failure(kind="http_429", target="a/x", status=429, role="loser")
    rows, total = spent([refused, attempt("c/z")])
    assert (rows["a/x"].usd, rows["c/z"].usd, total.unpriced) == (0.0, 0.0, 1)
    _, total = spent([failure(kind="http_429", target="c/z", status=429)])
    assert (total.usd, total.unpriced, total.usd_per_call) == (0.0, 0, 0.0)  # at any price


def test_cache_saving_is_reads_minus_writes() -> None:
    read = attempt(cached_tokens=900)
    written = attempt(cache_write_tokens=900)
    _, total = spent([read])
    assert total.cache_saved_usd == pytest.approx(900 * 0.9e-6)
    _, total = spent([written])
    assert total.cache_saved_usd == pytest.approx(-900 * 1e-6)
    _, total = spent([attempt(cache_write_tokens=900, cache_write_1h_tokens=900)])
    assert total.cache_saved_usd == pytest.approx(-900 * 1e-6)
    counted_nothing = attempt(tokens=(0, 0), outcome="failed", status=200, token_source="usage")
    _, total = spent([counted_nothing], [attempt()])
    assert total.cache_saved_usd == 0


def test_tokens_written_for_an_hour_cost_more() -> None:
    price = Price(input_usd=5, output_usd=25, cache_write_usd=6.25)
    for hour, usd in ((0, 6.25), (1_000_000, 10.0), (500_000, 8.125)):
        o = attempt(tokens=(1_000_000, 0), cache_write_tokens=1_000_000, cache_write_1h_tokens=hour)
        total = ledger_of({"a/x": price}.get, [o]).total(DAY_S)
        assert total.usd == pytest.approx(usd)
        assert cost_usd(o, price) == pytest.approx(usd)


def test_a_machine_costs_its_hours_once() -> None:
    rows, total = spent([attempt("own/llama")], [attempt("own/qwen")], [attempt()], span_s=DAY_S)
    assert rows["own/llama"].rented_usd == rows["own/qwen"].rented_usd == pytest.approx(72.0)
    assert total.unpriced == 0
    ledger = ledger_of(PRICES.get, [attempt("own/llama"), attempt("own/qwen")], by="provider")
    assert ledger.total(DAY_S).rented_usd == pytest.approx(72.0)
    assert ledger.rows(DAY_S)[0].rented_usd == pytest.approx(72.0)


def test_cost_per_month_extrapolates_the_period() -> None:
    assert per_month(1.0, DAY_S) == pytest.approx(30.0)
