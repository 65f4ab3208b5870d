"""Sending of responses to the client: a stream as it arrives, or a whole response with its cost."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import Fault, InternalFault
from splitsecond.core.events import Usage
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.money.closed_early import Billing, CostRange
from splitsecond.core.observation import Observation
from splitsecond.core.service import WHOLE_OPERATIONS, Call, Reply
from splitsecond.core.serving.request_cycle import ClientLeft, RequestCycle
from splitsecond.core.wire.client_format import ClientFormat
from splitsecond.gateway.http.headers import (
    header_value,
    response_headers,
    server_timing,
    usd_value,
)
from splitsecond.routing.requests.error_response import Headers, error_response
from splitsecond.routing.router.call_tracker import OpenCall, call_cost, with_estimated_tokens

ENDS_WITHIN_NS = 20 * clock.NS_PER_MS
"""How long a complete response waits for the end of the provider's body, when the cost is known."""

Note = Callable[[bytes, str], None]
"""Takes a response, or whole events of one, and the target, which may have stored it."""


async def send_stream(
    cycle: RequestCycle,
    open_call: OpenCall,
    reply: Reply,
    form: ClientFormat,
    note: Note | None,
    *,
    usage: bool,
) -> None:
    relay = form.relay(open_call.call, open_call.target, usage=usage)
    cycle.begin_stream(response_headers(cycle, open_call), kind=form.stream_type)

    def take(data: bytes) -> bool:
        if not cycle.ready:
            return False
        if (whole := relay.feed(data)) and not cycle.complete:
            if note is not None:
                note(whole, open_call.target)
            cycle.write(whole, last=relay.done)
        return True

    reply.pass_on(take)
    try:
        while data := await reply.read():
            if (whole := relay.feed(data)) and not cycle.complete:
                if note is not None:
                    note(whole, open_call.target)
                await cycle.send(whole, last=relay.done)  # saves a write for the end of the body
        last = relay.rest()
    except Fault as fault:
        open_call.fault = fault.without_traceback()
        last = relay.error(error_response(fault, form).body)
    except ClientLeft:
        raise
    except Exception as error:
        report_internal_error("request", error)
        open_call.fault = InternalFault(phase="between tokens", target=open_call.target)
        last = relay.error(error_response(open_call.fault, form).body)
    if not cycle.complete:
        await cycle.send(last, last=True)


async def send_whole(
    cycle: RequestCycle,
    open_call: OpenCall,
    reply: Reply,
    form: ClientFormat,
    note: Note | None,
    billing: Billing,
) -> None:
    whole, body = form.assembly(), b""
    try:
        while data := await reply.read():
            whole.feed(data)
            if reply.complete:
                break
        body = whole.answer()
    except Fault as fault:
        open_call.fault = fault.without_traceback()
    open_call.target = reply.target
    if note is not None:
        note(body, open_call.target)
    if open_call.fault is None and not open_call.has_all_attempts:
        await _wait_for_end(reply)
    headers = response_headers(cycle, open_call)
    if open_call.fault is not None:
        await cycle.refuse(error_response(open_call.fault, form), headers)
        return
    if open_call.attempts:
        headers.append((b"server-timing", server_timing(open_call.attempts[-1])))
    for attempt in open_call.attempts:
        if attempt.ok and attempt.target == open_call.target:
            if attempt.tier:
                headers.append((b"x-splitsecond-tier", header_value(attempt.tier)))
            if (
                estimated := _with_estimated_counts(body, attempt, open_call.call, form)
            ) is not None:
                body = estimated
                headers.append((b"x-splitsecond-estimated", b"usage"))
            break
    if (usd := call_cost(open_call, billing)) is not None:
        headers += _cost_headers(usd)
    await cycle.answer(200, body, headers)


def _cost_headers(usd: CostRange) -> Headers:
    headers: Headers = [(b"x-splitsecond-cost-usd", usd_value(usd.expected))]
    if not usd.exact:
        headers.append((b"x-splitsecond-cost-low-usd", usd_value(usd.low)))
        headers.append((b"x-splitsecond-cost-high-usd", usd_value(usd.high)))
    return headers


def _with_estimated_counts(
    body: bytes, attempt: Observation, call: Call, form: ClientFormat
) -> bytes | None:
    estimated = with_estimated_tokens(attempt, call)
    if estimated is attempt or call.operation in WHOLE_OPERATIONS:
        return None
    usage = Usage(
        0,
        estimated.input_tokens,
        estimated.output_tokens,
        estimated.reasoning_tokens,
        estimated.cached_tokens,
        estimated.cache_write_tokens,
        estimated.cache_write_1h_tokens,
    )
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except ValueError:  # it was not strict JSON, and is sent as it came
        return None
    return msgspec.json.encode({**fields, **form.counts(usage)})


async def _wait_for_end(reply: Reply) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDS_WITHIN_NS / clock.NS_PER_S):
            await reply.finished()
