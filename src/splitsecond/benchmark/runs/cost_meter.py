"""The cost of a run while it runs, and its limit.

Costs by the token never exceed the limit: a request in flight counts as the most that it can cost
before it is sent (`load/cost_lease`). Two costs cannot be known before: a machine that is paid by
the hour costs until its last answer ends, and an answer without a limit on its tokens counts as the
longest so far.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.calibration import CHECKS
from splitsecond.benchmark.load.cost_lease import CostLease, spent_usd
from splitsecond.benchmark.load.sweep import plain
from splitsecond.benchmark.workload.sessions import SessionSet
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import Fault
from splitsecond.core.money.cost import S_PER_HOUR, usd
from splitsecond.core.observation import Observation
from splitsecond.core.wire.output_limit import LIMITS, output_limit
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.construction.expression import targets as targets_of

SPARE = 2
"""How many times its highest cost a block gets at most, in case its requests cost more."""
MARGIN = 1.05
"""A prompt may have so many times the tokens that others of its length had: words differ."""
MIN_CHARACTERS_PER_TOKEN = 2
"""Few texts have more tokens for each character."""
IMAGE_TOKENS = 2_000
"""Most tokens that providers count for an image of about a megapixel."""


class CostReached(Fault):
    """The run has reached its cost limit. Neither the caller nor the provider is at fault."""


class CostLimit(msgspec.Struct, frozen=True, kw_only=True):
    prices: dict[str, Price] = {}
    most_usd: float | None = None


class CostMeter:
    """Meter of a run's cost, and the budget that leases it to blocks. A machine that is paid by the
    hour costs from its first request on."""

    def __init__(
        self,
        allowance: CostLimit,
        spent_usd: float = 0.0,
        *,
        prompt_tokens: int = 0,
        workload: Workload | None = None,
        input_tokens: int = 0,
    ) -> None:
        """`prompt_tokens`: assumed length of a prompt whose tokens nobody has counted.
        `input_tokens`: length of synthetic prompts of the `workload`, which leases need."""
        self._allowance = allowance
        self._typical = prompt_tokens
        self._workload = workload
        self._input_tokens = input_tokens
        self._prompts: dict[str, int] = {}
        self._longest: dict[str, tuple[int, int]] = {}  # input and output tokens
        self._until_ns: dict[str, int] = {}  # a machine's cost is counted up to here
        self._leases: dict[str, float] = {}
        self._sending: set[str] = set()  # targets of the blocks with a lease
        self._lanes: list[Sequence[str]] = []
        self._stopped = False
        self.spent_usd = spent_usd

    def add(self, o: Observation) -> None:
        """Raises `CostReached` once, when the run has cost more than the limit."""
        price = self._allowance.prices.get(o.target)
        if price is None:
            return
        cost = self._by_hour(o, price.per_hour_usd or 0.0)
        if price.by_token:
            cost += self._by_token(o, price)
        self.spent_usd += cost
        if o.condition in self._leases:
            self._leases[o.condition] = max(self._leases[o.condition] - cost, 0.0)
        most = self._allowance.most_usd
        if most is not None and self.spent_usd > most and not self._stopped:
            self._stopped = True
            raise self._reached(f"the limit is {usd(most)}")

    def _reached(self, why: str) -> CostReached:
        return CostReached(
            f"the run was stopped: it has cost {usd(self.spent_usd)}, {why}; what was measured is "
            "reported",
            kind="cost_reached",
            phase="queue",
            hint="Raise the limit, or send fewer requests or shorter responses.",
        )

    def _by_token(self, o: Observation, price: Price) -> float:
        read, written = self._longest.get(o.target, (0, 0))
        self._longest[o.target] = max(read, o.input_tokens or 0), max(written, o.output_tokens or 0)
        if o.input_tokens is not None:
            self._prompts[o.target] = o.input_tokens
        return spent_usd(o, price, self._prompts.get(o.target, self._typical))

    def _by_hour(self, o: Observation, usd: float) -> float:
        until_ns = self._until_ns.get(o.target, o.start_ns)
        self._until_ns[o.target] = max(until_ns, o.end_ns)
        return usd * (self._until_ns[o.target] - until_ns) / (S_PER_HOUR * clock.NS_PER_S)

    def check_calibration(self, targets: Iterable[str]) -> None:
        """Raise `CostReached` if the first requests could exceed the limit. The answer of the last
        one is taken to have the greatest length that is allowed."""
        most = self._allowance.most_usd
        if most is None or self._workload is None:
            return
        requests = 1 if self._workload.prompts else CHECKS + 1
        usd_at_most = sum(
            requests * self._request_usd(target, answer=1) + self._request_usd(target)
            for target in dict.fromkeys(targets)
        )
        if usd_at_most > most - self.spent_usd:
            raise self._reached(
                f"the first requests alone may cost {usd(usd_at_most)}, the limit is {usd(most)}"
            )

    def begin(self, lanes: Sequence[Sequence[str]]) -> None:
        self._lanes, self._leases, self._sending = list(lanes), {}, set()

    def lane_ended(self, targets: Sequence[str]) -> None:
        self._lanes = [lane for lane in self._lanes if set(lane).isdisjoint(targets)]

    def lease(self, block: RequestBlock) -> CostLease | None:
        """Return what a block may cost: all that is left, or its share if blocks of other lanes run
        at the same time.

        Shares are by the cost of a request, and at most `SPARE` times what the block can cost.
        """
        most, each = self._allowance.most_usd, self._request_usd(block.target)
        if most is None or not each:
            return None
        left = most - self.spent_usd - sum(self._leases.values())
        waiting = [lane for lane in self._lanes if self._sending.isdisjoint(lane)]
        others = sum(
            max(map(self._request_usd, lane)) for lane in waiting if block.target not in lane
        )
        lease = left * each / (each + others)
        if len(self._lanes) > 1 and self._is_bounded:
            requests = block.warmups + block.requests + block.cooldowns
            lease = min(lease, SPARE * each * requests)
        if lease < each:
            raise self._next_exceeds(most)
        self._leases[block.condition] = lease
        self._sending.add(block.target)
        target = self._plain(block.target)
        return CostLease(
            usd=lease,
            request_usd=each,
            input_tokens=self._prompts.get(target, self._typical),
            prices={name: self._allowance.prices[name] for name in self._called(target)},
        )

    def ended(self, block: RequestBlock, *, spent: bool) -> None:
        self._leases.pop(block.condition, None)
        self._sending.discard(block.target)
        if spent and not self._stopped:
            self._stopped = True
            raise self._next_exceeds(self._allowance.most_usd or 0.0)

    def _next_exceeds(self, most: float) -> CostReached:
        return self._reached(f"and the next request could exceed the limit of {usd(most)}")

    @property
    def _is_bounded(self) -> bool:
        """Whether the number of a block's requests and the length of their answers are known."""
        workload = self._workload
        return (
            workload is not None
            and workload.sessions is None
            and longest_tokens(workload, 0)[1] is not None
        )

    def _plain(self, target: str) -> str:
        return target if self._workload is None else plain(target, self._workload)[0]

    def _called(self, target: str) -> list[str]:
        prices = self._allowance.prices
        return [name for name in called(target, prices) if name in prices]

    def _request_usd(self, target: str, *, answer: int | None = None) -> float:
        """Return the most that one request to `target` can cost by the token; 0: nothing. `answer`:
        its output tokens; None: as many as it may have."""
        if self._workload is None:
            return 0.0
        workload, input_tokens = self._workload.of_target(target, self._input_tokens)
        prompt, longest = longest_tokens(workload, input_tokens)
        total = 0.0
        for name in self._called(self._plain(target)):
            price = self._allowance.prices[name]
            if price.by_token:
                read, written = self._longest.get(name, (0, 0))
                total += price.dearest_usd(
                    input_tokens=math.ceil(max(prompt, read) * MARGIN),
                    output_tokens=answer or longest or max(written, 1),
                )
        return total


def longest_tokens(workload: Workload, input_tokens: int) -> tuple[int, int | None]:
    """Return the most tokens of a prompt, by estimate, and of an answer; None: without limit."""
    output_tokens = workload.output_tokens
    if workload.sessions is not None:
        input_tokens, output_tokens = _longest_turns(workload.sessions, output_tokens)
    elif workload.traced:
        input_tokens = max(each.input_tokens or 0 for each in workload.traced)
        output_tokens = max(each.output_tokens or 0 for each in workload.traced) or output_tokens
    elif workload.prompts:
        input_tokens, output_tokens = _longest_prompts(workload.prompts, output_tokens)
    input_tokens *= workload.inputs or 1
    if workload.images is not None:
        input_tokens += IMAGE_TOKENS * workload.images.count
    if workload.extra.keys() & LIMITS.keys():
        output_tokens = output_limit(workload.extra)
    return input_tokens, output_tokens


def _longest_turns(sessions: SessionSet, output_tokens: int | None) -> tuple[int, int]:
    turns = [turn for each in sessions.sessions for turn in each.all_turns()]
    return (
        max(turn.input_tokens for turn in turns),
        max(output_tokens or 0, *(turn.output_tokens for turn in turns)),
    )


def _longest_prompts(
    prompts: Sequence[Mapping[str, Any]], output_tokens: int | None
) -> tuple[int, int | None]:
    texts = [msgspec.json.encode(prompt["messages"]) for prompt in prompts]
    limits = [output_limit(prompt) or output_tokens for prompt in prompts]
    return (
        max(len(text) // MIN_CHARACTERS_PER_TOKEN for text in texts),
        None if None in limits else max(filter(None, limits), default=None),
    )


def called(target: str, prices: Container[str]) -> list[str]:
    """Return the targets that a call to `target` may be sent to: those of a policy, or itself."""
    return [target] if target in prices or "(" not in target else targets_of(parse(target))
