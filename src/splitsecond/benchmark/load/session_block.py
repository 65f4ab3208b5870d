"""Sends one block of sessions: a number of them at a time, or new ones at a rate.

Each slot begins at a random turn of a random session, after a request that fills the prompt cache
with what came before. When all slots are there, their next turns are due after a random part of a
response and the tool time after it, as in a load that has run for long. A session that has ended,
or that broke, is replaced by one from its first turn on. Measuring ends with the last of the
block's measured requests, while all slots are still busy; then the sessions are cut off.

The request of a turn is made while its tool runs, so that it leaves when it is due.
"""

import asyncio
from typing import Any

from splitsecond.benchmark.load.block import BlockRun, RequestInFlight
from splitsecond.benchmark.load.measured_call import MeasuredCall
from splitsecond.benchmark.load.session_player import Player, SessionPrompts
from splitsecond.benchmark.workload.answer_checks import answer_of
from splitsecond.core import clock
from splitsecond.core.events import Broken
from splitsecond.core.observation import Role
from splitsecond.core.service import Call

MAX_PRIMING = 4
"""Requests that fill the cache at a time. More would only queue up at a server whose prefill is
slow."""
UNLIMITED = 1 << 40


class SessionBlockRun(BlockRun):
    """One block of sessions while it is sent."""

    def _prepare(self) -> None:
        self._prompts = SessionPrompts(
            self._composer.workload, self._block.condition, self._block.round
        )
        self._left = {"warmup": 0, "measured": self._block.requests, "cooldown": UNLIMITED}
        self._filled.set()
        self._priming = asyncio.Semaphore(MAX_PRIMING)
        self._unprimed = self._block.concurrency or 0
        self._in_progress = self._prompts.in_progress(self._block)
        self._primed = asyncio.Event()

    async def closed_loop(self, concurrency: int) -> None:
        self._prepare()
        await self._begin()

        async def slot() -> None:
            await self._joined()
            while self._goes_on:
                await self._whole()

        async with asyncio.TaskGroup() as group:
            self._unmeasured = {group.create_task(slot()) for _ in range(concurrency)}

    async def open_loop(self) -> None:
        self._prepare()
        begin_ns = await self._begin()
        async with asyncio.TaskGroup() as group:
            self._unmeasured = {
                group.create_task(self._joined()) for _ in range(self._block.concurrency or 0)
            }
            self._unmeasured.add(group.create_task(self._start_when_due(begin_ns, group)))

    async def _start_when_due(self, begin_ns: int, group: asyncio.TaskGroup) -> None:
        if self._unprimed:
            await self._primed.wait()
            begin_ns = clock.now_ns()
        for offset_ns in self._block.due:
            await self._pacer.sleep_until(begin_ns + offset_ns)
            if not self._goes_on:
                return
            self._unmeasured.add(group.create_task(self._whole()))

    @property
    def _goes_on(self) -> bool:
        return not self.abandoned and not self._over

    async def _joined(self) -> None:
        """Play a session from a random turn on, when all slots have filled the cache."""
        number = next(self._numbers)
        random = self._prompts.random(number)
        session, first = self._in_progress.pop()
        player = self._prompts.player(session, number)
        share = random.random()
        try:
            primed = first == 1 or await self._prime(player, first - 1)
        finally:
            self._unprimed -= 1
            if not self._unprimed:
                self._primed.set()
        await self._primed.wait()
        if primed:
            response_ns = round(self._block.response_s * clock.NS_PER_S)
            since_ns = round(share * (response_ns + player.wait_ns(first)))
            await self._play(player, first, clock.now_ns() + response_ns - since_ns)

    async def _whole(self) -> None:
        number = next(self._numbers)
        session = self._prompts.sessions.next_session(self._prompts.random(number))
        await self._play(self._prompts.player(session, number), 1, clock.now_ns())

    async def _prime(self, player: Player, number: int) -> bool:
        """Fill the cache with the prompt of a turn. Return whether the server answered.

        A long prompt takes milliseconds to make. So it is made when it is sent, or those of all
        slots together would keep this process busy for so long that it loses its priority
        (`priority`).
        """
        async with self._priming:
            player.skip(number + 1)
            body = player.priming_body()
            return (
                await self._turn(player, number, "warmup", clock.now_ns(), body, primes=True)
                is not None
            )

    async def _play(self, player: Player, first: int, ended_ns: int) -> bool:
        """Play the turns from `first` on. `ended_ns`: when the answer before it ended. Return
        whether all went well."""
        for number in range(first, len(player.turns) + 1):
            turn = player.turns[number - 1]
            if turn.branches and number > first:
                players = [player.branch(branch) for branch in turn.branches]
                async with asyncio.TaskGroup() as group:
                    playing = [group.create_task(self._play(each, 1, ended_ns)) for each in players]
                if not all(each.result() for each in playing):
                    return False
                ended_ns = clock.now_ns()
            due_ns = max(ended_ns + player.wait_ns(number), clock.now_ns())
            body = player.body(number)
            await self._pacer.sleep_until(due_ns)
            role = self._take()
            if role is None:
                return False
            self._monitor.dispatched(due_ns)
            answered_ns = await self._turn(player, number, role, due_ns, body)
            if answered_ns is None:
                return False
            del body  # it refers to the conversation, which then grows without a copy
            ended_ns = answered_ns
        return True

    async def _turn(
        self,
        player: Player,
        number: int,
        role: Role,
        due_ns: int,
        body: dict[str, Any],
        *,
        primes: bool = False,
    ) -> int | None:
        """Send one turn and wait for its answer. Return when that ended; None if it failed."""
        block = self._block
        measured = MeasuredCall(
            condition=block.condition,
            target=block.target,
            role=role,
            emit=self._emit,
            turn=player.place(number, primes=primes),
        )
        call = Call(
            id=f"{player.call_prefix}{'p' if primes else ''}{number}",
            body=body,
            due_ns=due_ns,
            start_ns=clock.now_ns(),
            hints={"prompt_cache": "end", "session": player.key},
            notes=measured.notes(),
        )
        complete = False
        self._monitor.began()
        with RequestInFlight(self, call, measured, role):
            self.pay(call)
            async with await self._service(call) as reply:
                self._unanswered = None
                events = await reply.collected()
            complete = not (events and isinstance(events[-1], Broken))
        if not complete:
            return None
        counts = measured.observation
        if primes:
            player.primed(counts)
        else:
            player.answered(number, *answer_of(events), counts)
        return clock.now_ns() if counts is None else counts.end_ns
