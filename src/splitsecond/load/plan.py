"""Which requests go where, in which order: decided before the first one leaves.

Networks and providers have slow minutes. Targets that are measured one after another each meet their own, so each
condition's requests are split into blocks, and the blocks of all targets alternate: rounds in which every target
appears once, in an order drawn anew for each. Loads come in the order asked. Targets at different endpoints may also
run side by side, each in its own lane; those at the same endpoint share one, as they would share its capacity.

What a provider's prompt cache saves is the difference between two conditions of one target: prompts that begin
differently, and prompts that begin alike. Their blocks alternate as those of two targets do, so that a slow minute
meets both.

A block has a ramp and a tail that count for nothing, so it is not made shorter than the concurrency.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from random import Random
from urllib.parse import urlsplit

import msgspec

from splitsecond.clock import NS_PER_S
from splitsecond.errors import CallerFault
from splitsecond.load.arrivals import Pattern, schedule
from splitsecond.load.block import Block

ROUNDS = 4
"""Blocks of one condition, at most, where nobody asked for more."""
LEAST_BLOCK = 5
LEAST_OPEN_S = 10
OPEN_WARMUP_S = 5
STREAMS_PER_PROCESS = 256
EXPECTED_S = 5
"""How long an open loop's request is taken to last, when the number of processes is chosen."""


class Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How hard to press: a closed loop at `concurrency`, or an open loop at `rate` a second, or at `trace` (ns)."""

    concurrency: int | None = None
    rate: float | None = None
    pattern: Pattern = "poisson"
    burstiness: float = 1.0
    trace: list[int] = []

    @property
    def label(self) -> str:
        """What tells this load from the others in a condition's name: "c8", "r2.5", "trace"."""
        if self.concurrency is not None:
            return f"c{self.concurrency}"
        return f"r{self.rate:g}" if self.rate is not None else "trace"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One row to come: a target under a load, with what will be sent. `cache_reuse`: by prompts that begin alike."""

    condition: str
    target: str
    load: Load
    requests: int
    warmups: int
    cache_reuse: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`conditions` in the order asked; `lanes` run at the same time, the blocks of one lane one after another."""

    conditions: list[Condition]
    lanes: list[list[Block]]


def make_plan(
    targets: Mapping[str, str],
    loads: Sequence[Load],
    *,
    requests: int,
    warmups: int | None = None,
    blocks: int | None = None,
    seed: int = 0,
    side_by_side: bool = False,
    cache_reuse: bool = False,
) -> Plan:
    """The plan for `requests` measured requests to each target under each load.

    `targets` maps names to base URLs. `warmups` are sent at the start of each block: by default as many as the
    concurrency, or for an open loop its first seconds. `blocks` of each condition: by default up to four, one where
    it is alone in its lane. With `cache_reuse` each target has two conditions under each load, the second by prompts
    that begin alike; then at least one warm-up is sent, which fills the cache (not before a trace, which is sent as
    it is). Raises `CallerFault` for what makes no sense.
    """
    _check(targets, loads, requests=requests, warmups=warmups, blocks=blocks)
    ways = (False, True) if cache_reuse else (False,)
    if cache_reuse and warmups == 0:
        warmups = 1
    endpoints: dict[str, list[str]] = {}
    for name, base_url in targets.items():
        endpoints.setdefault(urlsplit(base_url).netloc if side_by_side else "", []).append(name)
    lanes: list[list[Block]] = []
    conditions: dict[str, Condition] = {}
    for names in endpoints.values():
        lane: list[Block] = []
        for load in loads:
            asked = [(name, reuse, _condition(name, load, reuse)) for name in names for reuse in ways]
            rounds = _blocks(load, requests, warmups, 1 if blocks is None and len(asked) == 1 else blocks, seed)
            order = Random(f"{seed}/{load.label}")
            for block in rounds:
                for name, reuse, condition in order.sample(asked, len(asked)):
                    lane.append(msgspec.structs.replace(block, condition=condition, target=name, cache_reuse=reuse))
            for name, reuse, condition in asked:
                conditions[condition] = Condition(
                    condition=condition,
                    target=name,
                    load=load,
                    requests=sum(block.requests for block in rounds),
                    warmups=sum(block.warmups for block in rounds),
                    cache_reuse=reuse,
                )
        lanes.append(lane)
    in_order = [conditions[_condition(name, load, reuse)] for load in loads for name in targets for reuse in ways]
    return Plan(conditions=in_order, lanes=lanes)


def _condition(name: str, load: Load, reuse: bool) -> str:
    return f"{name}@{load.label}{'-reuse' if reuse else ''}"


def _check(
    targets: Mapping[str, str], loads: Sequence[Load], *, requests: int, warmups: int | None, blocks: int | None
) -> None:
    least = [("requests", requests, 1), ("warm-ups", warmups, 0), ("blocks", blocks, 1)]
    least += [("concurrency", load.concurrency, 1) for load in loads]
    for name, value, minimum in least:
        if value is not None and value < minimum:
            raise CallerFault(f"the number of {name} is {value}, expected {minimum} or more", kind="bad_load")
    for load in loads:
        if load.rate is not None:  # an empty schedule checks the rest
            schedule(load.pattern, rate=load.rate, requests=0, seed=0, burstiness=load.burstiness)
    if not targets or not loads:
        raise CallerFault("nothing to measure: no target, or no load", kind="bad_load")
    labels = [load.label for load in loads]
    if repeated := [label for label in set(labels) if labels.count(label) > 1]:
        raise CallerFault(f"the load {min(repeated)} is asked for more than once", kind="bad_load")


def _blocks(load: Load, requests: int, warmups: int | None, blocks: int | None, seed: int) -> list[Block]:
    """The blocks of one load, alike for every target, which also get the same arrivals."""
    if load.trace:
        requests, warmups, blocks = min(requests, len(load.trace)), 0, 1
    sizes = _sizes(load, requests, blocks)
    made: list[Block] = []
    first = 0
    for number, size in enumerate(sizes):
        ramp = _warmups(load, size) if warmups is None else warmups
        made.append(
            Block(
                condition="",
                target="",
                requests=size,
                warmups=ramp,
                concurrency=load.concurrency,
                due=_due(load, ramp + size, Random(f"{seed}/{load.label}/{number}").getrandbits(64)),
                first=first,
                opening=number == 0,
            )
        )
        first += ramp + size
    return made


def _sizes(load: Load, requests: int, blocks: int | None) -> list[int]:
    least = load.concurrency if load.concurrency is not None else math.ceil((load.rate or 0) * LEAST_OPEN_S)
    if blocks is None:
        blocks = min(ROUNDS, requests // max(least, LEAST_BLOCK))
    blocks = max(1, min(blocks, requests))
    return [len(range(number, requests, blocks)) for number in range(blocks)]


def _warmups(load: Load, requests: int) -> int:
    if load.concurrency is not None:
        return load.concurrency
    return max(1, min(math.ceil((load.rate or 0) * OPEN_WARMUP_S), requests // 2))


def _due(load: Load, requests: int, seed: int) -> list[int]:
    if load.concurrency is not None:
        return []
    if load.rate is None:
        return load.trace[:requests]
    return schedule(load.pattern, rate=load.rate, requests=requests, seed=seed, burstiness=load.burstiness)


def without(plan: Plan, targets: Collection[str]) -> Plan:
    """`plan` without the blocks of these targets. Their conditions stay in it, so that their rows are there, empty."""
    lanes = [[block for block in lane if block.target not in targets] for lane in plan.lanes]
    return Plan(conditions=plan.conditions, lanes=[lane for lane in lanes if lane])


def slices(block: Block, most: int) -> list[Block]:
    """`block` dealt out to as many processes as it needs, `most` at most: each gets every k-th request and slot."""
    if block.due:
        span_s = max((block.due[-1] - block.due[0]) / NS_PER_S, EXPECTED_S)
        streams = math.ceil(len(block.due) * EXPECTED_S / span_s)
    else:
        streams = min(block.concurrency or 1, block.warmups + block.requests)
    k = max(1, min(most, math.ceil(streams / STREAMS_PER_PROCESS)))
    total = block.warmups + block.requests
    return [
        msgspec.structs.replace(
            block,
            warmups=len(range(i, block.warmups, k)),
            requests=len(range(i, total, k)) - len(range(i, block.warmups, k)),
            concurrency=None if block.concurrency is None else len(range(i, block.concurrency, k)),
            due=block.due[i::k],
            first=block.first + i * block.stride,
            stride=block.stride * k,
        )
        for i in range(k)
    ]
