"""The cost limit of a benchmark: prices from options, the announcement at the start, and where it
stops."""

import re

import msgspec
import pytest
from tests.analysis.made import request
from tests.cases import each_case

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.calibration import Calibrated
from splitsecond.benchmark.load.plan import (
    PlannedLoad,
    PlanSettings,
    RunPlan,
    make_plan,
    with_repeated_warmups,
)
from splitsecond.benchmark.runs.cost_limit import (
    announce,
    announce_duration,
    announce_rounds,
    estimate_usd,
    find_prices,
)
from splitsecond.benchmark.runs.cost_meter import CostLimit, CostMeter, CostReached, longest_tokens
from splitsecond.benchmark.workload.sessions import Session, SessionSet, Turn
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.cli.option_values import prices
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import usd

DOLLAR = Price(input_usd=1000.0, output_usd=2000.0)
WORKLOAD = Workload(run="r", output_tokens=500)


def plan(*targets: str, requests: int = 10) -> RunPlan:
    """Requests at concurrency 2 and so with 2 warm-ups, in one block."""
    return make_plan(
        dict.fromkeys(targets, "http://x"),
        [PlannedLoad(concurrency=2)],
        PlanSettings(
            requests=requests,
            blocks=1,
        ),
    )


def test_a_price_from_the_option_that_names_the_target_wins() -> None:
    known, unknown = "groq/llama-3.3-70b-versatile", "127.0.0.1:8000/mine"
    found = find_prices([known, unknown], prices(["1,2", f"{known}=0.5,0.6,0.1,0.7"], []))
    assert found[known].source == found[unknown].source == "the command line"
    assert (found[unknown].input_usd, found[unknown].output_usd, found[unknown].cached_usd) == (
        1,
        2,
        None,
    )
    assert (found[known].cached_usd, found[known].cache_write_usd) == (0.1, 0.7)


def test_price_without_a_target_is_for_targets_without_a_price() -> None:
    found = find_prices(["groq/llama-3.3-70b-versatile", "sim/groq"], prices(["1,2"], []))
    assert found["groq/llama-3.3-70b-versatile"].source.startswith("genai-prices")
    assert found["sim/groq"].input_usd == 1


def test_an_hour_and_tokens_may_both_have_a_price() -> None:
    found = find_prices(["a/x", "b/x"], prices(["a/x=1,2"], ["a/x=3", "2.69"]))
    assert (found["a/x"].per_hour_usd, found["a/x"].output_usd) == (3, 2)
    assert (found["b/x"].per_hour_usd, found["b/x"].by_token) == (2.69, False)


def test_unknown_targets_have_no_price_without_options() -> None:
    assert find_prices(["sim/groq", "127.0.0.1:8000/mine"]) == {}


@each_case(
    ("per_token", "per_hour", "words"),
    [
        (["1"], [], "--price: got '1', expected INPUT,OUTPUT"),
        (["1,2,3,4,5"], [], "--price"),
        (["1,-2"], [], "--price"),
        (["1,nan"], [], "--price"),
        (["cheap"], [], "--price"),
        (["b/y=1,2"], [], "price: got 'b/y', expected one of this run's targets: a/x"),
        ([], ["1,2"], "--price-per-hour: got '1,2', expected US dollars per hour"),
        ([], ["b/y=2"], "price_per_hour: got 'b/y', expected one of this run's targets: a/x"),
    ],
)
def test_a_price_that_makes_no_sense(per_token: list[str], per_hour: list[str], words: str) -> None:
    with pytest.raises(CallerFault) as refused:
        find_prices(["a/x"], prices(per_token, per_hour))
    assert words in str(refused.value)


def test_owned_machine_must_be_a_target() -> None:
    with pytest.raises(CallerFault, match=r"^owned: got 'b/y'"):
        find_prices(["a/x"], prices([], [], ["b/y=1500,3,450,0.15"]))


def test_the_estimate_has_warm_ups_and_every_target_of_a_policy() -> None:
    each = 500 * 1000e-6 + 500 * 2000e-6
    prices = {"a/x": DOLLAR, "b/x": DOLLAR, "h/x": Price(per_hour_usd=9.0)}
    assert estimate_usd(plan("a/x"), WORKLOAD, input_tokens=500, prices=prices) == pytest.approx(
        13 * each
    )
    both = plan("a/x", 'race("a/x", "b/x", "c/x")')
    assert estimate_usd(both, WORKLOAD, input_tokens=500, prices=prices) == pytest.approx(39 * each)
    assert estimate_usd(plan("h/x"), WORKLOAD, input_tokens=500, prices=prices) == 0


def test_estimate_with_cache_reuse_includes_cache_writes() -> None:
    made = make_plan(
        {"a/x": "http://x"},
        [PlannedLoad(concurrency=2)],
        PlanSettings(requests=10, blocks=1, cache_reuse=True),
    )
    for written, more in ((None, 0.0), (1250.0, 500 * 250e-6), (100.0, 0.0)):
        price = msgspec.structs.replace(DOLLAR, cache_write_usd=written)
        about = estimate_usd(made, WORKLOAD, input_tokens=500, prices={"a/x": price})
        assert about == pytest.approx(26 * (500 * 1000e-6 + 500 * 2000e-6) + 13 * more)
    words = announce(made, WORKLOAD, CostLimit(prices={"a/x": DOLLAR}), ["a/x"], input_tokens=500)
    assert (
        words == f"This run costs about $39.00 with full-length responses, for 26 requests "
        f"(6 of them for warm-up and cool-down) {FEW}"
    )


def test_sessions_cost_between_an_ideal_cache_and_none() -> None:
    turns = [
        Turn(input_tokens=1000, output_tokens=10),
        Turn(input_tokens=1200, output_tokens=10, shared_tokens=1000),
    ]
    sessions = SessionSet(name="s", format="f", sessions=[Session(id="a", turns=turns)])
    workload = Workload(run="r", sessions=sessions)
    made = make_plan(
        {"a/x": "http://x"},
        [PlannedLoad(concurrency=2)],
        PlanSettings(requests=10, blocks=1, sessions=sessions),
    )
    price = Price(input_usd=1000.0, output_usd=2000.0, cached_usd=100.0, cache_write_usd=1250.0)
    most, least = (
        estimate_usd(made, workload, input_tokens=512, prices={"a/x": price}, ideal=ideal)
        for ideal in (False, True)
    )
    # 2 requests fill the cache; 10 turns and 2 cool-downs are sent
    fill, answer = 1100 * 1250e-6, 10 * 2000e-6
    assert most == pytest.approx(2 * (fill + 2000e-6) + 12 * (fill + answer))
    assert least == pytest.approx(
        2 * (fill + 2000e-6) + 12 * (500 * 100e-6 + 600 * 1250e-6 + answer)
    )
    for limit, stop in ((None, ""), (16.0, " It stops at $16.00."), (20.0, "")):
        allowance = CostLimit(prices={"a/x": price}, most_usd=limit)
        words = announce(made, workload, allowance, ["a/x"], input_tokens=512)
        assert words == (
            f"This run costs about {usd(least)} with an ideal prompt cache to {usd(most)} without "
            f"one, for 14 requests "
            f"(4 of them for warm-up and cool-down) {FEW}{stop}"
        )
    times = Calibrated(workload=workload, ttft_ns=NS_PER_S, response_ns=NS_PER_S)
    said = announce_duration(made, {"a/x": times}, most, by_round=False, usd_at_least=least)
    assert f"10 of them measured, about {usd(least)} to {usd(most)}." in said


def test_a_second_estimate_says_why_it_differs_from_the_first() -> None:
    announced, times = plan("a/x"), Calibrated(workload=WORKLOAD, ttft_ns=9, response_ns=NS_PER_S)
    (condition,) = announced.conditions
    more = msgspec.structs.replace(condition, warmups=condition.warmups + 5)
    repeated = msgspec.structs.replace(announced, conditions=[more])
    for made, why in ((announced, "."), (repeated, ", with 5 more warm-ups than planned, which")):
        said = announce_duration(made, {"a/x": times}, 2.0, by_round=False, announced=announced)
        assert f"measured, about $2.00{why}" in said


def test_prompts_from_a_file_are_as_long_as_they_are() -> None:
    prompts = [{"messages": [{"role": "user", "content": "x" * n}]} for n in (3_971, 7_971)]
    workload = msgspec.structs.replace(WORKLOAD, prompts=prompts, output_tokens=0)
    about = estimate_usd(plan("a/x"), workload, input_tokens=1, prices={"a/x": DOLLAR})
    assert about == pytest.approx(13 * 1500 * 1000e-6)


FEW = "plus a few calibration requests."


def said(most_usd: float | None, *targets: str, prices: dict[str, Price] | None = None) -> str:
    allowance = CostLimit(prices={"a/x": DOLLAR} if prices is None else prices, most_usd=most_usd)
    return announce(plan(*targets), WORKLOAD, allowance, targets, input_tokens=500)


def test_only_runs_that_cost_money_announce_their_cost() -> None:
    assert (
        said(None, "a/x")
        == said(19.5, "a/x")
        == f"This run costs about $19.50 with full-length responses, for 13 requests "
        f"(3 of them for warm-up and cool-down) {FEW}"
    )
    assert said(None, "sim/groq") == said(0.0, "sim/groq") == ""


def test_run_that_mostly_holds_load_offers_other_plans() -> None:
    targets = {f"{name}/x": f"http://{name}" for name in "abcde"}
    loads = [PlannedLoad(concurrency=each) for each in (1, 8, 32)]
    made = make_plan(targets, loads, PlanSettings(requests=50, over_s=750.0))
    prices = dict.fromkeys(targets, DOLLAR)
    words = announce(made, WORKLOAD, CostLimit(prices=prices), targets, input_tokens=500)
    each = 500 * 1000e-6 + 500 * 2000e-6
    assert f"about {usd(3120 * each)} with full-length responses, for 3,120 requests" in words
    assert f"Of it, {usd(750 * each)} is for measured requests" in words
    assert f"For less: -c 1,8 costs about {usd(980 * each)}." in words
    assert f"-n 150 measures 3 times as many for about {usd((3120 + 1500) * each)}." in words


def test_run_above_its_cost_limit_announces_where_it_stops() -> None:
    assert said(17.99, "a/x").endswith(f"{FEW} It stops at $17.99.")
    with pytest.raises(CallerFault, match=r"price of b/x and c/x, which is unknown.*0 is free"):
        said(100.0, "a/x", "b/x", "c/x")


def test_price_per_hour_is_announced_before_the_run() -> None:
    rented = {"h/x": Price(per_hour_usd=2.69), "i/x": Price(per_hour_usd=4.0)}
    hours = "Cost per hour, from the first request to the end of the last: h/x $2.69"
    assert said(None, "h/x", "i/x", prices=rented) == f"{hours} and i/x $4.00."
    both = said(None, "a/x", "h/x", prices={"a/x": DOLLAR, "h/x": rented["h/x"]})
    unmeasured = "(6 of them for warm-up and cool-down)"
    assert (
        both
        == f"This run costs about $19.50 with full-length responses, for 26 requests {unmeasured} "
        f"{FEW} {hours}."
    )


def test_uncounted_prompt_costs_its_requested_length() -> None:
    meter = CostMeter(CostLimit(prices={"a/x": DOLLAR}), prompt_tokens=300)
    meter.add(request(input_tokens=None, output_tokens=100))
    assert meter.spent_usd == pytest.approx(300 * 1000e-6 + 100 * 2000e-6)
    meter.add(request(input_tokens=400, output_tokens=0))
    meter.add(request(input_tokens=None, output_tokens=0))
    assert meter.spent_usd == pytest.approx(0.5 + 0.4 + 0.4)


def test_meter_raises_at_the_limit_only_once() -> None:
    meter = CostMeter(CostLimit(prices={"a/x": DOLLAR}, most_usd=1.0))
    meter.add(request(input_tokens=400, output_tokens=200))
    meter.add(request(target="sim/groq"))
    assert meter.spent_usd == pytest.approx(0.8)
    with pytest.raises(CostReached, match=r"it has cost \$1.20, the limit is \$1.00"):
        meter.add(request(outcome="cancelled", input_tokens=None, output_tokens=0))
    meter.add(request(input_tokens=400, output_tokens=200))
    assert meter.spent_usd == pytest.approx(2.0)


def test_machine_per_hour_costs_from_first_to_last_request() -> None:
    meter = CostMeter(CostLimit(prices={"a/x": Price(per_hour_usd=3600)}, most_usd=2.5))
    for start_s, end_s in ((10, 11), (10, 12), (10, 11.5)):
        meter.add(request(start_ns=start_s * NS_PER_S, end_ns=round(end_s * NS_PER_S)))
    assert meter.spent_usd == pytest.approx(2.0)
    with pytest.raises(CostReached, match=r"it has cost \$3.00, the limit is \$2.50"):
        meter.add(request(start_ns=12 * NS_PER_S, end_ns=13 * NS_PER_S))


def test_without_a_limit_the_meter_only_counts() -> None:
    meter = CostMeter(CostLimit(prices={"a/x": DOLLAR}))
    meter.add(request(input_tokens=10**9, output_tokens=0))
    assert meter.spent_usd == pytest.approx(1e6)


@pytest.mark.parametrize(
    ("most", "spent", "words"),
    [
        (None, 0.0, "plus a few calibration requests: about $104.00 a day."),
        (50.0, 0.0, "a day. The watch stops when all rounds have cost $50.00."),
        (50.0, 7.5, "; so far they have cost $7.50."),
    ],
)
def test_rounds_announce_their_cost(most: float | None, spent: float, words: str) -> None:
    allowance = CostLimit(prices={"a/x": Price(input_usd=1000.0, output_usd=1000.0)}, most_usd=most)
    said = announce_rounds(
        plan("a/x"), WORKLOAD, allowance, ["a/x"], input_tokens=500, per_day=8, spent_usd=spent
    )
    assert words in said


def test_rounds_on_a_rented_machine_cost_by_the_hour() -> None:
    allowance = CostLimit(prices={"a/x": Price(per_hour_usd=2.69)}, most_usd=50.0)
    said = announce_rounds(
        plan("a/x"), WORKLOAD, allowance, ["a/x"], input_tokens=500, per_day=8, spent_usd=0.0
    )
    assert said.startswith(
        "Cost per hour, from the first request to the end of the last: a/x $2.69. The watch stops "
        "when all"
    )


def test_rounds_without_a_price_announce_no_cost() -> None:
    asked = (plan("a/x"), WORKLOAD)
    assert (
        announce_rounds(*asked, CostLimit(), ["a/x"], input_tokens=9, per_day=8, spent_usd=0.0)
        == ""
    )
    with pytest.raises(CallerFault, match="needs the price of a/x, which is unknown"):
        announce_rounds(
            *asked, CostLimit(most_usd=1.0), ["a/x"], input_tokens=9, per_day=8, spent_usd=0.0
        )


@each_case(
    ("ttft_ms", "response_ms", "warmups"),
    [
        (200, 5200, 203),  # long responses: few end before the slots are filled
        (200, 200, 365),  # one token: nearly each slot sends two
        (200, 300, 317),
    ],
)
def test_short_responses_need_more_warm_ups(ttft_ms: int, response_ms: int, warmups: int) -> None:
    made = make_plan({"a/x": "http://a"}, [PlannedLoad(concurrency=32)], PlanSettings(requests=50))
    assert made.conditions[0].warmups == 6 * 32
    pilot = Calibrated(
        workload=WORKLOAD, ttft_ns=ttft_ms * NS_PER_MS, response_ns=response_ms * NS_PER_MS
    )
    expected = with_repeated_warmups(made, {"a/x": pilot})
    assert expected.conditions[0].warmups == pytest.approx(warmups, abs=8)
    assert with_repeated_warmups(made, {}) == made


def test_earlier_spending_counts_towards_the_limit() -> None:
    meter = CostMeter(CostLimit(prices={"a/x": DOLLAR}, most_usd=1.0), spent_usd=0.95)
    with pytest.raises(CostReached, match=r"it has cost \$1.07"):
        meter.add(request(tokens=11, target="a/x"))


@pytest.mark.parametrize(
    ("requests", "response_s", "by_round", "proposed"),
    [(50, 60, False, True), (50, 1, False, False), (50, 60, True, False), (16, 60, False, False)],
)
def test_for_a_long_run_a_shorter_one_is_proposed(
    requests: int, response_s: int, by_round: bool, proposed: bool
) -> None:
    times = Calibrated(workload=WORKLOAD, ttft_ns=NS_PER_S, response_ns=response_s * NS_PER_S)
    said = announce_duration(plan("a/x", requests=requests), {"a/x": times}, 0.0, by_round=by_round)
    assert (" For a first look: -n 16 --output-tokens 64." in said) == proposed


@pytest.mark.parametrize(
    ("over_s", "response_s", "words", "claims"),
    [
        (None, 1, "takes about 15 s if load does not", False),
        (None, 200, "min if load", True),
        (900.0, 1, "takes about 15:02 min, in rounds 180 s apart: 138 requests", True),
        (300.0, 1, "takes about 5:02 min, in rounds 60 s apart: 138 requests", False),
    ],
)
def test_the_start_says_whether_a_claim_will_follow(
    over_s: float | None, response_s: int, words: str, claims: bool
) -> None:
    times = Calibrated(workload=WORKLOAD, ttft_ns=NS_PER_S // 4, response_ns=response_s * NS_PER_S)
    made = make_plan(
        {"a/x": "http://a"}, [PlannedLoad(concurrency=8)], PlanSettings(requests=48, over_s=over_s)
    )
    said = announce_duration(made, {"a/x": times}, 0.0, by_round=False)
    assert words in said
    assert said.endswith(" It says nothing about other minutes; for that: --over 15m.") != claims
    assert ("For less: --quick" in said) == (over_s is not None)


def test_estimate_at_concurrency_1_has_no_condition() -> None:
    times = Calibrated(workload=WORKLOAD, ttft_ns=NS_PER_S // 4, response_ns=NS_PER_S)
    one = make_plan({"a/x": "http://a"}, [PlannedLoad(concurrency=1)], PlanSettings(requests=48))
    said = announce_duration(one, {"a/x": times}, 0.0, by_round=False)
    assert re.match(r"This run takes about \d+ s: \d+ requests", said)


def leases(most_usd: float, *lanes: list[str]) -> CostMeter:
    targets = [target for lane in lanes for target in lane]
    meter = CostMeter(
        CostLimit(prices=dict.fromkeys(targets, DOLLAR), most_usd=most_usd),
        workload=WORKLOAD,
        input_tokens=0,
    )
    meter.begin(lanes)
    return meter


def block(target: str) -> RequestBlock:
    return RequestBlock(
        condition=f"{target}@c2", target=target, requests=10, warmups=2, cooldowns=4, concurrency=2
    )


def test_block_that_runs_alone_gets_all_that_is_left() -> None:
    lease = leases(9.5, ["a/x"]).lease(block("a/x"))
    assert lease is not None
    assert (lease.usd, lease.request_usd) == pytest.approx((9.5, 1.0))


def test_share_is_at_most_twice_what_the_block_can_cost() -> None:
    meter = leases(100.0, ["a/x"], ["b/x"])
    shares = [lease.usd for name in ("a/x", "b/x") if (lease := meter.lease(block(name)))]
    assert shares == pytest.approx([32.0, 32.0])


def test_blocks_at_the_same_time_share_what_is_left() -> None:
    meter = leases(9.0, ["a/x"], ["b/x"], ["c/x"])
    first, second = meter.lease(block("a/x")), meter.lease(block("b/x"))
    assert first is not None
    assert second is not None
    assert (first.usd, second.usd) == pytest.approx((3.0, 3.0))
    meter.add(request(target="a/x", condition="a/x@c2", input_tokens=0, output_tokens=500))
    meter.ended(block("a/x"), spent=False)  # gives 2 dollars back
    meter.lane_ended(["a/x"])
    third = meter.lease(block("c/x"))
    assert third is not None
    assert third.usd == pytest.approx(5.0)


def test_run_ends_when_a_lease_is_spent_or_too_small() -> None:
    meter = leases(9.0, ["a/x"])
    meter.lease(block("a/x"))
    with pytest.raises(CostReached, match=r"the next request could exceed the limit of \$9.00"):
        meter.ended(block("a/x"), spent=True)
    with pytest.raises(CostReached, match=r"the next request could exceed the limit of \$0.900"):
        leases(0.9, ["a/x"]).lease(block("a/x"))


def test_calibration_that_could_exceed_the_limit_is_not_sent() -> None:
    """Four answers of one token, and one of 500."""
    leases(1.01, ["a/x"]).check_calibration(["a/x"])
    with pytest.raises(CostReached, match=r"the first requests alone may cost \$1.01"):
        leases(1.0, ["a/x"]).check_calibration(["a/x"])


@each_case(
    ("workload", "tokens"),
    [
        (WORKLOAD, (500, 500)),
        (Workload(run="r", extra={"max_tokens": None}), (500, None)),
        (Workload(run="r", extra={"max_completion_tokens": 9}), (500, 9)),
        (Workload(run="r", output_tokens=None), (500, None)),
        (
            Workload(
                run="r", prompts=[{"messages": [], "max_tokens": 7}, {"messages": ["x" * 96]}]
            ),
            (50, 512),
        ),
    ],
)
def test_longest_tokens(workload: Workload, tokens: tuple[int, int | None]) -> None:
    assert longest_tokens(workload, 500) == tokens
