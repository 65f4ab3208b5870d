"""Execution of a batch: sends its requests as fast as their targets accept them, and reports one
result for each.

A request that fails for a reason that may pass (load, a broken connection, a timeout) is retried
with growing pauses, up to `TRIES` attempts. If a provider rejects its key or the account has no
money left, all requests would fail: the batch stops, and the rest is left for another run.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from random import Random

import msgspec
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import Fault, TimedOut
from splitsecond.core.service import Call, Service
from splitsecond.core.timing.timeline import record_fault
from splitsecond.routing.batch.batch_file import BatchItem, BatchResponse, BatchResult
from splitsecond.routing.batch.concurrency_window import ConcurrencyWindow
from splitsecond.routing.machinery.fault_handling import causes, ejected, remedy, retry_after_ns
from splitsecond.routing.requests.error_response import error_response
from splitsecond.routing.router.call_tracker import CallTracker, OpenCall, decisive
from splitsecond.routing.targets.verdict import of_fault

TRIES = 6
"""Attempts of one request, including the first."""
FIRST_PAUSE_NS = clock.NS_PER_S
"""Pause before the first retry; each further pause is twice as long, and all vary by ±50%."""
LONGEST_WAIT_NS = 300 * clock.NS_PER_S
"""A request whose target asks for a longer wait is not retried."""
ENDS_WITHIN_NS = 2 * clock.NS_PER_S
"""Longest wait for attempts that have delivered their response, but whose providers keep the
connection open."""
OK = 200


class BatchOutcome(Struct, frozen=True):
    result: BatchResult
    ok: bool


class Batch:
    """One batch; use it once.

    `retries`: retries so far. `stopped`: the fault that stopped the batch, if one did.
    """

    def __init__(
        self,
        service: Callable[[str], Service],
        tracker: CallTracker,
        window: ConcurrencyWindow,
        put: Callable[[BatchOutcome], None],
        *,
        chance: Random | None = None,
    ) -> None:
        """`chance`: source of the retry pauses' random part."""
        self.window = window
        self.retries = 0
        self.stopped: Fault | None = None
        self._service = service
        self._tracker = tracker
        self._put = put
        self._chance = chance or Random()
        self._left: deque[BatchItem] = deque()
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self, items: Iterable[BatchItem]) -> int:
        self._left = deque(items)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.window.most, len(self._left))):
                group.create_task(self._work())
        return len(self._left)

    async def wait_for_attempts(self) -> None:
        """Wait until all attempts are recorded, `ENDS_WITHIN_NS` at most: an attempt ends after its
        response, when its connection is free again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN_NS / clock.NS_PER_S):
                await self._tracker.wait_for_attempts()

    async def _work(self) -> None:
        while self._left and not self._stopping:
            item = self._left.popleft()
            outcome = await self._send(item)
            if outcome is None:
                self._left.appendleft(item)
            else:
                self._put(outcome)

    async def _send(self, item: BatchItem) -> BatchOutcome | None:
        fault: Fault | None = None
        for retry in range(TRIES):
            if retry:
                pause_ns = FIRST_PAUSE_NS * 2 ** (retry - 1)
                await asyncio.sleep(pause_ns * self._chance.uniform(0.5, 1.5) / clock.NS_PER_S)
                self.retries += 1
            entered_ns = await self.window.enter()
            if self._stopping:
                self.window.leave(entered_ns)
                return None
            open_call = self._open(item)
            try:
                return await self._attempt(item, open_call, entered_ns)
            except Fault as failed:
                fault = open_call.fault = failed.without_traceback()
                wait_ns = retry_after_ns(fault)
                self.window.leave(
                    entered_ns,
                    refused=remedy(fault) == "later",
                    wait_ns=min(wait_ns, LONGEST_WAIT_NS),
                )
                self._tracker.close(open_call, error_response(fault).status)
                if self._is_final(fault, wait_ns):
                    break
            except BaseException:
                self.window.leave(entered_ns)
                self._tracker.close(open_call, 0, complete=False)
                raise
        if fault is None or self._stopping:
            return None
        error = error_response(fault, item.endpoint.format)
        response = BatchResponse(error.status, open_call.call.id, msgspec.Raw(error.body))
        return BatchOutcome(BatchResult(item.custom_id, response, id=open_call.call.id), ok=False)

    async def _attempt(self, item: BatchItem, open_call: OpenCall, entered_ns: int) -> BatchOutcome:
        call, assembly = open_call.call, item.endpoint.format.assembly()
        async with await self._service(item.request.model)(call) as reply:
            if not reply.empty:
                open_call.first_token_ns = clock.now_ns()
            while data := await reply.read():
                assembly.feed(data)
            open_call.target = reply.target
        body = msgspec.Raw(assembly.answer())
        self.window.leave(entered_ns)
        self._tracker.close(open_call, OK)
        response = BatchResponse(OK, call.id, body)
        return BatchOutcome(
            BatchResult(item.custom_id, response, open_call.target, call.id), ok=True
        )

    def _open(self, item: BatchItem) -> OpenCall:
        call = Call(
            id=f"batch-{self._chance.getrandbits(128):032x}",
            operation=item.endpoint.operation,
            body={
                name: value
                for name, value in item.request.body.items()
                if name not in ("stream", "stream_options")
            },
            api_format=item.endpoint.format.name,
            start_ns=clock.now_ns(),
            stream=False,
        )
        return self._tracker.open(call, item.request.model)

    def _is_final(self, fault: Fault, wait_ns: int) -> bool:
        may_pass = (
            remedy(fault) in ("again", "later")
            or ejected(fault)
            or isinstance(decisive(fault), TimedOut)
        )
        if not may_pass and any(
            of_fault(record_fault(cause)) in ("locked", "unpaid") for cause in causes(fault)
        ):
            self.stopped, self._stopping = fault, True
        return not may_pass or wait_ns > LONGEST_WAIT_NS
