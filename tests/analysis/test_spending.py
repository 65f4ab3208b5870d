"""Where the money went: sums that can be checked in the head, the losers of a race, caches, machines by the hour."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.analysis.made import failure, request

from splitsecond.analysis.spending import By, Ledger, Spending, per_month
from splitsecond.catalog.price import Price
from splitsecond.timing.observation import Observation

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
    made = {"role": "winner", "target": target, "input_tokens": tokens[0], "output_tokens": tokens[1], **changes}
    return request(**made)  # type: ignore[arg-type] # fields of an observation


def spent(*calls: list[Observation], by: By = "target", span_s: float = DAY_S) -> tuple[dict[str, Spending], Spending]:
    ledger = Ledger(PRICES.get, by)
    for number, attempts in enumerate(calls):
        ledger.add(NOON + timedelta(days=number), attempts, route=f"route-{number % 2}", client="team")
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


@pytest.mark.parametrize(
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
def test_calls_by_what_they_were(by: By, names: dict[str, int]) -> None:
    rows, total = spent([attempt(), attempt("b/y", role="loser")], [attempt()], [attempt()], by=by)
    assert {name: row.calls for name, row in rows.items()} == names
    assert sum(row.usd for row in rows.values()) == pytest.approx(total.usd)
    assert total.calls == 3


def test_what_is_not_said_is_estimated_and_counted() -> None:
    left = attempt(tokens=(None, None), outcome="cancelled")
    rows, _ = spent([attempt(tokens=(1000, 100))], [attempt(tokens=(3000, 100))], [left])
    assert (rows["a/x"].estimated, rows["a/x"].unpriced) == (1, 0)
    assert rows["a/x"].usd == pytest.approx(0.002 + 0.004 + 0.002)  # as a prompt of 2,000 tokens
    rows, _ = spent([left])
    assert (rows["a/x"].unpriced, rows["a/x"].usd_per_call) == (1, None)


def test_refusals_cost_nothing_and_the_unknown_is_in_no_sum() -> None:
    refused = failure(kind="http_429", target="a/x", status=429, role="loser")
    rows, total = spent([refused, attempt("c/z")])
    assert (rows["a/x"].usd, rows["c/z"].usd, total.unpriced) == (0.0, 0.0, 1)


def test_what_caches_saved() -> None:
    read = attempt(cached_tokens=900)
    written = attempt(cache_write_tokens=900)
    _, total = spent([read])
    assert total.cache_saved_usd == pytest.approx(900 * 0.9e-6)
    _, total = spent([written])
    assert total.cache_saved_usd == pytest.approx(-900 * 1e-6)


def test_a_machine_costs_its_hours_once() -> None:
    rows, total = spent([attempt("own/llama")], [attempt("own/qwen")], [attempt()], span_s=DAY_S)
    assert rows["own/llama"].rented_usd == rows["own/qwen"].rented_usd == pytest.approx(72.0)
    assert total.unpriced == 0
    ledger = Ledger(PRICES.get, "provider")
    ledger.add(NOON, [attempt("own/llama"), attempt("own/qwen")], route="r", client="")
    assert ledger.total(DAY_S).rented_usd == pytest.approx(72.0)
    assert ledger.rows(DAY_S)[0].rented_usd == pytest.approx(72.0)


def test_a_month_at_this_pace() -> None:
    assert per_month(1.0, DAY_S) == pytest.approx(30.0)
