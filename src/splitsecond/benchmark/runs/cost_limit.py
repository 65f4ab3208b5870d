"""The cost of a run before it starts: the prices of its targets, an estimate, and a limit.
`cost_meter` keeps the limit while it runs.

A price that the caller gives for a target comes first, then the catalogue and the public list, then
the caller's price for all other targets. So a private contract wins, and a private endpoint can
have a price.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.calibration import Calibrated
from splitsecond.benchmark.load.plan import COOLDOWNS_PER_SLOT, Condition, RunPlan, expected_s
from splitsecond.benchmark.rows.round_spread import CLAIM, CLAIM_APART_S
from splitsecond.benchmark.runs.cost_meter import CostLimit, called
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.prices import prices
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import usd
from splitsecond.core.validation import wrong
from splitsecond.core.wire.output_limit import output_limit
from splitsecond.core.wording import ENGINE, SIMULATED, counted_as, listed
from splitsecond.log.statistics.summary import advised, needed

LONG_S, FEW = 180, 16
"""Seconds of a run from which on a shorter one is proposed, and the requests of each of its
rows."""
CHARACTERS_PER_TOKEN = 4
MORE = 3
"""Times as many measured requests, which are offered where most requests are not measured."""


def find_prices(
    targets: Iterable[str], own_prices: Mapping[str, Price] | None = None
) -> dict[str, Price]:
    """Return the prices of the targets that have one; in `own_prices`, "" is the price of targets
    without another.

    Raises `CallerFault` if `own_prices` names a target that is not in `targets`.
    """
    names = list(targets)
    by_name = dict(own_prices or {})
    others = by_name.pop("", None)
    for name, price in by_name.items():
        if name not in names:
            setting = (
                "price"
                if price.per_hour_usd is None
                else "price_per_hour"
                if price.owned is None
                else "owned"
            )
            raise wrong(setting, name, f"one of this run's targets: {listed(names)}")
    by_target = {
        target: price for target, price in prices(names, by_name).items() if price is not None
    }
    return by_target | (
        {target: others for target in names if target not in by_target} if others else {}
    )


def tokens_of_prompts(workload: Workload, input_tokens: int) -> int:
    """Estimate the tokens of a prompt: `input_tokens` for synthetic ones, the mean of a trace or of
    sessions, by the characters of a file."""
    if workload.traced:
        return sum(each.input_tokens or 0 for each in workload.traced) // len(workload.traced)
    if workload.sessions is not None:
        return round(workload.sessions.mean("input_tokens"))
    if workload.synthetic:
        variants = workload.variants.values()
        return input_tokens * max([workload.inputs or 1, *(each.batch or 1 for each in variants)])
    sizes = [len(msgspec.json.encode(prompt["messages"])) for prompt in workload.prompts]
    return sum(sizes) // len(sizes) // CHARACTERS_PER_TOKEN


def estimate_usd(
    plan: RunPlan,
    workload: Workload,
    *,
    input_tokens: int,
    prices: Mapping[str, Price],
    ideal: bool = False,
) -> float:
    """Estimate the cost of the plan's tokens, warm-ups and cool-downs included, on the high side.

    Every response has its full length, each slot sends one cool-down, a policy sends each call to
    all of its targets, and prompts that begin alike fill a cache each time and never hit it. With
    `ideal`, turns of sessions find all in the cache that they can.
    """
    sessions = workload.sessions
    input_tokens = tokens_of_prompts(workload, input_tokens)
    cached = round(sessions.mean("shared_tokens")) if sessions is not None and ideal else 0
    limit = output_limit(workload.extra)
    if limit is None and workload.traced:
        limit = math.ceil(
            sum(each.output_tokens or 0 for each in workload.traced) / len(workload.traced)
        )
    if limit is None and sessions is not None:
        limit = math.ceil(sessions.mean("output_tokens"))
    output_tokens = limit or workload.output_tokens or 0

    def each(price: Price, condition: Condition) -> float:
        count, written = _count(condition), condition.cache_reuse or sessions is not None
        fills = condition.warmups if sessions is not None else 0
        if cached:
            new = input_tokens - cached
            one = price.cost_usd(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=cached,
                cache_write_tokens=new,
            )
        elif written:
            one = price.dearest_usd(input_tokens=input_tokens, output_tokens=output_tokens)
        else:
            one = price.cost_usd(input_tokens=input_tokens, output_tokens=output_tokens)
        fill = price.dearest_usd(input_tokens=input_tokens, output_tokens=1)
        return (count - fills) * one + fills * fill

    return sum(
        each(price, condition)
        for condition in plan.conditions
        for name in called(condition.target, prices)
        if (price := prices.get(name)) is not None and price.by_token
    )


def announce(
    plan: RunPlan,
    workload: Workload,
    allowance: CostLimit,
    targets: Iterable[str],
    *,
    input_tokens: int,
) -> str:
    """Return what the run will cost, in words; "" if it costs nothing.

    A plan that may cost more than the limit still starts: responses may be shorter than asked, and
    the `CostMeter` stops it. Raises `CallerFault` if a limit is set and a price is unknown.
    """
    _check_known(allowance, targets)
    most = allowance.most_usd
    if not plan.lanes:  # the length of a search is unknown
        return ""
    estimate = partial(
        estimate_usd, workload=workload, input_tokens=input_tokens, prices=allowance.prices
    )
    about, rent = estimate(plan), _rent(allowance.prices)
    if not about:
        return rent
    stop = f" It stops at {usd(most)}." if most is not None and about > most else ""
    cost = f"about {usd(about)} with full-length responses"
    if workload.sessions is not None:
        least = usd(estimate(plan, ideal=True))
        cost = f"about {least} with an ideal prompt cache to {usd(about)} without one"
    words = f"This run costs {cost}, for {_requests(plan)}.{stop}"
    measured = sum(each.requests for each in plan.conditions)
    few = workload.sessions is None and sum(map(_count, plan.conditions)) > 2 * measured
    shares = _shares(plan, about, estimate) if few else ""
    return " ".join(filter(None, (words, shares, rent)))


def _shares(plan: RunPlan, about: float, cost: Callable[[RunPlan], float]) -> str:
    """Return what part of the cost is for measured requests, and plans with a better ratio.

    Warm-up and cool-down grow with the concurrency and the rounds, not with the measured requests.
    """

    def of(conditions: Sequence[Condition]) -> float:
        return cost(replace(plan, conditions=list(conditions)))

    measured = of([replace(each, warmups=0, cooldowns=0) for each in plan.conditions])
    words = (
        f"Of it, {usd(measured)} is for measured requests; the others build up the load and hold "
        "it."
    )
    loads = sorted({each.load.concurrency or 0 for each in plan.conditions})
    if len(loads) > 1 and loads[0]:
        fewer = of([each for each in plan.conditions if each.load.concurrency != loads[-1]])
        lighter = ",".join(map(str, loads[:-1]))
        words += f" For less: -c {lighter} costs about {usd(fewer)}."
    requests = MORE * max(each.requests for each in plan.conditions)
    return (
        f"{words} For a better ratio: -n {requests} measures {MORE} times as many for about "
        f"{usd(about + (MORE - 1) * measured)}."
    )


def _rent(prices: Mapping[str, Price]) -> str:
    rented = [
        f"{name} {usd(price.per_hour_usd)}" for name, price in prices.items() if price.per_hour_usd
    ]
    return (
        f"Cost per hour, from the first request to the end of the last: {listed(rented)}."
        if rented
        else ""
    )


def announce_rounds(
    plan: RunPlan,
    workload: Workload,
    allowance: CostLimit,
    targets: Iterable[str],
    *,
    input_tokens: int,
    per_day: float,
    spent_usd: float,
) -> str:
    """Return what the rounds of a watch will cost, in words. Raises as `announce` does."""
    _check_known(allowance, targets)
    most, rent = allowance.most_usd, _rent(allowance.prices)
    about = estimate_usd(plan, workload, input_tokens=input_tokens, prices=allowance.prices)
    sentences = []
    if about:
        a_day = f"{_requests(plan)}: about {usd(about * per_day)} a day."
        sentences.append(f"Each round costs about {usd(about)}, for {a_day}")
    sentences += [rent] if rent else []
    if sentences and most is not None:
        so_far = f"; so far they have cost {usd(spent_usd)}" if spent_usd else ""
        sentences.append(f"The watch stops when all rounds have cost {usd(most)}{so_far}.")
    return " ".join(sentences)


def _check_known(allowance: CostLimit, targets: Iterable[str]) -> None:
    if allowance.most_usd is None:
        return
    unknown = [
        t for t in targets if t not in allowance.prices and not t.startswith((SIMULATED, ENGINE))
    ]
    if unknown:
        raise CallerFault(
            f"a cost limit needs the price of {listed(unknown)}, which is unknown",
            kind="no_price",
            hint="Give its price in US dollars per million tokens; 0 is free.",
        )


def _requests(plan: RunPlan) -> str:
    """Return the number of requests in words, without calibration: nobody knows yet how much it
    needs."""
    count = sum(map(_count, plan.conditions))
    unmeasured = count - sum(condition.requests for condition in plan.conditions)
    words = counted_as(count, "request")
    if unmeasured:
        words += f" ({unmeasured:,} of them for warm-up and cool-down)"
    return f"{words} plus a few calibration requests"


def _count(condition: Condition) -> int:
    return condition.requests + condition.warmups + condition.cooldowns // COOLDOWNS_PER_SLOT


LOADED = " if load does not slow responses down, otherwise often 1.5 times that"
"""The pilot sends one request at a time: runs of simulated providers at concurrency 1 to 32 took
1.1 to 1.7 times as long as it said."""


def announce_duration(
    plan: RunPlan,
    piloted: Mapping[str, Calibrated],
    usd_at_most: float,
    *,
    by_round: bool,
    usd_at_least: float | None = None,
    announced: RunPlan | None = None,
) -> str:
    """Return about how long the run takes, with how many requests and at what cost; and what a run
    takes that says anything about other minutes, if this one does not.

    `usd_at_least`: None: only the highest cost is estimated. `piloted` has the response times of
    targets, each measured alone. `announced`: the plan whose cost the user has read, without the
    warm-ups that the response times add. `by_round`: the words are about one round, because their
    number is not known.
    """
    busy_s = max((_expected_s(lane, piloted) for lane in plan.lanes), default=0.0) / max(
        plan.rounds, 1
    )
    apart_s = max(busy_s, plan.apart_s)
    seconds = busy_s if by_round else busy_s + apart_s * (plan.rounds - 1)
    rounds = max(plan.rounds, 1) if by_round else 1
    count = round(sum(map(_count, plan.conditions)) / rounds)
    measured = round(sum(condition.requests for condition in plan.conditions) / rounds)
    spread = f", in rounds {apart_s:.0f} s apart" if plan.apart_s else ""
    traced = any(condition.load.trace for condition in plan.conditions)
    claim = (
        ""
        if apart_s >= CLAIM_APART_S or traced
        else f" It says nothing about other minutes; for that: {CLAIM}."
    )
    least = "about" if usd_at_least is None else f"about {usd(usd_at_least / rounds)} to"
    cost = f", {least} {usd(usd_at_most / rounds)}" if usd_at_most else ""
    more = "" if by_round or traced else _p95_advice(plan)
    why = _added_warm_ups(announced, count) if cost else ""
    takes = f"{'A round' if by_round else 'This run'} takes about {_duration(seconds)}{spread}"
    return (
        f"{takes}{_if_loaded(plan, busy_s)}: {counted_as(count, 'request')}, {measured:,} of them "
        f"measured{cost}{why}.{_shorter(plan, seconds, by_round=by_round)}{more}{claim}"
    )


def _if_loaded(plan: RunPlan, busy_s: float) -> str:
    """Return on what the estimate depends, for a plan whose rounds take about `busy_s`."""
    alone = all(each.load.concurrency == 1 for each in plan.conditions)
    return "" if alone or plan.apart_s > 2 * busy_s else LOADED


def _added_warm_ups(announced: RunPlan | None, count: int) -> str:
    added = 0 if announced is None else count - sum(map(_count, announced.conditions))
    if added <= 0:
        return ""
    return f", with {counted_as(added, 'more warm-up')} than planned, which hold the load"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


def _p95_advice(plan: RunPlan) -> str:
    fewest = min((condition.requests for condition in plan.conditions), default=0)
    few = fewest < needed(0.95, plan.rounds)
    return f" A p95 gets no interval; for one: -n {advised(0.95)}." if few else ""


def _shorter(plan: RunPlan, seconds: float, *, by_round: bool) -> str:
    """Return how to get a first look in less time; "" if the run is short."""
    if plan.apart_s:
        return (
            " For less: --quick, a first look without pauses. Ctrl-C keeps what was "
            "measured until then."
        )
    many = any(condition.requests > FEW for condition in plan.conditions)
    long = seconds >= LONG_S and many and not by_round
    return f" For a first look: -n {FEW} --output-tokens 64." if long else ""


def _expected_s(lane: Iterable[RequestBlock], piloted: Mapping[str, Calibrated]) -> float:
    return sum(
        expected_s(
            block,
            ttft_s=(pilot.ttft_ns or 0) / clock.NS_PER_S,
            response_s=(pilot.response_ns or 0) / clock.NS_PER_S,
        )
        for block in lane
        if (pilot := piloted.get(block.target))
    )
