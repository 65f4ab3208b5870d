"""Calls in flight, and the record of each call when it and all its attempts have ended.

Observations travel with their call: the call's notes carry the observer that receives the
observation of each attempt. An attempt may end after its call, because the connection of a complete
answer is read to its end for a short time. The call's notes count the requests that were sent, and
each leaves one observation, so the record is written as soon as that many have arrived.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import CLIENT_LEFT, AllFailed, Fault
from splitsecond.core.internal_errors import contained, report_internal_error
from splitsecond.core.money.closed_early import Billing, CostRange, complete_tokens, cost_range
from splitsecond.core.observation import Observation, Outcome
from splitsecond.core.service import Call
from splitsecond.core.upstream.prompt_size import USUAL_OUTPUT_TOKENS
from splitsecond.core.wire.output_limit import output_limit
from splitsecond.log.store.call_record import CallAccounting, CallRecord
from splitsecond.routing.machinery.call_observation import call_observations
from splitsecond.routing.machinery.fault_handling import unsent
from splitsecond.routing.router.prompt_tokens import prompt_size
from splitsecond.routing.router.redaction import redact

MAX_WAITING = 4096
"""Ended calls that wait for an observation. Beyond that the oldest is recorded without it."""
SERVER_ERROR = 500
CHARACTERS_PER_TOKEN = 4
"""Estimate for answers whose tokens were not counted."""
BROKEN_OFF = "broken_off"
"""Fault of an answer that was not delivered to its end: the process stopped, or has a bug."""

RecordSink = Callable[[CallRecord], None]


class OpenCall(Struct, kw_only=True):
    """One call in flight. Its caller fills in the result.

    `release` is called when the call and its attempts have ended; it releases what was reserved for
    the call. `charged`: the cost counts against a limit. `charge`: takes each attempt for another
    limit. `target`: the target that answers, "" before that. `fault`: what the client received, or
    would have. `complete`: the client received everything. `recorded`: the record is written.
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
    charge: Callable[[Observation], None] | None = None
    recorded: bool = False

    @property
    def has_all_attempts(self) -> bool:
        return len(self.attempts) >= self.call.notes.attempts


class CallTracker:
    """Calls in flight. Each of `sinks` gets the record of a call when it has ended.

    `charge` gets a client's name and an attempt, whose tokens are estimated if they were not
    counted. `context` returns the context length of a target, None if it is not known.
    """

    def __init__(
        self,
        *sinks: RecordSink,
        charge: Callable[[str, Observation], None] | None = None,
        context: Callable[[str], int | None] = lambda target: None,
    ) -> None:
        self._sinks = sinks
        self._charge = charge
        self._context = context
        self._waiting: OrderedDict[str, OpenCall] = OrderedDict()
        self._all_recorded: asyncio.Future[None] | None = None

    def open(
        self,
        call: Call,
        route: str,
        release: Callable[[], None] | None = None,
        *,
        charged: bool = True,
        charge: Callable[[Observation], None] | None = None,
    ) -> OpenCall:
        open_call = OpenCall(
            call=call, route=route, release=release, charged=charged, charge=charge
        )
        call.notes.observer = partial(self._observe, open_call)
        return open_call

    def close(self, open_call: OpenCall, status: int, *, complete: bool = True) -> None:
        open_call.status = status or SERVER_ERROR
        open_call.complete = complete
        open_call.end_ns = clock.now_ns()
        if open_call.has_all_attempts:
            self._record(open_call)
            return
        self._waiting[open_call.call.id] = open_call
        if len(self._waiting) > MAX_WAITING:
            oldest = self._waiting.popitem(last=False)[1]
            self._record(oldest)
            # its last attempts still have to be charged
            oldest.call.notes.observer = partial(self._observe, oldest)

    async def wait_for_attempts(self) -> None:
        if self._waiting:
            self._all_recorded = asyncio.get_running_loop().create_future()
            await self._all_recorded

    def flush(self) -> None:
        while self._waiting:
            self._record(self._waiting.popitem(last=False)[1])

    def _observe(self, open_call: OpenCall, attempt: Observation) -> None:
        if open_call.recorded and open_call.has_all_attempts:
            return
        call = open_call.call
        charges = open_call.charge is not None or (open_call.charged and self._charge is not None)
        if charges or attempt.token_source == "estimate":
            # so that the log, the metrics and the charge agree: after a restart the log says what
            # was charged
            attempt = with_estimated_tokens(attempt, call, self._context)
        open_call.attempts.append(attempt if attempt.fault is None else redact(attempt, call.body))
        if charges:
            self._charge_for(attempt, open_call)
        if open_call.recorded:
            if open_call.has_all_attempts:
                call.notes.observer = None  # see `_record`
            return
        if open_call.end_ns and open_call.has_all_attempts:
            del self._waiting[call.id]
            with contained("observer"):
                self._record(open_call)
            if self._all_recorded is not None and not self._waiting:
                self._end_wait(self._all_recorded)

    def _charge_for(self, attempt: Observation, open_call: OpenCall) -> None:
        if open_call.charged and self._charge is not None:
            with contained("observer"):
                self._charge(open_call.call.client, attempt)
        if open_call.charge is not None:
            with contained("observer"):
                open_call.charge(attempt)

    def _end_wait(self, waiting: asyncio.Future[None]) -> None:
        if not waiting.done():
            waiting.set_result(None)
        self._all_recorded = None

    def _record(self, open_call: OpenCall) -> None:
        open_call.recorded = True
        # it holds the call, which holds the notes: a reference cycle
        open_call.call.notes.observer = None
        if open_call.release is not None:
            with contained("observer"):
                open_call.release()
        record = call_record(open_call)
        for sink in self._sinks:
            try:
                sink(record)
            except Exception as error:
                report_internal_error("observer", error)


def with_estimated_tokens(
    attempt: Observation, call: Call, context: Callable[[str], int | None] = lambda target: None
) -> Observation:
    """Return `attempt`, with estimated tokens if they were not counted: it was closed early, or the
    target counts none or reports counts that cannot be true.

    Otherwise a client that leaves before the count, which comes last, would not pay for its
    prompts.
    """
    if (
        attempt.input_tokens is not None
        and attempt.output_tokens is not None
        and attempt.token_source == "usage"
    ):
        return attempt
    failed = (
        attempt.fault is not None
        and attempt.fault.type != "TimedOut"
        and attempt.first_token_ns is None
    )
    if attempt.sent_ns is None or failed:
        return attempt  # providers do not bill these
    input_tokens = attempt.input_tokens
    if input_tokens is None:
        estimate = call.notes.estimate
        prompt = prompt_size(call) if estimate is None else estimate.prompt
        input_tokens = prompt.within(context(attempt.target))
    output_tokens = attempt.output_tokens or 0
    if attempt.token_source != "usage":  # events were counted, and one may hold several tokens
        output_tokens = max(output_tokens, sum(attempt.token_lengths) // CHARACTERS_PER_TOKEN)
    return msgspec.structs.replace(
        attempt, input_tokens=input_tokens, output_tokens=output_tokens, token_source="estimate"
    )


def call_cost(open_call: OpenCall, billing: Billing) -> CostRange | None:
    """Return the cost of all attempts of a call, losers included; None if it is not known, or not
    yet.

    A prompt that was not counted is as long as that of another attempt, as in the metrics and in
    `splitsecond cost`.
    """
    if not open_call.has_all_attempts:
        return None
    call, attempts = open_call.call, open_call.attempts
    total = prompt = None
    if len(attempts) > 1:
        prompt = next(
            (each.input_tokens for each in attempts if each.input_tokens is not None), None
        )
    for attempt in attempts:
        if attempt.input_tokens is None and prompt is not None:
            attempt = msgspec.structs.replace(attempt, input_tokens=prompt)
        billed = with_estimated_tokens(attempt, call)
        if attempt.closed_early:
            whole_tokens = complete_tokens(attempts) or USUAL_OUTPUT_TOKENS
            own = cost_range(
                billed,
                billing,
                whole_tokens=whole_tokens,
                most_tokens=output_limit(call.body) or whole_tokens,
            )
            if own is None:
                return None
        elif (usd := billing.usd(billed)) is not None:
            own = CostRange(usd, usd, usd)
        else:
            return None
        total = own if total is None else total.plus(own)
    return CostRange() if total is None else total


def decisive(fault: Fault) -> Fault:
    if not isinstance(fault, AllFailed):
        return fault
    sent = (cause for cause in fault.causes if not unsent(cause))
    return next(sent, fault.causes[0])


def call_record(open_call: OpenCall) -> CallRecord:
    call = open_call.call
    ok = open_call.complete and open_call.fault is None and open_call.status < 400
    record = CallRecord(  # with more than 15 arguments Python would build a dictionary of them
        call=call.id,
        start_ns=call.start_ns,
        end_ns=open_call.end_ns,
        first_token_ns=open_call.first_token_ns,
        route=open_call.route,
        client=call.client,
        operation=call.operation,
        stream=call.stream,
        status=open_call.status,
        session=call.notes.session,
        target=open_call.target,
        outcome="ok" if ok else _outcome(open_call),
        fault="" if ok else _fault(open_call),
        wall_us=clock.wall_offset_us(),
        attempts=_with_roles(open_call),
    )
    # it is new, and nobody has seen it
    if traceparent := call.hints.get("traceparent"):
        msgspec.structs.force_setattr(record, "traceparent", traceparent)
    if call.notes.cache:
        msgspec.structs.force_setattr(record, "cache", call.notes.cache)
    if call.notes.choice is not None:
        msgspec.structs.force_setattr(record, "choice", call.notes.choice)
    if call.notes.team:
        accounting = CallAccounting(team=call.notes.team)
        msgspec.structs.force_setattr(record, "accounting", accounting)
    if len(open_call.attempts) > 1:
        record = msgspec.structs.replace(record, output_limit=output_limit(call.body))
    return record


def _outcome(open_call: OpenCall) -> Outcome:
    return "cancelled" if open_call.status == CLIENT_LEFT else "failed"


def _fault(open_call: OpenCall) -> str:
    if open_call.fault is not None:
        return decisive(open_call.fault).kind
    return "" if open_call.complete or open_call.status == CLIENT_LEFT else BROKEN_OFF


def _with_roles(open_call: OpenCall) -> tuple[Observation, ...]:
    attempts = open_call.attempts
    if open_call.target and len(attempts) == 1:
        return (msgspec.structs.replace(attempts[0], role="winner"),)
    if open_call.target and attempts:
        return tuple(
            call_observations(attempts, target=open_call.route, condition="", role="measured")[:-1]
        )
    # none of them answered
    return tuple(msgspec.structs.replace(attempt, role="loser") for attempt in attempts)
