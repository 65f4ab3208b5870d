"""The conformance kit finds services that break the contract, and names the broken rule."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from tests.waiting import WITHIN_S

from splitsecond.core.errors import Fault
from splitsecond.core.service import Call, ForwardingReply, Reply, Service
from splitsecond.testing.conformance import Subject, check_service
from splitsecond.testing.fake_service import FakeService, Script


def naive_race(fake: FakeService) -> Service:
    """The obvious race: it forgets its tasks when the caller leaves."""

    async def race(call: Call) -> Reply:
        tasks = [asyncio.create_task(fake(call)) for _ in range(2)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        for task in list(done)[1:]:
            if task.exception() is None:
                await task.result().aclose()
        return next(iter(done)).result()

    return race


def never_closes(fake: FakeService) -> Service:
    class Open(ForwardingReply):
        async def aclose(self) -> None:
            return None

    async def service(call: Call) -> Reply:
        return Open(await fake(call))

    return service


def forgets_the_deadline(fake: FakeService) -> Service:
    async def service(call: Call) -> Reply:
        try:
            async with asyncio.timeout(WITHIN_S):
                return await fake(msgspec.structs.replace(call, deadline_ns=None))
        except TimeoutError:
            raise Fault("late", kind="late", phase="total") from None

    return service


def swallows_faults(fake: FakeService) -> Service:
    async def service(call: Call) -> Reply:
        try:
            return await fake(call)
        except Fault:
            return await FakeService(script=lambda call: Script())(call)

    return service


def waits_too_long(fake: FakeService) -> Service:
    async def service(call: Call) -> Reply:
        reply = await fake(call)
        await asyncio.sleep(0.01)
        return reply

    return service


@pytest.mark.parametrize(
    ("flawed", "words"),
    [
        (naive_race, "left open|left behind"),
        (never_closes, "left open"),
        (forgets_the_deadline, "keeps the deadline while it waits"),
        (swallows_faults, "raises a fault"),
        (waits_too_long, "returns at the first token"),
    ],
)
def test_a_flaw_is_found(flawed: Callable[[FakeService], Service], words: str) -> None:
    def make(script: Script) -> Subject:
        fake = FakeService(script=lambda call: script)
        return Subject(flawed(fake), lambda: fake.left_open)

    with pytest.raises(AssertionError, match=words):
        check_service(make)


def test_a_sound_service_passes() -> None:
    def make(script: Script) -> Subject:
        fake = FakeService(script=lambda call: script)
        return Subject(fake, lambda: fake.left_open)

    check_service(make)
