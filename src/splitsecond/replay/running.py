"""Calls of a log, replayed in their order and at their times through a policy, in virtual time.

The policy is the gateway's own, with its circuit breakers, estimates and budgets. Only the targets
are not real: they answer as `History` knows them.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random

import numpy as np
from msgspec import Raw, Struct

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault, Fault, NetworkFault, Phase, ProviderFault, TimedOut
from splitsecond.core.events import Broken, Done, Event
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.service import Call, Notes, Reply, ReplyBase, Service
from splitsecond.core.session import CallSession
from splitsecond.core.timing.columns import Floats, Integers, Mask
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.core.upstream.prompt_size import BYTES_PER_TOKEN
from splitsecond.core.virtual_time import START_NS, run_virtual
from splitsecond.log.production.price_table import PriceTable
from splitsecond.log.store.request_columns import LoggedFault
from splitsecond.log.store.rows import session_id
from splitsecond.replay.history import LATE_NS, NO_CACHE, Basis, History, LoggedAnswer, cache_use
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import Expression
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates

MAX_PROMPT = 1 << 22
"""Bytes of the longest prompt that policies see; a longer one looks as long as this."""
SHOWN = 500
"""Calls between two reports of progress."""
_ATTEMPT = ("call", "target", "at_us", "input", "cached", "written", "hour", "output", "billed")


class ReplayedCalls(Struct, frozen=True, kw_only=True):
    """Columns with one place for each call. `ttft_ns`: UNKNOWN without a first token. `usd`: of all
    attempts of a call, NaN where a price is unknown. `basis`: the weakest of its attempts'.
    `target`: that answered, or UNKNOWN.

    `attempts`: for each attempt its call, its target and when it began (us since 1970).
    """

    ttft_ns: Integers
    total_ns: Integers
    failed: Mask
    target: Integers
    usd: Floats
    basis: Integers
    attempts: tuple[Integers, Integers, Integers]


def replay(
    history: History,
    expression: Expression,
    info: Callable[[str], TargetInfo],
    *,
    route: str = "",
    chance: int = 0,
    sent: Callable[[int], None] = lambda calls: None,
) -> ReplayedCalls:
    """Send all calls of the log through the policy `expression` of `route`. All its targets must
    be in the log.

    `sent` receives the number of calls that were sent since it was called before. It replaces the
    clock of this process while it runs.
    """
    replaying = _Replay(history, expression, info, route, chance)
    # Not as its result: Python's Runner formats that as text, which takes long for the arrays
    run_virtual(replaying.run(sent))
    return replaying.columns()


class _OpenCall:
    """`session`: the numbers of its session and agent."""

    __slots__ = ("begin_ns", "broken", "in_session", "number", "session", "tried")

    def __init__(
        self,
        number: int,
        begin_ns: int,
        session: tuple[int, int] | None,
        in_session: CallSession | None,
    ) -> None:
        self.number = number
        self.begin_ns = begin_ns
        self.session = session
        self.in_session = in_session
        self.tried: list[int] = []
        self.broken = False


class _Replay:
    def __init__(
        self,
        history: History,
        expression: Expression,
        info: Callable[[str], TargetInfo],
        route: str,
        chance: int,
    ) -> None:
        self.history = history
        self._info = info
        self._names = {name: number for number, name in enumerate(history.logged.targets)}
        self._states = TargetStates(info, chance=Random(chance))
        self._service = build(expression, self._target, self._states, route=route)
        calls = history.logged.calls
        count = len(calls.came_us)
        came_ns = START_NS + (calls.came_us - (calls.came_us[0] if count else 0)) * 1000
        self._came_ns: memoryview[int] = came_ns.data
        self._stream: memoryview[int] = calls.stream.data
        self._client: memoryview[int] = calls.client.data
        self._session_of: memoryview[int] = calls.session.data
        self._tokens: memoryview[int] = history.input_tokens.data
        self._shift_us = int(calls.came_us[0]) - START_NS // 1000 if count else 0
        self._ttft = np.full(count, UNKNOWN)
        self._total = np.zeros(count, np.int64)
        self._failed = np.zeros(count, bool)
        self._target_of = np.full(count, UNKNOWN)
        self._basis = np.zeros(count, np.int64)
        self._spaces = memoryview(b" " * MAX_PROMPT)
        self._attempts: list[tuple[int, ...]] = []
        self._open: dict[str, _OpenCall] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}  # the loop itself keeps none
        self._left = count
        self._turns: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._ended_ns: dict[tuple[int, int], int] = {}

    async def run(self, sent: Callable[[int], None]) -> None:
        """Send each call at its time. Raises the exception of a policy that is no fault."""
        if not len(self._came_ns):
            return
        self._loop = asyncio.get_running_loop()
        self._all_ended = self._loop.create_future()
        self._sent = sent
        self._begin(0)
        await self._all_ended

    def _begin(self, number: int) -> None:
        self._tasks[number] = self._loop.create_task(self._play(number))
        if number % SHOWN == SHOWN - 1:
            self._sent(SHOWN)
        if number + 1 < len(self._came_ns):
            at_s = self._came_ns[number + 1] / clock.NS_PER_S
            self._loop.call_at(at_s, self._begin, number + 1)

    async def _play(self, number: int) -> None:
        try:
            opened = await self._opened(number)
            try:
                reply = await self._service(self._call(opened))
            except Fault:
                self._failed[number] = True
                self._ended(opened)
            else:
                self._ttft[number] = clock.now_ns() - opened.begin_ns
                await self._read(reply, opened)
        except Exception as error:  # a bug: without its call the answer would be wrong
            if not self._all_ended.done():
                self._all_ended.set_exception(error)
        del self._tasks[number]

    async def _opened(self, number: int) -> "_OpenCall":
        session, key = self._session(number), None
        if session is not None:
            key = self._session_of[number], int(self.history.logged.calls.agent[number])
        if key is not None and (wait_ns := self._ended_ns.get(key, 0) - clock.now_ns()) > 0:
            await asyncio.sleep(wait_ns / clock.NS_PER_S)  # a turn comes after the answer before
        opened = _OpenCall(number, clock.now_ns(), key, session)
        self._open[str(number)] = opened
        return opened

    def _call(self, opened: "_OpenCall") -> Call:
        number = opened.number
        size = min(self._tokens[number] * BYTES_PER_TOKEN, MAX_PROMPT)
        return Call(
            id=str(number),
            body={"messages": Raw(self._spaces[:size])},
            start_ns=opened.begin_ns,
            stream=self._stream[number] == 1,
            client=self.history.logged.clients[self._client[number]],
            notes=Notes(session=opened.in_session),
        )

    async def _read(self, reply: Reply, opened: "_OpenCall") -> None:
        if isinstance(reply, _LoggedReply) and not reply.over:
            reply.then(partial(self._answered, reply, opened))
            return
        async with reply:  # a policy follows it to its end
            await reply.finished()
        self._answered(reply, opened)

    def _answered(self, reply: Reply, opened: "_OpenCall") -> None:
        self._target_of[opened.number] = self._names.get(reply.target, UNKNOWN)
        self._failed[opened.number] = opened.broken
        self._ended(opened)

    def _ended(self, opened: "_OpenCall") -> None:
        now_ns = clock.now_ns()
        self._total[opened.number] = now_ns - opened.begin_ns
        if opened.session is not None:
            self._ended_ns[opened.session] = now_ns
        del self._open[str(opened.number)]
        self._left -= 1
        if not self._left and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _session(self, number: int) -> CallSession | None:
        identity = self._session_of[number]
        if identity == UNKNOWN:
            return None
        calls = self.history.logged.calls
        agent = int(calls.agent[number])
        ended_ns = self._ended_ns.get((identity, agent))
        return CallSession(
            id=session_id(identity),
            source="log",
            agent=session_id(agent) if agent else "",
            turn=int(calls.turn[number]),
            new_tokens=max(int(calls.new_tokens[number]), 0),
            reusable_tokens=max(int(calls.reusable_tokens[number]), 0),
            idle_ns=None if ended_ns is None else max(self._came_ns[number] - ended_ns, 0),
        )

    def _target(self, name: str) -> Service:
        return _LoggedTarget(name, self._names[name], self)

    def answer(self, opened: _OpenCall, target: int, now_ns: int) -> LoggedAnswer:
        number, at_us = opened.tried.count(target), now_ns // 1000 + self._shift_us
        opened.tried.append(target)
        cache = NO_CACHE
        if opened.session is not None:
            cache = cache_use(self._turns.get((*opened.session, target)), now_ns)
        late = now_ns - opened.begin_ns > LATE_NS
        return self.history.answer(opened.number, target, number, at_us, late=late, cache=cache)

    def opened(self, call: Call) -> _OpenCall:
        return self._open[call.id]

    def ended(
        self,
        opened: _OpenCall,
        target: int,
        answer: LoggedAnswer,
        begin_ns: int,
        observed: Observation,
    ) -> None:
        if answer.basis != Basis.SLOWER or observed.end_ns - begin_ns >= answer.sure_ns:
            self._basis[opened.number] = max(self._basis[opened.number], answer.basis)
        tokens = observed.output_tokens or 0
        first = observed.first_token_ns is not None
        if first and opened.session is not None:
            self._turns[*opened.session, target] = begin_ns, answer.input_tokens
        billed = first or not (observed.status >= 400 or observed.sent_ns is None)
        cached = (
            (answer.cached_tokens, answer.written_tokens, answer.hour_tokens)
            if first
            else (0, 0, 0)
        )
        counts = answer.input_tokens, *cached, tokens
        self._attempts.append(
            (opened.number, target, begin_ns // 1000 + self._shift_us, *counts, billed)
        )
        self._states.observe(observed)

    def fault(self, number: int) -> LoggedFault:
        return self.history.logged.faults[number]

    def columns(self) -> ReplayedCalls:
        rows = np.array(self._attempts, np.int64).reshape(len(self._attempts), len(_ATTEMPT))
        columns = dict(zip(_ATTEMPT, rows.T, strict=True))
        prices = [self._info(name).price for name in self.history.logged.targets]
        counts = (columns[name] for name in ("input", "cached", "written", "hour", "output"))
        usd = costs(prices, columns["target"], *counts)
        per_call = np.bincount(columns["call"], usd * columns["billed"], len(self._total)).astype(
            np.float64
        )
        return ReplayedCalls(
            ttft_ns=self._ttft,
            total_ns=self._total,
            failed=self._failed,
            target=self._target_of,
            usd=per_call,
            basis=self._basis,
            attempts=(columns["call"], columns["target"], columns["at_us"]),
        )


def costs(prices: list[Price | None], target: Integers, *tokens: Integers) -> Floats:
    """Return the cost of each attempt in US dollars (`tokens` as in `PriceTable.cost_usd`); NaN
    without a price by the token."""
    table = PriceTable.of(prices)
    return np.where(table.by_token[target], table.cost_usd(target, *tokens), np.nan)


class _LoggedTarget:
    def __init__(self, name: str, number: int, replay: _Replay) -> None:
        self._name = name
        self._number = number
        self._replay = replay

    def __repr__(self) -> str:
        return f'"{self._name}"'

    async def __call__(self, call: Call) -> "_LoggedReply":
        call.notes.attempts += 1
        opened, now_ns = self._replay.opened(call), clock.now_ns()
        answer = self._replay.answer(opened, self._number, now_ns)
        reply = _LoggedReply(self._name, self._number, self._replay, opened, answer, call)
        has_token = answer.wait_ns != UNKNOWN
        try:
            await asyncio.sleep((answer.wait_ns if has_token else answer.end_ns) / clock.NS_PER_S)
        except asyncio.CancelledError:
            reply.observe("cancelled")
            raise
        if not has_token and answer.fault != UNKNOWN:
            fault = made_fault(self._replay.fault(answer.fault), self._name)
            reply.observe("failed")
            raise fault
        reply.begin(has_token)
        return reply


class _LoggedReply(ReplyBase):
    """An answer of the log, which ends by itself."""

    def __init__(
        self,
        target: str,
        number: int,
        replay: _Replay,
        opened: _OpenCall,
        answer: LoggedAnswer,
        call: Call,
    ) -> None:
        self._target = target
        self._number = number
        self._replay = replay
        self._opened = opened
        self._answer = answer
        self._call = call
        self._id = f"{call.id}.{call.notes.attempts}"
        self._begin_ns = clock.now_ns()
        self._token_ns = 0
        self._ended: asyncio.Future[None] | None = None
        self._then: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def target(self) -> str:
        return self._target

    @property
    def empty(self) -> bool:
        return not self._token_ns

    @property
    def token_ns(self) -> int:
        return self._token_ns

    @property
    def over(self) -> bool:
        return self._over

    @property
    def complete(self) -> bool:
        return self._over and self._answer.fault == UNKNOWN

    def begin(self, has_token: bool) -> None:
        now_ns = clock.now_ns()
        if has_token:
            self._token_ns = now_ns
        left_ns = self._begin_ns + self._answer.end_ns - now_ns
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(left_ns, 0) / clock.NS_PER_S, self._end)

    def _end(self) -> None:
        broken = self._answer.fault != UNKNOWN
        self._opened.broken = broken
        self.observe("failed" if broken else "ok")

    def observe(self, outcome: str) -> None:
        if self._over:
            return
        self._over = True
        now_ns, answer = clock.now_ns(), self._answer
        first = self._token_ns or None
        record = self._fault_record() if outcome == "failed" else None
        observed = Observation(
            id=self._id,
            call=self._call.id,
            target=self._target,
            outcome=outcome,  # type: ignore[arg-type] # one of the three
            fault=record,
            streamed=self._call.stream,
            start_ns=self._begin_ns,
            reused=True,
            sent_ns=self._begin_ns,
            head_ns=first,
            first_event_ns=first,
            first_token_ns=first,
            first_answer_ns=first,
            last_token_ns=now_ns if first else None,
            end_ns=now_ns,
            status=record.status if record is not None else 200 if first else 0,
            input_tokens=answer.input_tokens if outcome == "ok" else None,
            cached_tokens=answer.cached_tokens,
            output_tokens=self._output_tokens(now_ns, complete=outcome == "ok"),
            token_source="usage" if outcome == "ok" else "events",
        )
        self._replay.ended(self._opened, self._number, answer, self._begin_ns, observed)
        if self._ended is not None:
            self._ended.set_result(None)
        if self._then is not None:
            self._then()

    def _fault_record(self) -> FaultRecord:
        logged = self._replay.fault(self._answer.fault)
        phase: Phase = logged.phase or "head"  # type: ignore[assignment] # the log has nothing but phases
        return FaultRecord(
            type=logged.type, kind=logged.kind, phase=phase, message="", status=logged.status
        )

    def _output_tokens(self, now_ns: int, *, complete: bool) -> int:
        """Return the output tokens that have come: all of them, or those of the time that has
        passed."""
        answer = self._answer
        if not self._token_ns:
            return 0
        if complete:
            return answer.output_tokens
        span_ns = answer.end_ns - answer.wait_ns
        part = min((now_ns - self._token_ns) / span_ns, 1.0) if span_ns > 0 else 0.0
        return round(answer.output_tokens * part)

    def then(self, call_back: Callable[[], None]) -> None:
        """Call back when it ends, which saves a task that waits."""
        self._then = call_back

    async def finished(self) -> None:
        if not self._over:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    def arrived(self) -> list[Event]:
        return []

    async def collected(self) -> list[Event]:
        await self.finished()
        if self._answer.fault != UNKNOWN:
            return [
                Broken(
                    clock.now_ns(), made_fault(self._replay.fault(self._answer.fault), self._target)
                )
            ]
        return [Done(clock.now_ns(), marker=True)]

    async def read(self) -> bytes:
        raise RuntimeError("a replayed answer has no bytes")

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.observe("cancelled")


def made_fault(logged: LoggedFault, target: str) -> Fault:
    """Return a fault as the log has it, so that policies act on it as they did."""
    phase: Phase = logged.phase or "head"  # type: ignore[assignment] # the log has nothing but phases
    words = "as in the log"
    match logged.type:
        case "CallerFault":
            return CallerFault(
                words, kind=logged.kind, phase=phase, target=target, status=logged.status or 400
            )
        case "TimedOut":
            return TimedOut(words, kind=logged.kind, phase=phase, target=target)
        case "NetworkFault":
            return NetworkFault(words, kind=logged.kind, phase=phase, target=target)
    return ProviderFault(words, kind=logged.kind, phase=phase, target=target, status=logged.status)
