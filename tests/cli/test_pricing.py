"""What a benchmark may cost: prices from options, what is said before it starts, and where it stops."""

import msgspec
import pytest
from tests.analysis.made import request
from tests.cli.conftest import Split

from splitsecond.catalog.price import Price
from splitsecond.cli.pricing import Allowance, CostReached, Meter, announce, announce_rounds, estimate_usd, find_prices
from splitsecond.clock import NS_PER_S
from splitsecond.errors import CallerFault
from splitsecond.load.plan import Load, Plan, make_plan
from splitsecond.load.workload import Workload

DOLLAR = Price(input_usd=1000.0, output_usd=2000.0)
WORKLOAD = Workload(run="r", output_tokens=500)


def plan(*targets: str, requests: int = 10) -> Plan:
    """Requests at concurrency 2 and so with 2 warm-ups, in one block."""
    return make_plan(dict.fromkeys(targets, "http://x"), [Load(concurrency=2)], requests=requests, blocks=1)


def test_a_price_from_the_option_that_names_the_target_wins() -> None:
    known, unknown = "groq/llama-3.3-70b-versatile", "127.0.0.1:8000/mine"
    found = find_prices([known, unknown], ["1,2", f"{known}=0.5,0.6,0.1,0.7"], [])
    assert found[known].source == found[unknown].source == "the command line"
    assert (found[unknown].input_usd, found[unknown].output_usd, found[unknown].cached_usd) == (1, 2, None)
    assert (found[known].cached_usd, found[known].cache_write_usd) == (0.1, 0.7)


def test_a_price_without_a_target_is_for_those_that_have_none() -> None:
    found = find_prices(["groq/llama-3.3-70b-versatile", "sim/groq"], ["1,2"], [])
    assert found["groq/llama-3.3-70b-versatile"].source.startswith("genai-prices")
    assert found["sim/groq"].input_usd == 1


def test_an_hour_and_tokens_may_both_have_a_price() -> None:
    found = find_prices(["a/x", "b/x"], ["a/x=1,2"], ["a/x=3", "2.69"])
    assert (found["a/x"].per_hour_usd, found["a/x"].output_usd) == (3, 2)
    assert (found["b/x"].per_hour_usd, found["b/x"].by_token) == (2.69, False)


def test_without_options_the_unknown_stay_without() -> None:
    assert find_prices(["sim/groq", "127.0.0.1:8000/mine"], [], []) == {}


@pytest.mark.parametrize(
    ("per_token", "per_hour", "words"),
    [
        (["1"], [], "--price: got '1', expected INPUT,OUTPUT"),
        (["1,2,3,4,5"], [], "--price"),
        (["1,-2"], [], "--price"),
        (["1,nan"], [], "--price"),
        (["cheap"], [], "--price"),
        (["b/y=1,2"], [], "expected one of this run's targets before the =: a/x"),
        ([], ["1,2"], "--price-per-hour: got '1,2', expected US dollars an hour"),
    ],
)
def test_a_price_that_makes_no_sense(per_token: list[str], per_hour: list[str], words: str) -> None:
    with pytest.raises(CallerFault) as refused:
        find_prices(["a/x"], per_token, per_hour)
    assert words in str(refused.value)


def test_the_estimate_has_warm_ups_and_every_target_of_a_policy() -> None:
    each = 500 * 1000e-6 + 500 * 2000e-6
    prices = {"a/x": DOLLAR, "b/x": DOLLAR, "h/x": Price(per_hour_usd=9.0)}
    assert estimate_usd(plan("a/x"), WORKLOAD, input_tokens=500, prices=prices) == pytest.approx(12 * each)
    both = plan("a/x", 'race("a/x", "b/x", "c/x")')
    assert estimate_usd(both, WORKLOAD, input_tokens=500, prices=prices) == pytest.approx(36 * each)
    assert estimate_usd(plan("h/x"), WORKLOAD, input_tokens=500, prices=prices) == 0


def test_both_ways_of_asking_cost_and_filling_the_cache_may_cost_more() -> None:
    made = make_plan({"a/x": "http://x"}, [Load(concurrency=2)], requests=10, blocks=1, cache_reuse=True)
    for written, more in ((None, 0.0), (1250.0, 500 * 250e-6), (100.0, 0.0)):
        price = msgspec.structs.replace(DOLLAR, cache_write_usd=written)
        about = estimate_usd(made, WORKLOAD, input_tokens=500, prices={"a/x": price})
        assert about == pytest.approx(24 * (500 * 1000e-6 + 500 * 2000e-6) + 12 * more)
    words = announce(made, WORKLOAD, Allowance(prices={"a/x": DOLLAR}), ["a/x"], input_tokens=500)
    assert words == f"This run costs about $36.00 at most, for 24 requests {FEW}"


def test_prompts_from_a_file_are_as_long_as_they_are() -> None:
    prompts = [{"messages": [{"role": "user", "content": "x" * n}]} for n in (3_971, 7_971)]
    workload = msgspec.structs.replace(WORKLOAD, prompts=prompts, output_tokens=0)
    about = estimate_usd(plan("a/x"), workload, input_tokens=1, prices={"a/x": DOLLAR})
    assert about == pytest.approx(12 * 1500 * 1000e-6)


FEW = "beside the few that find the prompts' length."


def said(most_usd: float | None, *targets: str, prices: dict[str, Price] | None = None) -> str:
    allowance = Allowance(prices={"a/x": DOLLAR} if prices is None else prices, most_usd=most_usd)
    return announce(plan(*targets), WORKLOAD, allowance, targets, input_tokens=500)


def test_a_run_that_costs_money_says_so_and_one_that_does_not_is_quiet() -> None:
    assert said(None, "a/x") == said(18.0, "a/x") == f"This run costs about $18.00 at most, for 12 requests {FEW}"
    assert said(None, "sim/groq") == said(0.0, "sim/groq") == ""


def test_a_run_that_may_cost_more_than_allowed_says_where_it_stops() -> None:
    assert said(17.99, "a/x").endswith(f"12 requests {FEW} It stops when it has cost $17.99, as --max-cost says.")
    with pytest.raises(CallerFault, match=r"the price of b/x and c/x is not known.*--price b/x=INPUT,OUTPUT"):
        said(100.0, "a/x", "b/x", "c/x")


def test_what_a_machine_costs_in_an_hour_is_said_before_it_is_measured() -> None:
    rented = {"h/x": Price(per_hour_usd=2.69), "i/x": Price(per_hour_usd=4.0)}
    hours = "By the hour, from the first request to the end of the last: h/x $2.69"
    assert said(None, "h/x", "i/x", prices=rented) == f"{hours} and i/x $4.00."
    both = said(None, "a/x", "h/x", prices={"a/x": DOLLAR, "h/x": rented["h/x"]})
    assert both == f"This run costs about $18.00 at most, for 24 requests {FEW} {hours}."


def test_a_prompt_that_nobody_counts_costs_as_much_as_was_asked_for() -> None:
    meter = Meter(Allowance(prices={"a/x": DOLLAR}), prompt_tokens=300)
    meter.add(request(input_tokens=None, output_tokens=100))
    assert meter.spent_usd == pytest.approx(300 * 1000e-6 + 100 * 2000e-6)
    meter.add(request(input_tokens=400, output_tokens=0))
    meter.add(request(input_tokens=None, output_tokens=0))
    assert meter.spent_usd == pytest.approx(0.5 + 0.4 + 0.4)


def test_the_meter_stops_a_run_once() -> None:
    meter = Meter(Allowance(prices={"a/x": DOLLAR}, most_usd=1.0))
    meter.add(request(input_tokens=400, output_tokens=200))
    meter.add(request(target="sim/groq"))
    assert meter.spent_usd == pytest.approx(0.8)
    with pytest.raises(CostReached, match=r"it had cost \$1.20, allowed were \$1.00"):
        meter.add(request(outcome="cancelled", input_tokens=None, output_tokens=0))
    meter.add(request(input_tokens=400, output_tokens=200))
    assert meter.spent_usd == pytest.approx(2.0)


def test_a_machine_by_the_hour_costs_as_long_as_it_is_asked() -> None:
    meter = Meter(Allowance(prices={"a/x": Price(per_hour_usd=3600)}, most_usd=2.5))
    for start_s, end_s in ((10, 11), (10, 12), (10, 11.5)):
        meter.add(request(start_ns=start_s * NS_PER_S, end_ns=round(end_s * NS_PER_S)))
    assert meter.spent_usd == pytest.approx(2.0)
    with pytest.raises(CostReached, match=r"it had cost \$3.00, allowed were \$2.50"):
        meter.add(request(start_ns=12 * NS_PER_S, end_ns=13 * NS_PER_S))


def test_without_a_limit_the_meter_only_counts() -> None:
    meter = Meter(Allowance(prices={"a/x": DOLLAR}))
    meter.add(request(input_tokens=10**9, output_tokens=0))
    assert meter.spent_usd == pytest.approx(1e6)


def test_bench_says_what_it_costs_and_keeps_it(split: Split, endpoint: list[str]) -> None:
    options = ["-c", "2", "-n", "4", "--output-tokens", "20", "--input-tokens", "64", "--no-html"]
    ended = split("bench", *endpoint, *options, "--price", "100,200", "--json", "out.json", "--out", "run")
    assert ended.code == 0
    assert "This run costs about $0.0624 at most, for 6 requests" in ended.words
    (row,) = split("report", "run", "--no-html", "--json", "-").json["conditions"]
    assert row["price"]["source"] == "the command line"
    tokens = row["input_tokens"], row["output_tokens"]
    assert row["cost_usd"] == pytest.approx(6 * (tokens[0] * 100e-6 + tokens[1] * 200e-6), rel=0.02)
    assert row["usd_per_million"] == pytest.approx(1e6 * row["cost_usd"] / 6 / sum(tokens), rel=0.02)


def test_bench_refuses_a_limit_that_is_none(split: Split, endpoint: list[str]) -> None:
    ended = split("bench", *endpoint, "--max-cost", "-1")
    assert ended.code == 2
    assert "--max-cost: got -1.0, expected US dollars, 0 or more" in ended.complaint


def test_bench_stops_where_enough_was_spent_and_keeps_what_was_measured(split: Split, endpoint: list[str]) -> None:
    """The requests leave the length of the answers to the provider, which gives 20 tokens."""
    options = [
        "-c",
        "2",
        "-n",
        "200",
        "--output-tokens",
        "10",
        "--body",
        '{"max_tokens": null}',
        "--input-tokens",
        "64",
    ]
    ended = split("bench", *endpoint, *options, "--price", "0,1000", "--max-cost", "1.2", "--no-html", "--out", "run")
    assert ended.code == 1
    assert "It stops when it has cost $1.20, as --max-cost says." in ended.words
    assert "the run was stopped: it had cost $1.2" in ended.words
    (row,) = split("report", "run", "--no-html", "--json", "-").json["conditions"]
    assert 55 <= row["requests"] < 65
    assert 1.2 <= row["cost_usd"] < 1.3
    assert any(
        f"ended early, after {row['requests']} of 200 requests: --max-cost was reached." in n for n in row["notes"]
    )


@pytest.mark.parametrize(
    ("most", "spent", "words"),
    [
        (None, 0.0, "at most, for 12 requests beside the few that find the prompts' length: about $96.00 a day."),
        (50.0, 0.0, "a day. It stops when all rounds have cost $50.00, as --max-cost says."),
        (50.0, 7.5, "as --max-cost says; so far they have cost $7.50."),
    ],
)
def test_what_rounds_will_cost(most: float | None, spent: float, words: str) -> None:
    allowance = Allowance(prices={"a/x": Price(input_usd=1000.0, output_usd=1000.0)}, most_usd=most)
    said = announce_rounds(plan("a/x"), WORKLOAD, allowance, ["a/x"], input_tokens=500, per_day=8, spent_usd=spent)
    assert words in said


def test_rounds_on_a_rented_machine_cost_by_the_hour() -> None:
    allowance = Allowance(prices={"a/x": Price(per_hour_usd=2.69)}, most_usd=50.0)
    said = announce_rounds(plan("a/x"), WORKLOAD, allowance, ["a/x"], input_tokens=500, per_day=8, spent_usd=0.0)
    assert said.startswith("By the hour, from the first request to the end of the last: a/x $2.69. It stops when all")


def test_rounds_without_a_price_cost_nothing_that_could_be_told() -> None:
    asked = (plan("a/x"), WORKLOAD)
    assert announce_rounds(*asked, Allowance(), ["a/x"], input_tokens=9, per_day=8, spent_usd=0.0) == ""
    with pytest.raises(CallerFault, match="the price of a/x is not known"):
        announce_rounds(*asked, Allowance(most_usd=1.0), ["a/x"], input_tokens=9, per_day=8, spent_usd=0.0)


def test_what_was_spent_before_counts() -> None:
    meter = Meter(Allowance(prices={"a/x": DOLLAR}, most_usd=1.0), spent_usd=0.95)
    with pytest.raises(CostReached, match=r"it had cost \$1.07"):
        meter.add(request(tokens=11, target="a/x"))
