"""What became of each call: its attempts, put together when it is over, into the log's one record of it.

Attempts end where nobody knows of calls; each leaves its observation with whoever listens, and that is `observe`. A
call that is over may still have an attempt whose end is to come: an answer that said everything, on a connection whose
end is waited for a little while. The call's notes say how many requests were sent for it, and each leaves one
observation; so the record is made when the call is over and as many have come. `flush` makes those that still wait.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import msgspec
from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.gateway.discretion import discreet
from splitsecond.gateway.refusal import decisive
from splitsecond.gateway.visit import LEFT
from splitsecond.policy.account import account
from splitsecond.policy.choosing.prompt_size import input_tokens
from splitsecond.service import Call
from splitsecond.store.served import Served
from splitsecond.timing.observation import Observation, Outcome

MOST_WAITING = 4096
"""Calls that are over and lack an observation. One of more than that is written down without it."""
SERVER_ERROR = 500
BROKEN_OFF = "broken_off"
"""The fault of an answer that we did not give to its end: the gateway went down, or has a bug."""

Keep = Callable[[Served], None]


class Page(Struct, kw_only=True):
    """One call, while it is served. Whoever serves it fills in what becomes of it.

    `release`: to be called when all of it is over; it gives back what was set aside for it. `charged`: what it costs is
    counted against a limit.
    `target`: who answers, "" while nobody does. `fault`: what the client was told, or would have been. `complete`: it
    was told all that there was to tell.
    """

    call: Call
    route: str
    first_token_ns: int | None = None
    target: str = ""
    fault: Fault | None = None
    status: int = 0
    complete: bool = False
    end_ns: int = 0
    attempts: list[Observation] = []
    release: Callable[[], None] | None = None
    charged: bool = True


class Books:
    """The calls under way. Each of `keeps` gets the record of each when it is over; `charge` a client and its
    attempt, with its tokens guessed where they are not known."""

    def __init__(self, *keeps: Keep, charge: Callable[[str, Observation], None] | None = None) -> None:
        self._keeps = keeps
        self._charge = charge
        self._open: dict[str, Page] = {}
        self._waiting: OrderedDict[str, Page] = OrderedDict()
        self._emptied: asyncio.Future[None] | None = None

    def open(self, call: Call, route: str, release: Callable[[], None] | None = None, *, charged: bool = True) -> Page:
        """`call` came in, with `route` as its model. `release`, `charged`: see `Page`."""
        page = self._open[call.id] = Page(call=call, route=route, release=release, charged=charged)
        return page

    def observe(self, attempt: Observation) -> None:
        """An attempt has ended. One of no call that is known here is nobody's."""
        page = self._open.get(attempt.call)
        if page is None:
            page = self._waiting.get(attempt.call)
            if page is None:
                return
        page.attempts.append(attempt if attempt.fault is None else discreet(attempt, page.call.body))
        if page.charged and self._charge is not None:
            self._charge(page.call.client, counted(attempt, page.call))
        if page.end_ns and self._is_whole(page):
            del self._waiting[attempt.call]
            self._write(page)
            if self._emptied is not None and not self._waiting:
                if not self._emptied.done():
                    self._emptied.set_result(None)
                self._emptied = None

    def close(self, page: Page, status: int, *, complete: bool = True) -> None:
        """The call is over; `status` is what its client was told, 0 where nothing could be said any more."""
        page.status = status or SERVER_ERROR
        page.complete = complete
        page.end_ns = clock.now_ns()
        identity = page.call.id
        del self._open[identity]
        if self._is_whole(page):
            self._write(page)
            return
        self._waiting[identity] = page
        if len(self._waiting) > MOST_WAITING:
            self._write(self._waiting.popitem(last=False)[1])

    async def whole(self) -> None:
        """Returns when no call that is over waits for an observation any more."""
        if self._waiting:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def flush(self) -> None:
        """Writes down what still waits for an observation: the process ends."""
        while self._waiting:
            self._write(self._waiting.popitem(last=False)[1])

    def _is_whole(self, page: Page) -> bool:
        return len(page.attempts) >= page.call.notes.attempts

    def _write(self, page: Page) -> None:
        if page.release is not None:
            page.release()
        record = served(page)
        for keep in self._keeps:
            keep(record)


def counted(attempt: Observation, call: Call) -> Observation:
    """`attempt`, with a guess where its tokens were not counted to us: it was closed early, or nobody counts there.

    Else a client that leaves before the count, which comes last, would have its prompts for nothing.
    """
    if attempt.input_tokens is not None and attempt.output_tokens is not None:
        return attempt
    failed = attempt.fault is not None and attempt.fault.type != "TimedOut" and attempt.first_token_ns is None
    if attempt.sent_ns is None or failed:
        return attempt  # it came to nothing, which nobody bills
    given = input_tokens(call) if attempt.input_tokens is None else attempt.input_tokens
    return msgspec.structs.replace(attempt, input_tokens=given, output_tokens=attempt.output_tokens or 0)


def call_usd(page: Page, cost: Callable[[Observation], float | None]) -> float | None:
    """What the attempts of a call cost by `cost`, with those that lost; None where that is not known, or not yet."""
    usd = 0.0
    if len(page.attempts) < page.call.notes.attempts:
        return None
    for attempt in page.attempts:
        own = cost(counted(attempt, page.call))
        if own is None:
            return None
        usd += own
    return usd


def served(page: Page) -> Served:
    """The record of a call that is over."""
    call = page.call
    well = page.complete and page.fault is None and page.status < 400
    return Served(
        call=call.id,
        start_ns=call.start_ns,
        end_ns=page.end_ns,
        first_token_ns=page.first_token_ns,
        route=page.route,
        client=call.client,
        operation=call.operation,
        stream=call.stream,
        status=page.status,
        cache=call.notes.cache,
        target=page.target,
        outcome="ok" if well else _outcome(page),
        fault="" if well else _fault(page),
        attempts=_with_roles(page),
    )


def _outcome(page: Page) -> Outcome:
    """Of a call that did not go well."""
    return "cancelled" if page.status == LEFT else "failed"


def _fault(page: Page) -> str:
    if page.fault is not None:
        return decisive(page.fault).kind
    return "" if page.complete or page.status == LEFT else BROKEN_OFF


def _with_roles(page: Page) -> tuple[Observation, ...]:
    attempts = page.attempts
    if page.target and len(attempts) == 1:
        return (msgspec.structs.replace(attempts[0], role="winner"),)
    if page.target and attempts:
        return tuple(account(attempts, target=page.route, condition="", role="measured")[:-1])
    return tuple(msgspec.structs.replace(attempt, role="loser") for attempt in attempts)  # nobody has answered
