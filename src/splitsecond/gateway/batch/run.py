"""The requests of a batch, sent as fast as their targets take them, and each answered once.

A request that fails for load, for a broken connection or in time is asked again, at most `TRIES` times in all, and
each time after a longer pause; one that is wrong in itself, or that nobody answers, is written down as refused. Where
a key is refused or money has run out all others would fail alike: then the batch stops, and what was not asked is left
for another run.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec
from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import AllFailed, Fault, TimedOut
from splitsecond.gateway.batch.lines import Answer, Item, Response
from splitsecond.gateway.batch.pace import Window
from splitsecond.gateway.doors import assembly
from splitsecond.gateway.records.books import Books, Page
from splitsecond.gateway.refusal import decisive, refusal
from splitsecond.policy.remedy import ejected, remedy, retry_after_ns
from splitsecond.policy.targets.verdict import of_fault
from splitsecond.service import Call, Service
from splitsecond.timing.timeline import record_fault

TRIES = 6
FIRST_PAUSE_NS = clock.NS_PER_S
LONGEST_WAIT_NS = 300 * clock.NS_PER_S
"""Whoever asks us to wait for longer is not waited for."""
ENDS_WITHIN_NS = 2 * clock.NS_PER_S
"""Within which an attempt that has said everything is over, also where its provider leaves the connection open."""
OK = 200


class Outcome(Struct, frozen=True):
    """One request's end: its line of the answers, and whether it was answered."""

    answer: Answer
    ok: bool


class Batch:
    """Use it once. `service` gives what answers for a model; `put` takes each outcome as it comes."""

    def __init__(
        self,
        service: Callable[[str], Service],
        books: Books,
        window: Window,
        put: Callable[[Outcome], None],
        *,
        chance: Random | None = None,
    ) -> None:
        self.window = window
        self.asked_again = 0
        self.stopped: Fault | None = None
        self._service = service
        self._books = books
        self._put = put
        self._chance = chance or Random()
        self._left: deque[Item] = deque()
        self._end = False

    def stop(self) -> None:
        """Sends nothing more; what is under way is answered."""
        self._end = True

    async def run(self, items: Iterable[Item]) -> int:
        """Answers `items`. Returns how many were not asked, as it was stopped before; see `stopped`."""
        self._left = deque(items)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.window.most, len(self._left))):
                group.create_task(self._work())
        return len(self._left)

    async def accounted(self) -> None:
        """Waits until all attempts are over: that of a whole answer is so only when its connection is free again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN_NS / clock.NS_PER_S):
                await self._books.whole()

    async def _work(self) -> None:
        while self._left and not self._end:
            item = self._left.popleft()
            outcome = await self._answered(item)
            if outcome is None:
                self._left.appendleft(item)
            else:
                self._put(outcome)

    async def _answered(self, item: Item) -> Outcome | None:
        """None: the batch was stopped before it was answered."""
        fault: Fault | None = None
        for tried in range(TRIES):
            if tried:
                pause_ns = FIRST_PAUSE_NS * 2 ** (tried - 1)
                await asyncio.sleep(pause_ns * self._chance.uniform(0.5, 1.5) / clock.NS_PER_S)
                self.asked_again += 1
            entered_ns = await self.window.enter()
            if self._end:
                self.window.leave(entered_ns)
                return None
            page = self._page(item)
            try:
                return await self._once(item, page, entered_ns)
            except Fault as failed:
                fault = page.fault = failed.kept()
                wait_ns = retry_after_ns(fault)
                self.window.leave(entered_ns, refused=remedy(fault) == "later", wait_ns=min(wait_ns, LONGEST_WAIT_NS))
                self._books.close(page, refusal(fault).status)
                if self._is_final(fault, wait_ns):
                    break
            except BaseException:
                self.window.leave(entered_ns)
                self._books.close(page, 0, complete=False)
                raise
        if fault is None or self._end:
            return None
        no = refusal(fault, item.door.dialect)
        response = Response(no.status, page.call.id, msgspec.Raw(no.body))
        return Outcome(Answer(item.custom_id, response, id=page.call.id), ok=False)

    async def _once(self, item: Item, page: Page, entered_ns: int) -> Outcome:
        call, whole = page.call, assembly(page.call)
        async with await self._service(item.asked.model)(call) as reply:
            if not reply.empty:
                page.first_token_ns = clock.now_ns()
            while data := await reply.read():
                whole.feed(data)
            page.target = reply.target
        body = msgspec.Raw(whole.answer())
        self.window.leave(entered_ns)
        self._books.close(page, OK)
        return Outcome(Answer(item.custom_id, Response(OK, call.id, body), page.target, call.id), ok=True)

    def _page(self, item: Item) -> Page:
        call = Call(
            id=f"batch-{self._chance.getrandbits(128):032x}",
            operation=item.door.operation,
            body={name: value for name, value in item.asked.body.items() if name not in ("stream", "stream_options")},
            dialect=item.door.dialect,
            start_ns=clock.now_ns(),
            stream=False,
        )
        return self._books.open(call, item.asked.model)

    def _is_final(self, fault: Fault, wait_ns: int) -> bool:
        may_pass = remedy(fault) in ("again", "later") or ejected(fault) or isinstance(decisive(fault), TimedOut)
        if not may_pass and any(of_fault(record_fault(cause)) in ("locked", "unpaid") for cause in _causes(fault)):
            self.stopped, self._end = fault, True
        return not may_pass or wait_ns > LONGEST_WAIT_NS


def _causes(fault: Fault) -> Sequence[Fault]:
    return fault.causes if isinstance(fault, AllFailed) else (fault,)
