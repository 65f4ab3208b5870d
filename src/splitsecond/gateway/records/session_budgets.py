"""Budgets of clients' sessions: US dollars and turns, of a key's sessions and of a route's.

Use is counted in a table that all workers share without a lock: each writes only its own row, and
adds up the entries of a session in all rows. A turn is counted first and taken back if the budget
is exceeded then; the cost that a call may reach is reserved while it is in flight, as for a key's
limit by day (`key_limits`). A new session replaces, in a worker's row, the one of its neighbours
that was used longest ago. The table lives as long as the gateway.

The last row has what the other gateways of a fleet have counted. The hub writes it
(`fleet/member`), about once a second, so a session whose turns reach several gateways may
exceed its budget by what they count within that time.

A session that has reached a budget goes on when the operator or, with `ask`, its client allows it:
then it may use the same amount once more.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec import Struct, structs

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.session import CallSession
from splitsecond.core.wording import counted_as
from splitsecond.gateway.records.key_limits import MAX_RESERVED_USD, RESERVED_NS, KeyLimits
from splitsecond.gateway.records.reservation import Cost, ReservedTokens
from splitsecond.gateway.records.shared_counters import nano, within_cell
from splitsecond.gateway.records.shared_memory import create_memory, mapped
from splitsecond.routing.construction.expression import Expression
from splitsecond.routing.requests.error_response import QUOTA, Headers, LimitReached
from splitsecond.routing.router.settings import ClientKey, SessionBudget

SESSIONS = 8192
"""Sessions that a worker counts."""
WAYS = 8
"""Places in which a session can be: that of its hash and those after it."""
WARN_SHARE = 0.8
ALLOW_HEADER = b"x-splitsecond-allow"
ALLOW = "/sessions/allow"
_KEY, _USED, _SPENT, _RESERVED, _TURNS, _ALLOWED = range(6)
_WIDTH = 6
_ROW = SESSIONS * _WIDTH
_CELL_BYTES = 8
_NANO = 1_000_000_000
_NO_RETRY: Headers = [(b"x-should-retry", b"false")]
"""The clients of OpenAI and Anthropic repeat a 429 otherwise."""


class SessionUse(Struct, frozen=True):
    """What a session has used. `allowed`: how often it may use its budget beyond the first time."""

    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    turns: int = 0
    allowed: int = 0


class SessionCounters:
    """The shared table. `memory`: the descriptor that `create` returned; None: memory of this
    process alone. `number`: that of this worker, from 0; None: the hub."""

    def __init__(
        self, memory: int | None = None, *, workers: int = 1, number: int | None = 0
    ) -> None:
        self._workers, self._row = workers, workers if number is None else number
        self._cells = mapped(memory, self._size(workers)).cast("q")

    @classmethod
    def create(cls, workers: int) -> int:
        return create_memory(cls._size(workers))

    @staticmethod
    def _size(workers: int) -> int:
        return (workers + 1) * _ROW * _CELL_BYTES

    def add(
        self,
        session: int,
        *,
        usd: float = 0.0,
        reserved_usd: float = 0.0,
        turns: int = 0,
        allowed: int = 0,
    ) -> None:
        cells, at = self._cells, self._taken(session)
        cells[at + _USED] = clock.now_ns()
        changes = (
            (_SPENT, nano(usd)),
            (_RESERVED, nano(reserved_usd)),
            (_TURNS, turns),
            (_ALLOWED, allowed),
        )
        for cell, change in changes:
            if change:
                cells[at + cell] = within_cell(cells[at + cell] + change)

    def use(self, session: int) -> SessionUse:
        """Return what the session has used, at all gateways of the fleet."""
        return self._sum(session, self._workers + 1)

    def used_since(self, since_ns: int) -> dict[int, SessionUse]:
        """Return what this gateway has counted of the sessions whose counts changed since then."""
        changed = set[int]()
        for row in range(self._workers):
            begin, end = row * _ROW, (row + 1) * _ROW
            used = enumerate(self._cells[begin + _USED : end : _WIDTH].tolist())
            changed.update(
                self._cells[begin + place * _WIDTH]
                for place, at_ns in used
                if at_ns and at_ns >= since_ns
            )
        return {session: self._sum(session, self._workers) for session in changed}

    def set_others(self, session: int, use: SessionUse) -> None:
        """Set what the other gateways have counted of a session. For the hub."""
        cells, at = self._cells, self._taken(session)
        cells[at + _USED] = clock.now_ns()
        numbers = nano(use.spent_usd), nano(use.reserved_usd), use.turns, use.allowed
        for cell, number in zip((_SPENT, _RESERVED, _TURNS, _ALLOWED), numbers, strict=True):
            cells[at + cell] = within_cell(number)

    def _sum(self, session: int, rows: int) -> SessionUse:
        cells = self._cells
        places = [
            at for row in range(rows) for at in self._places(row, session) if cells[at] == session
        ]
        spent, reserved, turns, allowed = (
            sum(cells[at + cell] for at in places) for cell in (_SPENT, _RESERVED, _TURNS, _ALLOWED)
        )
        return SessionUse(spent / _NANO, reserved / _NANO, turns, allowed)

    def forfeit(self) -> None:
        """Charge what is still reserved in this worker's row: its predecessor has died with these
        calls in flight."""
        cells = self._cells
        for at in range(self._row * _ROW, (self._row + 1) * _ROW, _WIDTH):
            if cells[at + _RESERVED]:
                cells[at + _SPENT] = within_cell(cells[at + _SPENT] + cells[at + _RESERVED])
                cells[at + _RESERVED] = 0

    def _places(self, row: int, session: int) -> list[int]:
        return [row * _ROW + (session + way) % SESSIONS * _WIDTH for way in range(WAYS)]

    def _taken(self, session: int) -> int:
        cells, places = self._cells, self._places(self._row, session)
        for at in places:
            if cells[at] == session:
                return at
        oldest = min(places, key=lambda at: cells[at + _USED])
        for cell in range(_KEY, _WIDTH):
            cells[oldest + cell] = 0
        cells[oldest] = session
        return oldest


class BudgetReached(LimitReached):
    """A session has reached a budget. `asks`: its client gets an answer that says so."""

    asks = False


class BudgetOwner(Struct, frozen=True):
    """A key or a route whose sessions have a `budget`. `name`: what it is, in words."""

    name: str
    budget: SessionBudget
    route: str = ""

    def number(self, session: CallSession) -> int:
        if not self.route:
            return int(session.id, 16) >> 1 | 1
        return (
            int.from_bytes(
                blake2b(f"{session.id} {self.route}".encode(), digest_size=8).digest(), "big"
            )
            >> 1
            | 1
        )


class SessionBudgets:
    """The budgets of sessions of `keys`, and of `routes` by name. `limits` knows what calls
    cost."""

    def __init__(
        self,
        keys: Iterable[ClientKey],
        routes: Mapping[str, SessionBudget],
        limits: KeyLimits,
        counters: SessionCounters | None = None,
    ) -> None:
        self._keys = {
            key.name: BudgetOwner(f"the key {key.name!r}", key.session)
            for key in keys
            if key.session
        }
        self._routes = {
            name: BudgetOwner(f"the route {name!r}", each, name) for name, each in routes.items()
        }
        self._limits = limits
        self._counters = counters or SessionCounters()

    def owners(self, client: str, route: str) -> list[BudgetOwner]:
        owners = (self._keys.get(client), self._routes.get(route))
        return [owner for owner in owners if owner is not None]

    async def begin(
        self,
        call: Call,
        session: CallSession,
        owners: list[BudgetOwner],
        expression: Expression,
        *,
        allow: bool,
    ) -> "OpenBudgets":
        """Count a turn of `session`, and reserve what `call` may cost, served by `expression`.

        `allow`: the client lets the session go on. Raises `BudgetReached`, and `LimitReached` or
        `CallerFault` if the cost is not known.
        """
        paid = [owner for owner in owners if owner.budget.usd is not None]
        usages: tuple[ReservedTokens, ...] = ()
        cost: Cost | None = None
        if paid:
            await self._limits.cost_known(call.client, expression, paid[0].name)
            usages, cost = self._limits.planned(call, expression)
        counters, numbers = self._counters, [owner.number(session) for owner in owners]
        for number in numbers:
            counters.add(number, turns=1)
        headers: Headers = []
        try:
            for owner, number in zip(owners, numbers, strict=True):
                if (
                    allow
                    and owner.budget.at_limit == "ask"
                    and _reached(owner.budget, counters.use(number))
                ):
                    counters.add(number, allowed=1)
                headers += self._check(owner, session, counters.use(number))
        except BudgetReached:
            for number in numbers:
                counters.add(number, turns=-1)
            raise
        return OpenBudgets(
            counters, list(zip(owners, numbers, strict=True)), self._limits, usages, cost, headers
        )

    def allow(self, session: str) -> bool:
        """Let a session that has reached a budget use it once more. Return False for one that has
        reached none."""
        call_session, is_allowed = CallSession(id=session, source=""), False
        for owner in (*self._keys.values(), *self._routes.values()):
            number = owner.number(call_session)
            use = self._counters.use(number)
            # The next turn would be one too many.
            if use.turns and _reached(owner.budget, structs.replace(use, turns=use.turns + 1)):
                self._counters.add(number, allowed=1)
                is_allowed = True
                if not owner.route:
                    break  # a session is of one key
        return is_allowed

    def _check(self, owner: BudgetOwner, session: CallSession, use: SessionUse) -> Headers:
        budget, times = owner.budget, 1 + use.allowed
        words = f"the session has used {_words(budget, use)} that {owner.name} allows"
        if _reached(budget, use):
            fault = BudgetReached(
                words,
                kind=QUOTA,
                retry_after_ns=None,
                headers=_NO_RETRY,
                hint="The gateway's operator can allow as much again: "
                f"`splitsecond sessions {session.id} --allow`. Or begin a new session.",
            )
            fault.asks = budget.at_limit == "ask"
            raise fault
        if budget.usd is not None and use.spent_usd + use.reserved_usd >= budget.usd * times:
            raise BudgetReached(
                f"{words}, and its calls in flight may cost {use.reserved_usd:.4f} USD",
                kind="rate_limit_exceeded",
                retry_after_ns=RESERVED_NS,
                hint="Wait until some of them have ended.",
            )
        shares = [(use.spent_usd, budget.usd), (use.turns, budget.turns)]
        if any(limit is not None and used >= WARN_SHARE * limit * times for used, limit in shares):
            return [(b"x-splitsecond-session-budget", _words(budget, use).encode())]
        return []


class OpenBudgets:
    """The budgets of one call in flight. `release` it once, when the call has ended. `headers`: for
    its response."""

    def __init__(
        self,
        counters: SessionCounters,
        owners: list[tuple[BudgetOwner, int]],
        limits: KeyLimits,
        usages: tuple[ReservedTokens, ...],
        cost: Cost | None,
        headers: Headers,
    ) -> None:
        self.headers = headers
        self._counters = counters
        self._owners = owners
        self._limits = limits
        self._usages = usages
        self._cost = cost
        self._usd = 0.0
        if cost is not None:
            self._reserve(min(sum(map(cost, usages)), MAX_RESERVED_USD))

    @property
    def metered(self) -> bool:
        return self._cost is not None

    def release(self) -> None:
        self._reserve(0.0)

    def charge(self, attempt: Observation) -> None:
        if self._cost is not None and (usd := self._limits.cost_usd(attempt)):
            for _, number in self._owners:
                self._counters.add(number, usd=usd)

    def extend(self, target: str, output_tokens: int) -> Fault | None:
        """Reserve what so many output tokens of `target` cost, if that is more than what is
        reserved.

        Returns the fault that ends the answer, if nothing of a budget is left then; else None.
        """
        if self._cost is None or not self._usages:
            return None
        planned = next((each for each in self._usages if each.target == target), self._usages[0])
        usd = min(
            self._cost(structs.replace(planned, target=target, output_tokens=output_tokens)),
            MAX_RESERVED_USD,
        )
        if usd <= self._usd:
            return None
        self._reserve(usd)
        for owner, number in self._owners:
            use = self._counters.use(number)
            usd_limit = owner.budget.usd
            if usd_limit is not None and use.spent_usd + use.reserved_usd >= usd_limit * (
                1 + use.allowed
            ):
                return CallerFault(
                    f"the answer was ended after about {output_tokens:,} tokens, more than were "
                    f"reserved for it: the "
                    f"session has nothing left of the {usd_limit:g} USD that {owner.name} allows",
                    kind=QUOTA,
                    status=429,
                    phase="between tokens",
                )
        return None

    def _reserve(self, usd: float) -> None:
        change, self._usd = usd - self._usd, usd
        if change:
            for _, number in self._owners:
                self._counters.add(number, reserved_usd=change)


def _reached(budget: SessionBudget, use: SessionUse) -> bool:
    times = 1 + use.allowed
    over_turns = budget.turns is not None and use.turns > budget.turns * times
    return over_turns or (budget.usd is not None and use.spent_usd >= budget.usd * times)


def _words(budget: SessionBudget, use: SessionUse) -> str:
    """Return what was used of a budget: "4.12 of 5 USD, 31 of 40 turns"."""
    times = 1 + use.allowed
    money = [] if budget.usd is None else [f"{use.spent_usd:.4g} of {budget.usd * times:g} USD"]
    turns = (
        []
        if budget.turns is None
        else [
            f"{min(use.turns, budget.turns * times):,} of "
            f"{counted_as(budget.turns * times, 'turn')}"
        ]
    )
    return ", ".join(money + turns)
