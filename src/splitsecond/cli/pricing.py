"""What a benchmark will cost, what it has cost so far, and where to stop: `--price`, `--price-per-hour`, `--max-cost`.

A price comes from the option that names the target, else from the catalogue and the public list, else from the option
that names none: so an endpoint of one's own can have one, and a contract of one's own wins.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from splitsecond import clock
from splitsecond.analysis.cost import S_PER_HOUR, cost_usd, usd
from splitsecond.analysis.wording import ENGINE, SIMULATED, counted_as, listed
from splitsecond.catalog.price import Price
from splitsecond.catalog.prices import prices
from splitsecond.cli.asking import wrong
from splitsecond.errors import CallerFault, Fault
from splitsecond.load.plan import Plan
from splitsecond.load.workload import LENGTH_FIELDS, Workload
from splitsecond.policy.expression import parse
from splitsecond.policy.expression import targets as targets_of
from splitsecond.timing.observation import Observation

RATES = ("input_usd", "output_usd", "cached_usd", "cache_write_usd")
CHARACTERS_PER_TOKEN = 4
"""Of a prompt from a file, before anyone has counted its tokens."""


class CostReached(Fault):
    """The run has cost what it was allowed to: neither the caller's doing nor the provider's."""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of a run's targets, and what it may cost (None: whatever it costs)."""

    prices: dict[str, Price] = {}
    most_usd: float | None = None


class Meter:
    """Counts the money while a run goes on. A machine that is paid by the hour costs from its first request on."""

    def __init__(self, allowance: Allowance, spent_usd: float = 0.0, *, prompt_tokens: int = 0) -> None:
        """`spent_usd` counts as spent already. `prompt_tokens`: what a prompt counts as that nobody has counted."""
        self._allowance = allowance
        self._typical = prompt_tokens
        self._prompts: dict[str, int] = {}
        self._until_ns: dict[str, int] = {}  # until when a machine has been counted
        self._stopped = False
        self.spent_usd = spent_usd

    def add(self, o: Observation) -> None:
        """One attempt has ended. Raises `CostReached` once, when the run has cost more than allowed."""
        price = self._allowance.prices.get(o.target)
        if price is None:
            return
        self.spent_usd += self._by_hour(o, price.per_hour_usd or 0.0)
        if price.by_token:
            self.spent_usd += self._by_token(o, price)
        most = self._allowance.most_usd
        if most is not None and self.spent_usd > most and not self._stopped:
            self._stopped = True
            raise CostReached(
                f"the run was stopped: it had cost {usd(self.spent_usd)}, allowed were {usd(most)}; "
                "what was measured is reported",
                kind="cost_reached",
                phase="queue",
                hint="Allow more with --max-cost, or ask for less with -n, -c or --output-tokens.",
            )

    def _by_token(self, o: Observation, price: Price) -> float:
        if o.input_tokens is not None:
            self._prompts[o.target] = o.input_tokens
        cost = cost_usd(o, price)
        if cost is None:
            prompt = self._prompts.get(o.target, self._typical)
            cost = price.cost_usd(input_tokens=prompt, output_tokens=o.output_tokens or 0)
        return cost

    def _by_hour(self, o: Observation, usd: float) -> float:
        """What the machine of `o` cost since it was last counted."""
        until_ns = self._until_ns.get(o.target, o.start_ns)
        self._until_ns[o.target] = max(until_ns, o.end_ns)
        return usd * (self._until_ns[o.target] - until_ns) / (S_PER_HOUR * clock.NS_PER_S)


def find_prices(targets: Iterable[str], per_token: Sequence[str], per_hour: Sequence[str]) -> dict[str, Price]:
    """The prices of the targets that have one. `per_token` and `per_hour` are the options as they were written.

    Raises `CallerFault` for an option that makes no sense, or names no target of this run.
    """
    wanted = list(targets)
    given = _given(wanted, per_token, per_hour)
    others = given.pop("", None)
    found = {target: price for target, price in prices(wanted, given).items() if price is not None}
    return found | ({target: others for target in wanted if target not in found} if others else {})


def _given(targets: Sequence[str], per_token: Sequence[str], per_hour: Sequence[str]) -> dict[str, Price]:
    today = clock.wall_time().date().isoformat()
    found: dict[str, Price] = {}
    for option, texts in (("--price", per_token), ("--price-per-hour", per_hour)):
        for text in texts:
            target, _, figures = text.rpartition("=")
            if target and target not in targets:
                raise wrong(option, text, f"one of this run's targets before the =: {listed(targets)}")
            before = found.get(target, Price(as_of=today, source="the command line"))
            if option == "--price":
                rates = _figures(option, text, figures, 2, len(RATES))
                found[target] = msgspec.structs.replace(before, **dict(zip(RATES, rates, strict=False)))
            else:
                found[target] = msgspec.structs.replace(before, per_hour_usd=_figures(option, text, figures, 1, 1)[0])
    return found


def _figures(option: str, text: str, figures: str, least: int, most: int) -> list[float]:
    try:
        found = [float(figure) for figure in figures.split(",")]
    except ValueError:
        found = []
    if not (least <= len(found) <= most and all(0 <= figure < 1e9 for figure in found)):
        expected = (
            "US dollars an hour, such as 2.69" if most == 1 else "INPUT,OUTPUT[,CACHED[,CACHE WRITE]] in US dollars"
        )
        raise wrong(option, text, f"{expected}; for one target TARGET=…")
    return found


def tokens_of_prompts(workload: Workload, asked: int) -> int:
    """About how long the prompts are: as `asked`; those from a file as long as they are."""
    if workload.synthetic:
        return asked
    sizes = [len(msgspec.json.encode(prompt["messages"])) for prompt in workload.prompts]
    return sum(sizes) // len(sizes) // CHARACTERS_PER_TOKEN


def estimate_usd(plan: Plan, workload: Workload, *, input_tokens: int, prices: Mapping[str, Price]) -> float:
    """About the most that the plan will cost by the token, warm-ups included: as if every answer had its full length.

    A policy is taken to send each call to all of its targets. Prompts that begin alike are taken to fill a cache each
    time and to find nothing in it.
    """
    input_tokens = tokens_of_prompts(workload, input_tokens)
    lengths = [workload.extra[field] for field in LENGTH_FIELDS if isinstance(workload.extra.get(field), int)]
    output_tokens = max(lengths, default=workload.output_tokens or 0)

    def each(name: str, written: int) -> float:
        price = prices.get(name)
        if price is None or not price.by_token:
            return 0.0
        return price.cost_usd(input_tokens=input_tokens, output_tokens=output_tokens, cache_write_tokens=written)

    return sum(
        (condition.requests + condition.warmups)
        * sum(
            max(each(name, 0), each(name, input_tokens if condition.cache_reuse else 0))
            for name in _called(condition.target, prices)
        )
        for condition in plan.conditions
    )


def announce(plan: Plan, workload: Workload, allowance: Allowance, targets: Iterable[str], *, input_tokens: int) -> str:
    """What to say of money before the run starts; "" where it costs nothing.

    A plan that may cost more than allowed is begun: answers may be shorter than asked, and the `Meter` stops it. Raises
    `CallerFault` where what it costs cannot be told.
    """
    _check_known(allowance, targets)
    most = allowance.most_usd
    if not plan.lanes:  # of a search nobody knows how long it is
        return ""
    about = estimate_usd(plan, workload, input_tokens=input_tokens, prices=allowance.prices)
    rent = _rent(allowance.prices)
    if not about:
        return rent
    stop = f" It stops when it has cost {usd(most)}, as --max-cost says." if most is not None and about > most else ""
    words = f"This run costs about {usd(about)} at most, for {_requests(plan)} beside the few that find the prompts' "
    return " ".join(filter(None, (f"{words}length.{stop}", rent)))


def _rent(prices: Mapping[str, Price]) -> str:
    """What machines cost while a run lasts; "" where none is rented."""
    rented = [f"{name} {usd(price.per_hour_usd)}" for name, price in prices.items() if price.per_hour_usd]
    return f"By the hour, from the first request to the end of the last: {listed(rented)}." if rented else ""


def announce_rounds(
    plan: Plan,
    workload: Workload,
    allowance: Allowance,
    targets: Iterable[str],
    *,
    input_tokens: int,
    per_day: float,
    spent_usd: float,
) -> str:
    """The same of a plan that is carried out again and again, `per_day` times; earlier rounds have cost `spent_usd`.

    Raises `CallerFault` as `announce` does.
    """
    _check_known(allowance, targets)
    most, rent = allowance.most_usd, _rent(allowance.prices)
    about = estimate_usd(plan, workload, input_tokens=input_tokens, prices=allowance.prices)
    said = []
    if about:
        a_day = f"{_requests(plan)} beside the few that find the prompts' length: about {usd(about * per_day)} a day."
        said.append(f"Each round costs about {usd(about)} at most, for {a_day}")
    said += [rent] if rent else []
    if said and most is not None:
        so_far = f"; so far they have cost {usd(spent_usd)}" if spent_usd else ""
        said.append(f"It stops when all rounds have cost {usd(most)}, as --max-cost says{so_far}.")
    return " ".join(said)


def _check_known(allowance: Allowance, targets: Iterable[str]) -> None:
    """Raises `CallerFault` where a limit is set and a price is not known."""
    if allowance.most_usd is None:
        return
    unknown = [t for t in targets if t not in allowance.prices and not t.startswith((SIMULATED, ENGINE))]
    if unknown:
        raise CallerFault(
            f"--max-cost cannot be kept: the price of {listed(unknown)} is not known",
            kind="no_price",
            hint=f"Give it with --price {unknown[0]}=INPUT,OUTPUT in US dollars for a million tokens; 0,0 is free.",
        )


def _requests(plan: Plan) -> str:
    count = sum(condition.requests + condition.warmups for condition in plan.conditions)
    return counted_as(count, "request", "requests")


def _called(target: str, prices: Mapping[str, Price]) -> list[str]:
    """The target, or where it is a policy, those in it."""
    return [target] if target in prices or "(" not in target else targets_of(parse(target))
