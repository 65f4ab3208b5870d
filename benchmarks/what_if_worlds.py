"""Simulated worlds of `benchmarks.what_if`: providers, requests, and what happens to both."""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np
from msgspec import Raw, Struct

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Fault, ProviderFault
from splitsecond.core.events import Event
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.service import Call, Notes, Reply, ReplyBase, Service
from splitsecond.core.session import CallSession
from splitsecond.core.timing.columns import Floats, Integers
from splitsecond.core.timing.packed_attempt import OUTCOMES, UNKNOWN
from splitsecond.core.virtual_time import START_NS, run_virtual
from splitsecond.log.store.request_columns import (
    CallColumns,
    LoggedAttempts,
    LoggedFault,
    RequestColumns,
)
from splitsecond.log.store.rows import MILLION
from splitsecond.replay.answer import logged_outcomes
from splitsecond.replay.figures import Outcomes
from splitsecond.replay.history import prompt_tokens
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates

EPOCH_US = 1_764_000_000_000_000


HOURS = 6.0


RATE = 1.0


FAILS_AFTER_S = 0.2


REFUSES_AFTER_S = 0.05


TARGETS = ("a/m", "b/m")


class Provider(Struct, frozen=True, kw_only=True):
    """Its TTFT is `level` × (fixed + new tokens × `per_new`), each answer with a scatter of its
    own.

    `drift`: amplitude of the logarithm of its level over ten minutes and an hour. `spells`: mean
    seconds between slow spells, which last `spell_s` at the mean and are `slower` times as slow.
    `load`: by how much each request in flight slows it. `outages`: parts of the whole time.
    `limit`: requests a minute. `lifetime_s`: of its prompt cache.
    """

    fixed: float = 0.3
    per_new: float = 0.00005
    tps: float = 80.0
    scatter: float = 0.35
    drift: float = 0.0
    spells: float = 0.0
    spell_s: float = 90.0
    slower: float = 3.0
    load: float = 0.0
    outages: tuple[tuple[float, float], ...] = ()
    fails: float = 0.002
    limit: int = 0
    lifetime_s: float = 300.0
    price: Price = Price(input_usd=1.0, output_usd=4.0, cached_usd=0.1)


class Setting(Struct, frozen=True, kw_only=True):
    about: str
    a: Provider
    b: Provider
    shared: float = 0.0
    """Mean seconds between slow spells that both providers have."""
    sessions: bool = False
    any_load: bool = True


DEAR = Price(input_usd=2.0, output_usd=8.0, cached_usd=0.2)


SETTINGS: dict[str, Setting] = {
    "calm": Setting(about="nothing happens", a=Provider(), b=Provider(fixed=0.36, price=DEAR)),
    "drift": Setting(
        about="both drift by a factor of up to 2 either way",
        a=Provider(drift=0.35),
        b=Provider(drift=0.35, fixed=0.36),
    ),
    "spells": Setting(
        about="each has slow minutes of its own",
        a=Provider(spells=900),
        b=Provider(spells=1200, fixed=0.36),
    ),
    "shared": Setting(
        about="both have the same slow minutes",
        a=Provider(),
        b=Provider(fixed=0.36, price=DEAR),
        shared=900,
    ),
    "outages": Setting(
        about="a is down for 3% of the time, twice",
        a=Provider(outages=((0.3, 0.33), (0.7, 0.73))),
        b=Provider(fixed=0.36, price=DEAR),
    ),
    "limits": Setting(
        about="a refuses more than 50 requests a minute",
        a=Provider(limit=50),
        b=Provider(fixed=0.36),
        any_load=False,
    ),
    "load": Setting(
        about="each request in flight slows its server by 4%",
        a=Provider(load=0.04),
        b=Provider(load=0.04, fixed=0.36),
        any_load=False,
    ),
    "sessions": Setting(
        about="sessions with prompt caches of 5 min and 30 min",
        a=Provider(per_new=0.0001),
        b=Provider(per_new=0.0001, lifetime_s=1800, fixed=0.36),
        sessions=True,
    ),
}


class Requests(NamedTuple):
    """The calls of a world. `after_s`: of a later turn of a session, the pause after the answer
    before it."""

    at_s: Floats
    stream: Integers
    prompt: Integers
    output: Integers
    session: Integers
    turn: Integers
    new: Integers
    after_s: Floats


def requests(seed: int, *, sessions: bool, hours: float) -> Requests:
    random = np.random.default_rng(seed)
    seconds = hours * 3600
    if not sessions:
        n = random.poisson(seconds * RATE)
        at_s = np.sort(random.uniform(0, seconds, n))
        prompt = np.exp(random.normal(6.5, 1.0, n)).clip(16, 60_000).astype(np.int64)
        none = np.full(n, UNKNOWN)
        output = _outputs(random, n)
        return Requests(
            at_s,
            (random.random(n) < 0.8).astype(np.int64),
            prompt,
            output,
            none,
            none,
            none,
            np.zeros(n),
        )
    rows = []
    for session in range(round(seconds * RATE / 15)):
        began_s, length = random.uniform(0, seconds), int(random.integers(1500, 6000))
        for turn in range(1, 1 + int(random.geometric(1 / 15))):
            new = length if turn == 1 else int(np.exp(random.normal(6.2, 0.8)))
            length = length if turn == 1 else length + new
            after = float(np.exp(random.normal(2.5, 1.3)))
            began_s += after
            rows.append(
                (began_s, 1, length, int(_outputs(random, 1)[0]), session, turn, new, after)
            )
    rows.sort()
    columns = list(zip(*rows, strict=True))
    stream, prompts, output, sessions_of, turns, news = (
        np.array(each, np.int64) for each in columns[1:7]
    )
    return Requests(
        np.array(columns[0]),
        stream,
        prompts,
        output,
        sessions_of,
        turns,
        news,
        np.array(columns[7]),
    )


def _outputs(random: np.random.Generator, n: int) -> Integers:
    return np.exp(random.normal(4.8, 0.7, n)).clip(2, 4000).astype(np.int64)


class _Reply(ReplyBase):
    def __init__(self, target: str, ends_s: float, ended: Callable[[str], None]) -> None:
        self._target = target
        self._over = asyncio.get_running_loop().create_future()
        self._ended = ended
        self.token_ns = clock.now_ns()
        self._timer = asyncio.get_running_loop().call_later(ends_s, self._end)

    @property
    def target(self) -> str:
        return self._target

    @property
    def empty(self) -> bool:
        return False

    def _end(self) -> None:
        self._ended("ok")
        self._over.set_result(None)

    async def finished(self) -> None:
        await self._over

    def arrived(self) -> list[Event]:
        return []

    async def read(self) -> bytes:
        raise RuntimeError("a simulated answer has no bytes")

    async def aclose(self) -> None:
        if not self._over.done():
            self._timer.cancel()
            self._ended("cancelled")
            self._over.set_result(None)


class World:
    """The providers of a setting, and the calls of one policy over them."""

    def __init__(self, setting: Setting, calls: Requests, seed: int, hours: float) -> None:
        self.setting = setting
        self.calls = calls
        self.seconds = hours * 3600
        self.providers = dict(zip(TARGETS, (setting.a, setting.b), strict=True))
        random = np.random.default_rng([seed, 1])
        self.noise = random.normal(0, 1, (len(calls.at_s), len(TARGETS)))
        self.chance = random.random((len(calls.at_s), len(TARGETS)))
        self.phase = random.uniform(0, 6.28, (len(TARGETS), 2))
        shared = _spells(random, setting.shared, 90.0, hours)
        self.spells = [
            shared + _spells(random, p.spells, p.spell_s, hours) for p in self.providers.values()
        ]
        self.states = TargetStates(self.info, chance=Random(seed))
        self.in_flight = [0] * len(TARGETS)
        self.sent: list[deque[float]] = [deque() for _ in TARGETS]
        self.caches: dict[tuple[int, int], tuple[int, float]] = {}
        self.attempts: list[tuple[int, int, Observation]] = []
        self.open: dict[str, int] = {}

    def info(self, name: str) -> TargetInfo:
        return TargetInfo(provider=name, price=self.providers[name].price)

    def level(self, number: int, provider: Provider, at_s: float) -> float:
        found = 1.0
        if provider.drift:
            first, second = self.phase[number]
            found = math.exp(
                provider.drift * (math.sin(at_s / 95 + first) + math.sin(at_s / 573 + second))
            )
        slow = any(begin <= at_s < end for begin, end in self.spells[number])
        return found * (provider.slower if slow else 1.0)

    def run(self, policy: str, *, known: bool = False) -> tuple[RequestColumns, Outcomes, Integers]:
        """Return the log, sorted by time, how the calls ended, by their numbers, and their numbers
        in the log.

        `known`: the log has the lengths of prompts of calls that failed, too.
        """
        service = build(parse(policy), lambda name: _Target(name, self), self.states)
        rows = run_virtual(self._run(service))
        return self._logged(rows, known)

    async def _run(self, service: Service) -> list[tuple[int, ...]]:
        rows: list[tuple[int, ...]] = [()] * len(self.calls.at_s)
        sessions: dict[int, list[int]] = {}
        tasks = []
        for number, session in enumerate(self.calls.session.tolist()):
            sessions.setdefault(session if session != UNKNOWN else -2 - number, []).append(number)
        loop = asyncio.get_running_loop()
        for numbers in sorted(sessions.values(), key=lambda each: float(self.calls.at_s[each[0]])):
            await asyncio.sleep(max(float(self.calls.at_s[numbers[0]]) - now_s(), 0))
            tasks.append(loop.create_task(self._play(service, numbers, rows)))
        await asyncio.gather(*tasks)
        return rows

    async def _play(
        self, service: Service, numbers: list[int], rows: list[tuple[int, ...]]
    ) -> None:
        calls, ended_ns = self.calls, None
        for place, number in enumerate(numbers):
            if place:
                await asyncio.sleep(float(calls.after_s[number]))
            begin_ns = clock.now_ns()
            session = None
            if calls.session[number] != UNKNOWN:
                prompt, new = int(calls.prompt[number]), int(calls.new[number])
                session = CallSession(
                    id=str(calls.session[number]), source="simulated",
                    turn=int(calls.turn[number]), new_tokens=new,
                    reusable_tokens=prompt - new, idle_ns=None if ended_ns is None
                    else begin_ns - ended_ns,
                )  # fmt: skip
            call = Call(
                id=str(number), body={"messages": Raw(b" " * (4 * int(calls.prompt[number])))},
                start_ns=begin_ns,
                stream=bool(calls.stream[number]), notes=Notes(session=session),
            )  # fmt: skip
            first_ns, target, outcome = UNKNOWN, UNKNOWN, "ok"
            try:
                reply: Reply = await service(call)
            except Fault:
                outcome = "failed"
            else:
                first_ns, target = clock.now_ns() - begin_ns, TARGETS.index(reply.target)
                async with reply:
                    await reply.finished()
            ended_ns, choice = clock.now_ns(), call.notes.choice
            at_us = EPOCH_US + (begin_ns - START_NS) // 1000
            rows[number] = (
                at_us,
                OUTCOMES.index(outcome),
                target,
                first_ns,
                ended_ns - begin_ns,
                begin_ns,
                UNKNOWN if choice is None else round(choice.odds * MILLION),
            )

    def _logged(
        self, rows: list[tuple[int, ...]], known: bool
    ) -> tuple[RequestColumns, Outcomes, Integers]:
        came_us, outcome, target, first_ns, end_ns, begin_ns, ppm = np.array(rows, np.int64).T
        calls = self.calls
        order = np.argsort(came_us, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        answered = outcome == 0
        found: list[tuple[int, ...]] = []
        faults: dict[LoggedFault, int] = {}
        for number, where, o in self.attempts:
            fault = UNKNOWN
            if o.fault is not None:
                key = LoggedFault(o.fault.type, o.fault.kind, o.fault.phase, o.fault.status)
                fault = faults.setdefault(key, len(faults))
            start = int(begin_ns[number])
            times = [
                UNKNOWN if at is None else at - start
                for at in (o.sent_ns, o.first_token_ns, o.last_token_ns)
            ]
            counts = (
                o.input_tokens,
                o.cached_tokens,
                o.cache_write_tokens,
                o.cache_write_1h_tokens,
                o.output_tokens,
            )
            tokens = [UNKNOWN if each is None else each for each in counts]
            found.append(
                (int(place[number]), where, OUTCOMES.index(o.outcome), fault, 0, 0, 0, *times,
                o.end_ns - start,
                 *tokens, o.status)
            )  # fmt: skip
        found.sort(key=lambda one: one[0])
        columns = dict(
            zip(LoggedAttempts.__struct_fields__, np.array(found, np.int64).T.copy(), strict=True)
        )
        logged = RequestColumns(
            targets=list(TARGETS),
            clients=[""],
            faults=list(faults),
            attempts=LoggedAttempts(**columns),
            calls=CallColumns(
                came_us=came_us[order], stream=calls.stream[order], outcome=outcome[order],
                client=np.zeros(len(order), np.int64), target=target[order],
                first_token_ns=first_ns[order],
                end_ns=end_ns[order], input_tokens=np.where(answered | known, calls.prompt,
                UNKNOWN)[order],
                output_tokens=np.where(answered, calls.output, UNKNOWN)[order],
                session=calls.session[order], choice=np.full(len(order), UNKNOWN),
                choice_ppm=ppm[order],
                agent=np.zeros(len(order), np.int64), turn=calls.turn[order],
                new_tokens=calls.new[order],
                reusable_tokens=np.where(calls.session == UNKNOWN, UNKNOWN,
                calls.prompt - calls.new)[order],
            ),
        )  # fmt: skip
        sorted_outcomes = logged_outcomes(logged, prompt_tokens(logged), self.info)
        fields = {
            name: getattr(sorted_outcomes, name)[place] for name in Outcomes.__struct_fields__
        }
        return logged, Outcomes(**fields), order


class _Target:
    def __init__(self, name: str, world: World) -> None:
        self._name = name
        self._number = TARGETS.index(name)
        self._provider = world.providers[name]
        self._world = world

    def __repr__(self) -> str:
        return f'"{self._name}"'

    async def __call__(self, call: Call) -> _Reply:
        call.notes.attempts += 1
        world, provider, which, number = self._world, self._provider, self._number, int(call.id)
        begin_ns, begin_s = clock.now_ns(), now_s()
        calls, attempt = world.calls, f"{call.id}.{call.notes.attempts}"
        prompt, output = int(calls.prompt[number]), int(calls.output[number])

        def observe(
            outcome: str, first_ns: int | None, cached: int, fault: FaultRecord | None = None
        ) -> None:
            now_ns, whole = clock.now_ns(), outcome == "ok"
            observed = Observation(
                id=attempt, call=call.id, target=self._name, outcome=outcome,  # type: ignore[arg-type] # one of three
                fault=fault, streamed=call.stream, start_ns=begin_ns, reused=True,
                sent_ns=begin_ns, head_ns=first_ns,
                first_event_ns=first_ns, first_token_ns=first_ns, first_answer_ns=first_ns,
                last_token_ns=now_ns if first_ns else None, end_ns=now_ns,
                status=fault.status if fault else 200 if first_ns else 0, input_tokens=prompt
                if whole else None,
                cached_tokens=cached if whole else None, output_tokens=output if whole else None,
                token_source="usage" if whole else "",
            )  # fmt: skip
            world.attempts.append((number, which, observed))
            world.states.observe(observed)

        if refused := self._refused(number, begin_s, call.notes.attempts):
            status, after_s = refused
            try:
                await asyncio.sleep(after_s)
            except asyncio.CancelledError:
                observe("cancelled", None, 0)
                raise
            kind = f"http_{status}"
            record = FaultRecord(
                type="ProviderFault", kind=kind, phase="head", message="", status=status
            )
            observe("failed", None, 0, record)
            raise ProviderFault("no", kind=kind, phase="head", target=self._name, status=status)
        cached = self._cached(number, begin_s)
        level = world.level(which, provider, begin_s) * (1 + provider.load * world.in_flight[which])
        scattered = level * math.exp(provider.scatter * world.noise[number, which])
        ttft_s = scattered * (provider.fixed + provider.per_new * (prompt - cached))
        answer_s = level * output / provider.tps
        if not call.stream:
            ttft_s, answer_s = ttft_s + answer_s, 0.0
        world.in_flight[which] += 1
        try:
            await asyncio.sleep(ttft_s)
        except BaseException:
            world.in_flight[which] -= 1
            observe("cancelled", None, 0)
            raise
        first_ns = clock.now_ns()
        if calls.session[number] != UNKNOWN:
            world.caches[which, int(calls.session[number])] = prompt, begin_s

        def ended(outcome: str) -> None:
            world.in_flight[which] -= 1
            observe(outcome, first_ns, cached)

        return _Reply(self._name, answer_s, ended)

    def _refused(self, number: int, at_s: float, attempts: int) -> tuple[int, float] | None:
        provider, world = self._provider, self._world
        if any(begin <= at_s / world.seconds < end for begin, end in provider.outages):
            return 503, FAILS_AFTER_S
        if provider.limit:
            sent = world.sent[self._number]
            while sent and sent[0] <= at_s - 60:
                sent.popleft()
            if len(sent) >= provider.limit:
                return 429, REFUSES_AFTER_S
            sent.append(at_s)
        chance = (world.chance[number, self._number] + 0.618 * attempts) % 1.0
        return (500, FAILS_AFTER_S) if chance < provider.fails else None

    def _cached(self, number: int, at_s: float) -> int:
        calls = self._world.calls
        if calls.session[number] == UNKNOWN:
            return 0
        tokens, last_s = self._world.caches.get(
            (self._number, int(calls.session[number])), (0, -math.inf)
        )
        if at_s - last_s > self._provider.lifetime_s:
            return 0
        return min(tokens, int(calls.prompt[number] - calls.new[number])) // 128 * 128


def now_s() -> float:
    return (clock.now_ns() - START_NS) / NS_PER_S


def _spells(
    random: np.random.Generator, every_s: float, length_s: float, hours: float
) -> list[tuple[float, float]]:
    if not every_s:
        return []
    found, at_s = [], float(random.exponential(every_s))
    while at_s < hours * 3600:
        length = float(random.exponential(length_s))
        found.append((at_s, at_s + length))
        at_s += length + float(random.exponential(every_s))
    return found
