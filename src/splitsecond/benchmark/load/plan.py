"""The plan of a run: which requests go to which target in which order.

Networks and providers have slow minutes, so each condition is measured in rounds that are spread
over the whole run: a round has one block of each condition, in an order drawn for that round.
Targets at the same endpoint share a lane, as they share its capacity; lanes can run side by side.
Rounds follow each other at once, or begin at even distances over a given time.

In an open loop the requests in flight grow towards their steady number over many response times. So
the warm-up of a block lasts `WARMUP_RESPONSES` times as long as one response, and its measured time
at least `WINDOW_RESPONSES` times as long.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from random import Random
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.load.arrivals import Pattern, schedule
from splitsecond.benchmark.load.block import FILLED, RequestBlock
from splitsecond.benchmark.load.calibration import Calibrated
from splitsecond.benchmark.workload.sessions import SessionSet
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.grouping import grouped

ROUNDS, MAX_ROUNDS = 6, 8
"""Fewest and most blocks of one condition by default. More rounds see smaller differences, but each
has its own warm-up. The scatter between rounds can be estimated from five on
(`summary.MIN_ROUNDS`). But of a server that is fast or slow for whole rounds, five see only one
state in one of 11 rows, six in one of 19."""
MIN_BLOCK = 5
"""Least measured requests of a block in more than `ROUNDS` blocks."""
SPREAD_APART_S, MAX_SPREAD_ROUNDS = 180, 25
"""Rounds over a given time are planned so far apart, as long as they are at most 25. Slow times of
a minute are then forgotten from one round to the next, as comparisons assume
(`sample_comparison.LEFT_OVER`)."""
WARMUP_RESPONSES, WINDOW_RESPONSES, COOLDOWN_RESPONSES = 20, 20, 5
"""In response times: the warm-up of a block of an open loop, its measured time, and its longest
cool-down."""
MAX_WARMUP_SHARE = 0.5
"""Most of the time of a block that warms up, where the duration of the run is given."""
REQUESTS = 50
TURNS = 8
"""Measured turns of each slot of sessions in a block. Each slot first fills the cache, which costs
as much as many turns."""
STARTS = 3
"""New sessions in the schedule of a block, as a multiple of those that the measured turns belong
to."""
LIMIT_ROUNDS = 1000
COOLDOWNS_PER_SLOT = 4
"""Most cool-down requests of a closed loop, per slot. About one is sent, unless a measured response
takes long."""
STREAMS_PER_PROCESS = 256
EXPECTED_S = 5


class PlannedLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One load: a closed loop at `concurrency`, or an open loop at `rate` a second or at the
    offsets `trace` (ns)."""

    concurrency: int | None = None
    rate: float | None = None
    pattern: Pattern = "poisson"
    burstiness: float = 1.0
    trace: list[int] = []

    @property
    def label(self) -> str:
        if self.concurrency is not None:
            return f"c{self.concurrency}"
        return f"r{self.rate:g}" if self.rate is not None else "trace"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    condition: str
    target: str
    load: PlannedLoad
    requests: int
    warmups: int
    cooldowns: int = 0
    cache_reuse: bool = False


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions in the given order. Lanes run at the same time; the blocks of a lane run one
    after another."""

    conditions: list[Condition]
    lanes: list[list[RequestBlock]]
    seed: int = 0

    @property
    def rounds(self) -> int:
        return max((block.round for lane in self.lanes for block in lane), default=0)

    @property
    def apart_s(self) -> float:
        """The planned time from the start of a round to that of the next one; 0: they follow each
        other at once."""
        return max((block.apart_s for lane in self.lanes for block in lane), default=0.0)

    def next_round(self, blocks: Sequence[RequestBlock], number: int) -> list[RequestBlock]:
        loads = {each.condition: each.load for each in self.conditions}
        following = [
            replace(
                block,
                round=number,
                first=block.first + block.warmups + block.requests + block.cooldowns,
                opening=False,
                due=_due(loads[block.condition], len(block.due), self.seed, number),
            )
            for block in blocks
        ]
        return _shuffled(following, self.seed, number)


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the blocks of a plan: `requests` measured ones (None: `REQUESTS`) to each target
    under each load.

    Each block begins with `warmups`: by default as many as the concurrency, or those of the warm-up
    time of an open loop. A condition has `blocks`, by default `ROUNDS`, or up to `MAX_ROUNDS` if
    blocks stay longer than their warm-up. `response_s` is the duration of the slowest target's
    response; if it is known, an open loop gets as many requests as the measured time of its blocks
    needs, at least `requests`, or without `extend` exactly `requests`. With `duration_s`, as many
    are planned as fit into this time. With `over_s`, the first round begins at once and the last
    one after this time, the others evenly between them; there are `spread_rounds` by default.

    With `cache_reuse` each block has at least one warm-up, which fills the cache. With `sessions`,
    a load is a number of sessions at a time or a rate of new ones, requests are turns, by default
    `TURNS` of each slot in a block, and warm-ups fill the cache.
    """

    requests: int | None = None
    warmups: int | None = None
    blocks: int | None = None
    seed: int = 0
    side_by_side: bool = False
    cache_reuse: bool = False
    response_s: float | None = None
    duration_s: float | None = None
    over_s: float | None = None
    extend: bool = True
    sessions: SessionSet | None = None


PLAN_BY_DEFAULT = PlanSettings()


def make_plan(
    targets: Mapping[str, str],
    loads: Sequence[PlannedLoad],
    settings: PlanSettings = PLAN_BY_DEFAULT,
) -> RunPlan:
    """Plan the requests to each target under each load. `targets` maps names to base URLs. A trace
    is sent unchanged, in one block. Raises `CallerFault` for impossible numbers."""
    _check(targets, loads, settings)
    if settings.cache_reuse and settings.warmups == 0:
        settings = replace(settings, warmups=1)
    if settings.over_s is not None and settings.blocks is None:
        settings = replace(settings, blocks=spread_rounds(settings.over_s))
    reuses = (False, True) if settings.cache_reuse else (False,)
    endpoints = grouped(
        targets, lambda name: urlsplit(targets[name]).netloc if settings.side_by_side else ""
    ).values()
    turns = len(loads) * max(map(len, endpoints)) * len(reuses)
    planned = [(load, _blocks_of(load, settings, turns)) for load in loads]
    return RunPlan(
        conditions=[
            Condition(
                condition=_condition(name, load, reuse),
                target=name,
                load=load,
                requests=sum(block.requests for block in own),
                warmups=sum(block.warmups for block in own),
                cooldowns=sum(block.cooldowns for block in own),
                cache_reuse=reuse,
            )
            for load, own in planned
            for name, reuse in product(targets, reuses)
        ],
        lanes=[_lane(planned, [*product(names, reuses)], settings.seed) for names in endpoints],
        seed=settings.seed,
    )


def spread_rounds(over_s: float) -> int:
    """Return how many rounds are planned over this time: those that lie `SPREAD_APART_S` apart, at
    least `ROUNDS`."""
    return min(max(1 + math.floor(over_s / SPREAD_APART_S), ROUNDS), MAX_SPREAD_ROUNDS)


def _blocks_of(load: PlannedLoad, settings: PlanSettings, turns: int) -> list[RequestBlock]:
    """Return the blocks of a load. `turns`: how many blocks of a round follow each other."""
    if settings.sessions is not None:
        blocks = _session_blocks(load, settings.sessions, settings, turns)
    elif settings.duration_s is not None:
        blocks = _blocks(load, _fitting(load, settings, settings.duration_s / turns))
    else:
        blocks = _blocks(load, settings)
    if settings.over_s is None:
        return blocks
    apart_s = settings.over_s / max(len(blocks) - 1, 1)
    return [replace(b, apart_s=apart_s if b.round > 1 else 0.0) for b in blocks]


def _fitting(load: PlannedLoad, settings: PlanSettings, within_s: float) -> PlanSettings:
    """Return the settings with as many requests as the blocks of a load have within this time."""
    blocks = settings.blocks or MAX_ROUNDS
    block_s, response_s = within_s / blocks, settings.response_s or EXPECTED_S
    warm_s = min(WARMUP_RESPONSES * response_s, MAX_WARMUP_SHARE * block_s)
    warmups = settings.warmups
    if warmups is None and load.rate is not None:
        warmups = max(1, math.ceil(load.rate * warm_s))
    requests = blocks * _requests_within(load, block_s, response_s, warm_s)
    return replace(settings, requests=requests, warmups=warmups, blocks=blocks, extend=False)


def _lane(
    planned: Sequence[tuple[PlannedLoad, list[RequestBlock]]],
    conditions: Sequence[tuple[str, bool]],
    seed: int,
) -> list[RequestBlock]:
    lane: list[RequestBlock] = []
    for number in range(max(len(own) for _, own in planned)):
        turn = [
            replace(
                own[number], condition=_condition(name, load, reuse), target=name, cache_reuse=reuse
            )
            for load, own in planned
            if number < len(own)
            for name, reuse in conditions
        ]
        lane += _shuffled(turn, seed, number + 1)
    return lane


def rounds_until(
    plan: RunPlan,
    lane: list[RequestBlock],
    is_precise: Callable[[str], bool] | None,
    duration_ns: int | None,
) -> Iterator[RequestBlock]:
    """Yield the blocks of `lane`, and of further rounds like its last one, until a goal is reached.

    A condition for which `is_precise` (asked from round `ROUNDS` on; None: no goal) takes no part
    in further rounds. A round begins only if it is likely to end within `duration_ns` from now, as
    long as the longest one before.
    """
    begun_ns = clock.now_ns()
    longest_ns, precise = 0, set[str]()
    blocks: list[RequestBlock] = []
    for number in range(1, LIMIT_ROUNDS + 1):
        planned = [block for block in lane if block.round == number]
        blocks = [
            b for b in planned or plan.next_round(blocks, number) if b.condition not in precise
        ]
        round_ns = clock.now_ns()
        if duration_ns is not None and round_ns + longest_ns > begun_ns + duration_ns:
            return
        yield from blocks
        longest_ns = max(longest_ns, clock.now_ns() - round_ns)
        if is_precise is not None and number >= ROUNDS:
            precise |= {block.condition for block in blocks if is_precise(block.condition)}
        if precise >= {block.condition for block in blocks}:
            return


def _shuffled(blocks: Sequence[RequestBlock], seed: int, number: int) -> list[RequestBlock]:
    """Return the blocks of a round in random order, so that no condition always follows the same
    other one."""
    return Random(f"{seed}/{number}").sample(blocks, len(blocks))


def _condition(name: str, load: PlannedLoad, reuse: bool) -> str:
    return f"{name}@{load.label}{'-reuse' if reuse else ''}"


def _check(
    targets: Mapping[str, str], loads: Sequence[PlannedLoad], settings: PlanSettings
) -> None:
    least = [
        ("requests", settings.requests, 1),
        ("warm-ups", settings.warmups, 0),
        ("blocks", settings.blocks, 1),
    ]
    least += [("concurrency", load.concurrency, 1) for load in loads]
    for name, value, minimum in least:
        if value is not None and value < minimum:
            raise CallerFault(
                f"the number of {name} is {value:,}, expected {minimum} or more", kind="bad_load"
            )
    for load in loads:
        if load.rate is not None:  # an empty schedule checks the rest
            schedule(load.pattern, rate=load.rate, requests=0, seed=0, burstiness=load.burstiness)
    if not targets or not loads:
        raise CallerFault("nothing to measure: no target, or no load", kind="bad_load")
    labels = [load.label for load in loads]
    if repeated := [label for label in set(labels) if labels.count(label) > 1]:
        raise CallerFault(f"the load {min(repeated)} is given more than once", kind="bad_load")


def _blocks(load: PlannedLoad, settings: PlanSettings) -> list[RequestBlock]:
    requests, warmups, blocks = settings.requests or REQUESTS, settings.warmups, settings.blocks
    response_s = settings.response_s
    cooldowns = 0
    if load.trace:
        requests, warmups, blocks = min(requests, len(load.trace)), 0, 1
    elif load.concurrency is not None:
        warmups = load.concurrency if warmups is None else warmups
        cooldowns = COOLDOWNS_PER_SLOT * (load.concurrency - 1)
    else:
        each = (load.rate or 0) * (EXPECTED_S if response_s is None else response_s)
        warmups = max(1, math.ceil(each * WARMUP_RESPONSES)) if warmups is None else warmups
        cooldowns = math.ceil(each * COOLDOWN_RESPONSES)
    if blocks is None:
        least = requests if load.concurrency is None else max(MIN_BLOCK, load.concurrency)
        blocks = min(max(requests // least, ROUNDS), MAX_ROUNDS)
    rounds = min(blocks, requests)
    if load.rate is not None and settings.extend and response_s is not None:
        block_s = (response_s or EXPECTED_S) * WINDOW_RESPONSES
        requests = max(requests, rounds * math.ceil(load.rate * block_s))
    planned: list[RequestBlock] = []
    first = 0
    for number in range(rounds):
        size = len(range(number, requests, rounds))
        total = warmups + size + cooldowns
        planned.append(
            RequestBlock(
                condition="",
                target="",
                requests=size,
                warmups=warmups,
                cooldowns=cooldowns,
                concurrency=load.concurrency,
                due=_due(load, total, settings.seed, number + 1),
                first=first,
                round=number + 1,
                opening=number == 0,
            )
        )
        first += total
    return planned


def _session_blocks(
    load: PlannedLoad, sessions: SessionSet, settings: PlanSettings, turns: int
) -> list[RequestBlock]:
    wait_s = sessions.mean("wait_ns") / NS_PER_S
    response_s = EXPECTED_S if settings.response_s is None else settings.response_s
    turn_s = response_s + wait_s
    length = sum(len(session.turns) for session in sessions.sessions) / len(sessions.sessions)
    slots = (
        load.concurrency
        if load.concurrency is not None
        else max(round((load.rate or 0) * length * turn_s), 1)
    )
    blocks = settings.blocks or ROUNDS
    requests = settings.requests or blocks * slots * TURNS
    if settings.duration_s is not None:
        block_s = settings.duration_s / (blocks * turns)
        requests = blocks * max(math.floor(slots * block_s / turn_s), 1)
    rounds = min(blocks, requests)
    planned: list[RequestBlock] = []
    for number in range(rounds):
        size = len(range(number, requests, rounds))
        starts = math.ceil(STARTS * size / length) + slots if load.rate is not None else 0
        planned.append(
            RequestBlock(
                condition="",
                target="",
                requests=size,
                warmups=slots,
                cooldowns=COOLDOWNS_PER_SLOT * slots,
                concurrency=slots,
                due=_due(load, starts, settings.seed, number + 1) if starts else [],
                round=number + 1,
                opening=number == 0,
                wait_s=wait_s,
                response_s=response_s,
            )
        )
    return planned


def _due(load: PlannedLoad, requests: int, seed: int, number: int) -> list[int]:
    if load.concurrency is not None:
        return []
    if load.rate is None:
        return load.trace[:requests]
    drawn = Random(f"{seed}/{load.label}/{number}").getrandbits(64)
    return schedule(
        load.pattern, rate=load.rate, requests=requests, seed=drawn, burstiness=load.burstiness
    )


def _requests_within(load: PlannedLoad, block_s: float, response_s: float, warm_s: float) -> int:
    if load.concurrency is not None:
        return max(1, 1 + math.floor(load.concurrency * (block_s / response_s - 1) - 0.5))
    return max(1, math.floor((load.rate or 0) * (block_s - warm_s - response_s)))


def expected_s(block: RequestBlock, *, ttft_s: float, response_s: float) -> float:
    if block.due and block.concurrency is None:
        return (
            block.due[min(block.warmups + block.requests, len(block.due)) - 1] / NS_PER_S
            + response_s
        )
    slots = block.concurrency or 1
    if block.wait_s:
        return response_s + (response_s + block.wait_s) * ((block.requests - 1) / slots + 1)
    ramp_s = 2 * ttft_s + response_s / (slots + 1) if block.warmups else 0.0
    return ramp_s + response_s * ((block.requests - 1) / slots + 1)


def without(plan: RunPlan, targets: Collection[str]) -> RunPlan:
    lanes = [[block for block in lane if block.target not in targets] for lane in plan.lanes]
    return replace(plan, lanes=[lane for lane in lanes if lane])


def slices(block: RequestBlock, most: int) -> list[RequestBlock]:
    """Slice `block` over the processes it needs, at most `most`."""
    if block.due and block.concurrency is None:
        span_s = max((block.due[-1] - block.due[0]) / NS_PER_S, EXPECTED_S)
        streams = math.ceil(len(block.due) * EXPECTED_S / span_s)
    else:
        streams = min(block.concurrency or 1, block.warmups + block.requests + block.cooldowns)
    return sliced(block, max(1, min(most, math.ceil(streams / STREAMS_PER_PROCESS))))


def sliced(block: RequestBlock, k: int) -> list[RequestBlock]:
    bounds = (
        block.warmups,
        block.warmups + block.requests,
        block.warmups + block.requests + block.cooldowns,
    )
    warm, measured, all_of_them = ([len(range(i, bound, k)) for i in range(k)] for bound in bounds)
    return [
        replace(
            block,
            warmups=warm[i],
            requests=measured[i] - warm[i],
            cooldowns=all_of_them[i] - measured[i],
            concurrency=None if block.concurrency is None else len(range(i, block.concurrency, k)),
            due=block.due[i::k],
            first=block.first + i * block.stride,
            stride=block.stride * k,
        )
        for i in range(k)
    ]


def with_repeated_warmups(plan: RunPlan, piloted: Mapping[str, Calibrated]) -> RunPlan:
    """Return the plan with the warm-ups that are expected to be sent, for estimates.

    A slot whose warm-up, of random length, ends before nearly all slots had a first token
    (`block.FILLED`) sends another one: rare with long responses, about two with a few tokens.
    `piloted` has the times of a request alone; under load more are repeated.
    """
    conditions = [_expected(each, piloted.get(each.target)) for each in plan.conditions]
    return replace(plan, conditions=conditions)


def _expected(condition: Condition, pilot: Calibrated | None) -> Condition:
    slots = condition.load.concurrency or 0
    if pilot is None or not pilot.ttft_ns or not pilot.response_ns or slots < 2:
        return condition
    ratio = (pilot.response_ns - pilot.ttft_ns) / pilot.ttft_ns
    warmups = round(condition.warmups * (1 + repeated_share(ratio)))
    return replace(condition, warmups=warmups)


def repeated_share(ratio: float) -> float:
    """Return the share of warm-ups that end before the slots are filled. `ratio`: time of a
    response after its first token ÷ TTFT.

    A slot starts at p and its warm-up lasts 1 + u × `ratio`, in TTFTs, with p and u uniform in 0 to
    1: it ends before `FILLED` + 1 if p + u × `ratio` is below `FILLED`.
    """
    if ratio <= FILLED:
        return FILLED - max(ratio, 0.0) / 2
    return FILLED**2 / (2 * ratio)
