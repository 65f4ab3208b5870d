"""Money: of one attempt, of a row with all that was sent for it, of a machine by the hour."""

import os
import subprocess
import sys
from typing import Any

import pytest
from tests.analysis.made import asked, failure, request, row
from tests.cases import each_case

from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.row_cost import cost_statements, with_cost
from splitsecond.core.catalog.price import Price, Tier
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.money.cost import bill, billed, cost_usd, price_words, run_cost_usd, usd
from splitsecond.core.observation import Observation
from splitsecond.core.wording import full

PRICE = Price(
    input_usd=2.0,
    output_usd=10.0,
    cached_usd=0.2,
    cache_write_usd=2.5,
    as_of="2026-01-02",
    source="test",
)
PRICES = {"a/x": PRICE}
WHOLE: dict[str, Any] = {"input_tokens": 100_000, "output_tokens": 10_000}


def test_price_without_amounts_is_free_and_a_machine_is_not() -> None:
    assert price_words(Price()) == "free"
    assert price_words(Price(per_hour_usd=2.0)) == "$2 per hour"
    assert price_words(None) == ""


@each_case(
    ("changes", "expected"),
    [
        ({}, 0.2 + 0.1),
        ({"cached_tokens": 50_000}, 0.1 + 0.01 + 0.1),
        ({"cached_tokens": 50_000, "cache_write_tokens": 20_000}, 0.06 + 0.01 + 0.05 + 0.1),
        ({"reasoning_tokens": 9_000}, 0.2 + 0.1),
        ({"input_tokens": None}, None),
        ({"output_tokens": None}, None),
    ],
)
def test_an_attempt_costs_its_tokens(
    changes: dict[str, int | None], expected: float | None
) -> None:
    assert cost_usd(request(**(WHOLE | changes)), PRICE) == (expected and pytest.approx(expected))


def test_refusal_is_free_and_cost_without_a_price_is_unknown() -> None:
    assert cost_usd(failure(status=429), PRICE) == 0.0
    assert cost_usd(failure(sent_ns=None), PRICE) == 0.0
    assert cost_usd(failure(status=200, kind="timeout_first_token"), PRICE) is None
    assert cost_usd(request(**WHOLE), None) is None
    assert cost_usd(request(**WHOLE), Price(per_hour_usd=3.0)) is None
    assert cost_usd(request(**WHOLE), Price()) == 0.0


def test_a_long_prompt_takes_the_tier_of_its_length() -> None:
    price = Price(
        input_usd=1.0,
        output_usd=1.0,
        tiers=(Tier(above_tokens=99_999, input_usd=2.0, output_usd=3.0),),
    )
    assert cost_usd(request(**WHOLE), price) == pytest.approx(0.2 + 0.03)


def test_row_cost_includes_warm_ups_and_failures() -> None:
    sent = [
        request(**WHOLE, role="warmup", name="w"),
        request(**WHOLE, name="1"),
        failure(status=500, call="2"),
        failure(
            status=200,
            kind="truncated",
            first_token_ns=5,
            output_tokens=1_000,
            input_tokens=100_000,
            call="3",
        ),
    ]
    found = with_cost(row(), sent, PRICES, hours=1.0)
    assert found.cost_usd == pytest.approx(0.3 + 0.3 + 0.0 + 0.21)
    assert found.usd_per_request == pytest.approx(0.51)
    assert found.usd_per_million == pytest.approx(0.51 / 0.11)
    assert found.usd_per_million_output == pytest.approx(0.51 / 0.01)
    assert (found.price, found.cost_estimated, found.notes) == (PRICE, 0, [])


def test_closed_attempt_costs_its_prompt_and_received_tokens() -> None:
    closed = request(name="2", outcome="cancelled", input_tokens=None, output_tokens=500)
    found = bill([request(**WHOLE, name="1"), closed], PRICES)
    assert found.usd == pytest.approx(0.3 + 0.2 + 0.005)
    assert (found.attempts, found.estimated, found.unpriced) == (2, 1, 0)
    alone = bill([closed], PRICES)
    assert (alone.usd, alone.estimated, alone.unpriced) == (0.0, 0, 1)
    noted = with_cost(row(), [request(**WHOLE, name="1"), closed], PRICES, hours=1.0)
    assert noted.notes == [
        "the cost of 1 attempt without token counts is an estimate, and may be higher."
    ]


def race(price_of_b: bool) -> tuple[list[Observation], dict[str, Price]]:
    """A call that a policy served, with a winner, a loser, and its own observation."""
    won = request(**WHOLE, name="c", role="winner", target="a/x")
    lost = request(
        name="c",
        role="loser",
        target="b/x",
        outcome="cancelled",
        input_tokens=None,
        output_tokens=0,
    )
    served = request(**WHOLE, name="c", target="race(a/x, b/x)")
    return [lost, won, served], PRICES | (
        {"b/x": Price(input_usd=1.0, output_usd=1.0)} if price_of_b else {}
    )


def test_cancelled_request_is_paid_but_raises_no_token_price() -> None:
    whole = [request(**WHOLE, name=name) for name in ("1", "2")]
    cut = request(name="3", outcome="cancelled", input_tokens=None, output_tokens=0)
    found, alone = (with_cost(row(), sent, PRICES, hours=1.0) for sent in ([*whole, cut], whole))
    assert found.cost_usd == pytest.approx(0.3 + 0.3 + 0.2)
    assert found.usd_per_million == alone.usd_per_million == pytest.approx(0.6 / 0.22)
    assert found.usd_per_request == alone.usd_per_request == pytest.approx(0.3)


def test_short_warm_ups_do_not_change_the_token_price() -> None:
    whole = [request(**WHOLE, name=name) for name in ("1", "2")]
    short = request(name="3", role="warmup", input_tokens=WHOLE["input_tokens"], output_tokens=1)
    for prices in (PRICES, {"a/x": Price(per_hour_usd=3.6)}):
        found, alone = (
            with_cost(row(output_tokens_per_s=1000.0), sent, prices, hours=1.0)
            for sent in ([*whole, short], whole)
        )
        assert found.usd_per_million == alone.usd_per_million
        assert found.usd_per_million_output == alone.usd_per_million_output
    assert with_cost(row(), [short], PRICES, hours=1.0).usd_per_million is None


def test_uncounted_prompts_do_not_use_counts_of_other_rows() -> None:
    counted = request(**WHOLE, name="1", target="b/x", condition="b/x@c1")
    mute = request(name="2", input_tokens=None, output_tokens=10_000)
    found = bill([counted, mute], PRICES | {"b/x": PRICE})
    assert found.usd == pytest.approx(0.3)
    assert found.unpriced == 1
    assert with_cost(row(), [mute], PRICES, hours=1.0).notes == [
        "the cost is unknown: no response reports the tokens of its prompt."
    ]


def test_machine_is_paid_from_first_request_to_end_of_the_last() -> None:
    hour = 3600 * NS_PER_S
    prices = PRICES | {"h/x": Price(per_hour_usd=3.0)}
    rented = [
        request(target="h/x", name=str(at), start_ns=at, end_ns=at + hour)
        for at in (hour, 4 * hour)
    ]
    assert run_cost_usd(rented, prices) == pytest.approx(4 * 3.0)
    assert run_cost_usd([*rented, request(**WHOLE, name="t")], prices) == pytest.approx(
        4 * 3.0 + 0.3
    )
    assert run_cost_usd([request(**WHOLE)], {}) is None
    assert run_cost_usd([], PRICES) is None


def test_race_costs_all_attempts_and_its_call_is_free() -> None:
    sent, prices = race(price_of_b=True)
    assert billed(sent) == sent[:2]
    found = with_cost(row(target="race(a/x, b/x)"), sent, prices, hours=1.0)
    assert found.cost_usd == pytest.approx(0.3 + 0.1)
    assert found.usd_per_request == pytest.approx(0.4)
    assert (found.price, found.cost_estimated) == (None, 1)


def test_attempt_without_a_price_is_noted() -> None:
    sent, prices = race(price_of_b=False)
    found = with_cost(row(target="race(a/x, b/x)"), sent, prices, hours=1.0)
    assert found.cost_usd == pytest.approx(0.3)
    assert found.notes == ["1 attempt without a known price is not in the cost."]


def test_price_per_hour_is_divided_by_the_tokens_of_an_hour() -> None:
    price = {"a/x": Price(per_hour_usd=3.6)}
    answers = [request(input_tokens=300, output_tokens=100, name=str(i)) for i in range(4)]
    found = with_cost(row(output_tokens_per_s=1000.0), answers, price, hours=0.5)
    assert found.cost_usd == pytest.approx(1.8)
    assert found.usd_per_million_output == pytest.approx(1.0)
    assert found.usd_per_million == pytest.approx(0.25)
    assert found.usd_per_request == pytest.approx(0.45)
    assert found.notes == []
    unknown = with_cost(row(), answers, price, hours=0.5)
    assert unknown.cost_usd == pytest.approx(1.8)
    assert unknown.usd_per_million is None


def test_note_states_what_the_cache_saved_or_cost() -> None:
    read = with_cost(row(), [request(**WHOLE, cached_tokens=50_000)], PRICES, hours=1.0)
    assert read.notes == [
        "50% of the input, warm-ups included, came from the provider's prompt cache, which saved "
        "$0.0900."
    ]
    filled = with_cost(
        row(), [request(**WHOLE, cached_tokens=2_000, cache_write_tokens=90_000)], PRICES, hours=1.0
    )
    assert filled.notes == [
        "2% of the input, warm-ups included, came from the provider's prompt cache, which cost "
        "$0.0414 more than it "
        "saved."
    ]


def test_responses_of_other_speed_tiers_cost_their_price() -> None:
    prices = {"a/x": Price(input_usd=2.0, output_usd=10.0, by_tier={"default": 0.5, "flex": 0.25})}
    served = [request(**WHOLE, tier=tier) for tier in ("fast", "default", "flex", "default")]
    found = with_cost(row(), served, prices, hours=1.0)
    assert found.cost_usd == pytest.approx(0.3 * (1 + 0.5 + 0.25 + 0.5))
    assert found.notes == [
        "3 of 4 responses came from another speed tier ('default' and 'flex'), at the price of "
        "that tier."
    ]


def test_without_any_price_a_row_stays_as_it_was() -> None:
    assert with_cost(row(), [request(**WHOLE)], {}, hours=1.0) == row()
    assert with_cost(row(), [], PRICES, hours=1.0) == row(price=PRICE)


def test_a_run_has_the_money_of_its_rows() -> None:
    (found,) = condition_rows([asked()], [request(**WHOLE)], [], prices=PRICES)
    assert found.cost_usd == pytest.approx(0.3)
    (plain,) = condition_rows([asked()], [request(**WHOLE)], [])
    assert plain.cost_usd is None


def test_cheapest_target_is_named_for_each_load() -> None:
    rows = [
        row(target="a/x", usd_per_million=0.5),
        row(target="b/x", usd_per_million=0.25),
        row(target="c/x"),
    ]
    more = [row(target=r.target, usd_per_million=r.usd_per_million, concurrency=8) for r in rows]
    dearer = [
        row(target="a/x", usd_per_million=0.1, rate=2.0, concurrency=None),
        row(target="b/x", usd_per_million=3.0, rate=2.0, concurrency=None),
    ]
    assert full(cost_statements(rows + more + dearer)) == [
        "At concurrency 1 and at concurrency 8, a million tokens in this run's mix of input and "
        "output cost: "
        "b/x $0.250, a/x $0.500.",
        "At 2 requests/s, a million tokens in this run's mix of input and output cost: a/x "
        "$0.100, b/x $3.00.",
    ]
    assert full(cost_statements(rows[:1] + rows[2:])) == []


@each_case(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "$0.00"),
        (1234.5, "$1,234.50"),
        (0.9999, "$1.00"),
        (0.5, "$0.500"),
        (0.00001234, "$0.0000123"),
        (1e-15, "$0.000000000"),
        (-2.0, "−$2.00"),
    ],
)
def test_amounts_are_written_in_dollars(value: float | None, text: str) -> None:
    assert usd(value) == text


def test_price_is_written_with_its_unit() -> None:
    assert price_words(PRICE) == "$2 in, $0.2 cached, $10 out per million tokens"
    assert price_words(Price(per_hour_usd=2.69)) == "$2.69 per hour"
    assert price_words(None) == ""


@pytest.mark.system
def test_the_gateway_computes_costs_without_numpy() -> None:
    program = "import sys, splitsecond.core.money.cost; sys.exit('numpy' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONPATH": os.pathsep.join(sys.path)}
        ).returncode
        == 0
    )
