"""Branches for policies under test: fake services that answer by script, and calls to send to
them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import (
    CallerFault,
    Fault,
    NetworkFault,
    Overloaded,
    ProviderFault,
    TimedOut,
)
from splitsecond.core.service import Call, Service
from splitsecond.testing.fake_service import FakeService, Observer, Script
from splitsecond.testing.virtual_time import run_virtual


def a_call(number: int = 1, *, within_ms: int | None = None) -> Call:
    now_ns = clock.now_ns()
    deadline_ns = None if within_ms is None else now_ns + within_ms * NS_PER_MS
    return Call(id=f"call-{number}", body={}, start_ns=now_ns, deadline_ns=deadline_ns)


def scripted(
    *scripts: Script, target: str = "fake/model", observer: Observer | None = None
) -> FakeService:
    """Return a fake that answers the n-th call by the n-th script, and all later ones by the
    last."""
    fake: FakeService = FakeService(
        script=lambda call: scripts[min(len(fake.calls), len(scripts)) - 1],
        target=target,
        observer=observer,
    )
    return fake


def fails(fault: Fault, ttft: float = 0.1) -> Script:
    return Script(ttft=ttft, fault=fault)


def status(code: int, retry_after_s: float | None = None) -> ProviderFault:
    wait_ns = None if retry_after_s is None else round(retry_after_s * clock.NS_PER_S)
    return ProviderFault(
        f"HTTP {code}", kind=f"http_{code}", phase="head", status=code, retry_after_ns=wait_ns
    )


def key_refused(code: int = 401) -> ProviderFault:
    """Return the fault of a response whose error code refuses our key."""
    return ProviderFault(f"HTTP {code}", kind="key_refused", phase="head", status=code)


def reset() -> NetworkFault:
    return NetworkFault("it broke", kind="reset", phase="head")


def refused() -> NetworkFault:
    return NetworkFault("refused", kind="refused", phase="connect")


def bad_request() -> CallerFault:
    return CallerFault("no such field", kind="http_400", phase="head")


def too_long() -> CallerFault:
    return CallerFault("too long", kind="context_length_exceeded", phase="head")


def silent() -> TimedOut:
    return TimedOut("no token", phase="first token")


def full() -> Overloaded:
    return Overloaded("full", retry_after_ns=clock.NS_PER_S)


SILENT = Script(hangs=True)


class Seen:
    """The result of one call: its fault, if any, and the time until it was decided, in ms."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.ms = 0.0


async def ask(service: Service, call: Call | None = None) -> Seen:
    """Send a call, and read the answer to its end."""
    seen, began_ns = Seen(), clock.now_ns()
    try:
        reply = await service(call or a_call())
    except Fault as fault:
        seen.fault = fault
        seen.ms = (clock.now_ns() - began_ns) / NS_PER_MS
        return seen
    seen.ms = (clock.now_ns() - began_ns) / NS_PER_MS
    async with reply:
        await reply.finished()
    return seen


def play(main: Callable[[], Coroutine[Any, Any, None]], fakes: Sequence[FakeService] = ()) -> None:
    """Run `main` in virtual time; fail if a reply is left open or a task is left."""

    async def act() -> None:
        await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [fake.left_open for fake in fakes] == [0] * len(fakes)

    run_virtual(act())
