"""State of all targets, and the guards that keep requests away from targets that are down.

Every attempt goes through a `GuardedTarget`, by these rules:

- A target that is down, or whose rate limit is used up, is rejected while another target that may
  serve the call is available. Rejected means `Overloaded` of kind "ejected": nothing was sent, and
  the policy asks the next target.
- The last target of a call is always tried: if none is available, the one that may be probed first
  is asked, and the others are not. So if any target may be asked for a call, one is.
- Three are rejected even then: a target that itself asked us to wait, until that time; a target
  whose key is refused, until the configuration changes; and a target that refused to answer a
  cheaper request of the client for lack of credit.
- What the requests of one client alone have met does not concern other clients (`circuit_breaker`).
- A target that was asked for a call is not asked again for it while its breaker is open.
- Whether a target is up again is found out with a call of a client, because there are no other
  requests. If that call fails before its first token, its fault is marked `on_trial`, and a policy
  with another target asks that one.
- If all available targets have failed for a call, one that is down may be asked, three times a
  minute: it may have the only answer, and must not become a way to flood a target that is down.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from weakref import WeakValueDictionary

from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.errors import Fault, Overloaded, TimedOut
from splitsecond.core.observation import Observation
from splitsecond.core.service import LOST, Call, Notes, Reply, Service
from splitsecond.core.session import CallSession
from splitsecond.core.timers import EARLY_NS
from splitsecond.core.timing.timeline import record_fault
from splitsecond.core.upstream.prompt_size import input_tokens
from splitsecond.routing.targets.conversations import Conversations
from splitsecond.routing.targets.escalations import EscalationRate
from splitsecond.routing.targets.estimate import SpeedEstimate
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_state import NEVER_NS, AccountKey, TargetState, TargetStatus
from splitsecond.routing.targets.verdict import of_fault

MAX_STATES = 2048
"""Clients may name targets themselves, so the number of states is bounded."""


class TargetStates:
    """State of all targets of one process. `observe` must be called for each attempt that ends."""

    def __init__(
        self,
        info: Mapping[str, TargetInfo] | Callable[[str], TargetInfo] | None = None,
        *,
        chance: Random | None = None,
    ):
        self._read_info: Callable[[str], TargetInfo | None] = (
            info if callable(info) else (info or {}).get
        )
        self.chance = chance or Random()
        """The random numbers of this process, also of the policies that choose."""
        self.conversations = Conversations()
        self._states: dict[str, TargetState] = {}
        self._hosts: dict[str, list[TargetState]] = {}
        """The states of the targets of each provider, which is one host."""
        self._keys: dict[str, AccountKey] = {}
        self._cascades: WeakValueDictionary[str, EscalationRate] = WeakValueDictionary()

    def observe(self, observation: Observation) -> None:
        state = self._states.get(observation.target) or self.state(observation.target)
        state.observe(observation, clock.now_ns())

    def seed(
        self, observations: Iterable[Observation], age_ns: int | Callable[[Observation], int]
    ) -> None:
        now_ns, dated = clock.now_ns(), dict[tuple[str, bool], list[tuple[int, Observation]]]()
        for observation in observations:
            age = age_ns if isinstance(age_ns, int) else age_ns(observation)
            kind = observation.target, observation.streamed
            dated.setdefault(kind, []).append((now_ns - max(age, 0), observation))
        for (name, streamed), dated_attempts in dated.items():
            if not streamed and (name, True) in dated:
                continue  # most were requested whole by choice (`whole_answers`)
            state = self.state(name)
            state.estimate(streamed).seed(dated_attempts)

    def seed_turns(self, turns: Iterable[tuple[Observation, CallSession, int]]) -> None:
        """Learn the prompt caches of targets from earlier turns of sessions, the oldest first.

        Each is the attempt that answered, with times from the arrival of its call, which was so
        many ns ago.
        """
        now_ns = clock.now_ns()
        for attempt, session, age_ns in turns:
            self.state(attempt.target).seed_turn(attempt, session, now_ns - age_ns)

    def renew(
        self,
        info: Callable[[str], TargetInfo | None],
        key_changed: Callable[[str], bool] = lambda _: False,
        moved: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Replace the static facts.

        `key_changed`: whether a target has another key than before. The refusals of the old key and
        its rate limit are forgotten. `moved`: whether a target is another server than before. It is
        untested then.
        """
        self._read_info = info
        for name in [name for name in self._states if moved(name)]:
            self._replace(name)
        states = list(self._states.values())
        changed = {state.name for state in states if key_changed(state.name)}
        for state in states:
            if state.name in changed:
                self._keys.pop(state.info.account, None)
        for state in states:
            state.info = info(state.name) or TargetInfo()
            if state.info.account:
                state.key = self._keys.setdefault(state.info.account, AccountKey())
            elif state.name in changed:
                state.key = AccountKey()
            if state.name in changed:
                state.headroom = None

    def info(self, target: str) -> TargetInfo:
        state = self._states.get(target)
        return state.info if state is not None else self._read_info(target) or TargetInfo()

    def available(self, target: str, client: str | None = None) -> bool:
        state = self._states.get(target)
        if state is None or not state.needs_check():
            return True
        now_ns = clock.now_ns()
        if not state.unavailable_until_ns(now_ns, client):
            return True
        state.wanted_ns = now_ns
        return False

    def unavailable_reason(self, target: str) -> str:
        state = self._states.get(target)
        return "" if state is None else state.unavailable_reason(clock.now_ns())

    def in_flight(self, target: str) -> int:
        state = self._states.get(target)
        return 0 if state is None else len(state.in_flight)

    def estimate(self, target: str, *, stream: bool = True) -> SpeedEstimate | None:
        state = self._states.get(target)
        return (
            None
            if state is None
            else state.estimates.get(stream) or state.estimates.get(not stream)
        )

    def status(self, target: str) -> TargetStatus:
        state = self._states.get(target)
        return (
            TargetStatus(target=target, state="untested")
            if state is None
            else state.status(clock.now_ns())
        )

    def guard(
        self,
        target: str,
        service: Service,
        among: frozenset[str],
        *,
        needs_stream: bool = True,
        compares_caches: bool = True,
    ) -> Service:
        """Return `service`, guarded: not asked while `target` is down and another of `among` is
        available.

        `needs_stream`: a policy around it waits for the first token, so no answer is requested
        whole. `compares_caches`: a policy around it asks which target has a session in its prompt
        cache; otherwise nothing is learned about that of `target`.
        """
        others = tuple(name for name in sorted(among) if name != target)
        return GuardedTarget(
            service, target, others, self.state, self.chance, needs_stream, compares_caches
        )

    def escalations(self, cascade: str) -> EscalationRate:
        """Return the escalation rate of the cascade with this text, for as long as somebody refers
        to it."""
        rate = self._cascades.get(cascade)
        if rate is None:
            rate = self._cascades[cascade] = EscalationRate()
        return rate

    def cascades(self) -> Mapping[str, EscalationRate]:
        return dict(self._cascades)

    def by_name(self) -> Mapping[str, TargetState]:
        return self._states

    def state(self, target: str) -> TargetState:
        state = self._states.get(target)
        if state is None:
            if len(self._states) >= MAX_STATES:
                self._evict()
            info = self._read_info(target) or TargetInfo()
            key = (
                self._keys.setdefault(info.account, AccountKey()) if info.account else AccountKey()
            )
            siblings = self._hosts.setdefault(target.partition("/")[0], [])
            state = self._states[target] = TargetState(
                target, info, key, self.chance, siblings, self.conversations
            )
            siblings.append(state)
        return state

    def _replace(self, target: str) -> None:
        old = self._states[target]
        now_ns = clock.now_ns()
        self.conversations.forget(target, now_ns)
        new = TargetState(
            target,
            old.info,
            old.key,
            self.chance,
            old.siblings,
            self.conversations,
            since_ns=now_ns,
        )
        old.siblings[old.siblings.index(old)] = self._states[target] = new

    def _evict(self) -> None:
        """Forget the first healthy target without requests in flight; if none is healthy, the
        latest idle one.

        Models that clients invent are never healthy, because no provider serves them: they displace
        each other.
        """
        idle = [name for name, state in self._states.items() if not state.in_flight]
        healthy = (name for name in idle if not self._states[name].needs_check())
        if (evicted := next(healthy, idle[-1] if idle else None)) is not None:
            state = self._states.pop(evicted)
            state.siblings.remove(state)
            if not state.siblings:
                del self._hosts[evicted.partition("/")[0]]


class GuardedTarget:
    """`service`, which is the target `name`, beside `others` that may answer the same calls."""

    def __init__(
        self,
        service: Service,
        name: str,
        others: Sequence[str],
        state: Callable[[str], TargetState],
        random: Random,
        needs_stream: bool,
        compares_caches: bool,
    ) -> None:
        self._service = service
        self._name = name
        self._others = others
        self._state = state
        self._random = random
        self._needs_stream = needs_stream
        self._compares_caches = compares_caches

    def __repr__(self) -> str:
        return repr(self._service)

    async def __call__(self, call: Call) -> Reply:
        now_ns = clock.now_ns()
        state = self._state(self._name)
        again = self._name in call.notes.attempted
        # the target will number it so
        attempt = f"{call.id}.{call.notes.attempts + 1}" if again else call.id
        on_trial = False
        if state.needs_check() or call.notes.excluded:
            on_trial = self._check(call, attempt, state, now_ns)
        call.notes.attempted.append(self._name)
        whole_ns = None if on_trial else self._whole_ns(call, state, now_ns)
        if whole_ns is not None:
            call = replace(call, whole_ns=whole_ns)
        state.record_start(
            attempt, call.stream, now_ns, call.client, again=again, whole=whole_ns is not None
        )
        if self._compares_caches and (session := call.notes.session) is not None:
            state.record_turn(attempt, session, now_ns)
        try:
            reply = await (
                self._probe(call, attempt, state, now_ns) if on_trial else self._service(call)
            )
        except BaseException as error:
            state.record_no_reply(attempt, call.stream)
            if isinstance(error, Fault):
                error.on_trial = on_trial
            _record_end_without_reply(error, call, state, now_ns)
            raise
        if state.credit:
            state.record_paid(call)
        if whole_ns is None:  # the time of a whole answer tells nothing, and it is no probe
            state.record_first_token(attempt, call.stream, reply, clock.now_ns())
        return reply

    def _whole_ns(self, call: Call, state: TargetState, now_ns: int) -> int | None:
        if not call.allow_whole or self._needs_stream or call.stream or call.watched:
            return None
        return state.whole_ns(call, self._random, now_ns)

    async def _probe(self, call: Call, attempt: str, state: TargetState, now_ns: int) -> Reply:
        timeout_ns = (
            state.probe_timeout_ns(call.stream, input_tokens(call))
            if self._has_backup(call, now_ns)
            else None
        )
        if timeout_ns is None:
            return await self._service(call)
        scope = asyncio.timeout(timeout_ns / clock.NS_PER_S)
        try:
            async with scope:
                return await self._service(call)
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            # it refers to the task, a cancelled task to this frame, and the frame to the scope: a
            # cycle
            del scope
        state.record_no_reply(attempt, call.stream)
        state.record_timeout(clock.now_ns(), now_ns, call.client)
        words = f"no token in {timeout_ns / clock.NS_PER_S:,.0f} s from a target that was down"
        raise TimedOut(words, phase="first token", target=self._name, after_ns=timeout_ns)

    def _check(self, call: Call, attempt: str, state: TargetState, now_ns: int) -> bool:
        """Return whether the call is a probe of a target that was down. Raises `Overloaded` if it
        is not asked."""
        why = self._rejection(call, state, now_ns)
        if why:
            call.notes.rejected.append(self._name)
            state.wanted_ns = now_ns
            until_ns = state.unavailable_until_ns(now_ns, call.client)
            ours = state.is_locked(now_ns) or state.lacks_credit(call, now_ns)
            raise Overloaded(
                f"not asked: {why}",
                kind="ejected",
                target=self._name,
                retry_after_ns=None if until_ns in (0, NEVER_NS) else max(until_ns - now_ns, 0),
                status=502 if ours else 429 if state.is_rate_limited(now_ns, call.client) else 503,
                hint="Change the key in the configuration." if until_ns == NEVER_NS else "",
            )
        state.admit(attempt, now_ns, call)
        if state.on_trial(call):
            call.notes.probed = self._name
            return True
        return False

    def _rejection(self, call: Call, state: TargetState, now_ns: int) -> str:
        if self._name in call.notes.excluded:
            return "it could not answer this call to its end"
        if state.lacks_credit(call, now_ns):
            return "its account has too little credit for a request of this size"
        client = call.client
        until_ns = state.unavailable_until_ns(now_ns, client)
        if not until_ns:
            return self._rejection_while_returning(call, state, now_ns)
        why = state.unavailable_reason(now_ns, client)
        if state.must_not_be_asked(now_ns, client):
            return why
        if self._name in call.notes.attempted and state.breaker.is_down(now_ns, client):
            return f"it was asked for this call, and is {why}"
        others = [self._state(name) for name in self._others]
        available = [other for other in others if not other.unavailable_until_ns(now_ns, client)]
        if any(_may_serve(call, other, now_ns) for other in available):
            return why
        if available:
            return "" if state.take_last_resort(now_ns) else why
        return why if self._another_is_due_first(call, others, until_ns, now_ns) else ""

    def _another_is_due_first(
        self, call: Call, others: list[TargetState], until_ns: int, now_ns: int
    ) -> bool:
        mine = (until_ns, self._name)
        for other in others:
            if other.must_not_be_asked(now_ns, call.client) or other.name in call.notes.rejected:
                continue
            if (other.unavailable_until_ns(now_ns, call.client), other.name) < mine:
                return True
        return False

    def _rejection_while_returning(self, call: Call, state: TargetState, now_ns: int) -> str:
        """Return why the call does not belong to the part of the traffic that a returning target
        gets; "" if it does.

        A returning target gets all calls for which no other target is available.
        """
        share = state.breaker.traffic_share(now_ns)
        if share >= 1 or not state.breaker.concerns(call.client) or self._random.random() < share:
            return ""
        return "it was down and is returning" if self._has_backup(call, now_ns) else ""

    def _has_backup(self, call: Call, now_ns: int) -> bool:
        for name in self._others:
            other = self._state(name)
            healthy = other.breaker.state == "closed" or not other.breaker.concerns(call.client)
            if (
                healthy
                and not other.unavailable_until_ns(now_ns, call.client)
                and _may_serve(call, other, now_ns)
            ):
                return True
        return False


def _record_end_without_reply(
    error: BaseException, call: Call, state: TargetState, began_ns: int
) -> None:
    if isinstance(error, asyncio.CancelledError):
        if _is_late(call):
            state.record_timeout(clock.now_ns(), began_ns, call.client)
        elif error.args == (LOST,):
            state.record_lost_race(
                call.stream, input_tokens(call), clock.now_ns(), began_ns, call.client
            )
    elif isinstance(error, Fault) and of_fault(record_fault(error)) == "unpaid":
        state.record_unpaid(call, clock.now_ns())


def _may_serve(call: Call, other: TargetState, now_ns: int) -> bool:
    notes: Notes = call.notes
    if (
        other.name in notes.rejected
        or other.name in notes.excluded
        or other.lacks_credit(call, now_ns)
    ):
        return False
    return other.name not in notes.attempted or other.serves(call.id)


def _is_late(call: Call) -> bool:
    return call.token_due_ns is not None and clock.now_ns() + EARLY_NS >= call.token_due_ns
