"""The bytes of large answers that are held are bounded."""

import pytest
from tests.gateway.visitor import CHAT, visitor
from tests.policies.branches import scripted

from splitsecond.core import large_bodies
from splitsecond.core.errors import Overloaded
from splitsecond.core.large_bodies import LARGE_BYTES, HeldAnswer
from splitsecond.core.upstream.pending_bytes import HELD_BYTES, PendingBytes
from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.race import race
from splitsecond.testing.fake_service import Script
from splitsecond.testing.virtual_time import run_virtual

LONG = Script(tokens=40, tps=1e6, texts=("x" * (LARGE_BYTES // 20),) * 40)


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_bodies, "MAX_BYTES", HeldAnswer._total + 3 * LARGE_BYTES)


def test_answer_above_the_memory_bound_holds_nothing() -> None:
    first, second = HeldAnswer(), HeldAnswer()
    before = HeldAnswer._total
    first.hold(2 * LARGE_BYTES)
    with pytest.raises(Overloaded, match="the answers that are held"):
        second.hold(2 * LARGE_BYTES)
    del first
    second.hold(2 * LARGE_BYTES)
    second.hold(LARGE_BYTES)
    assert HeldAnswer._total - before == LARGE_BYTES
    del second
    assert HeldAnswer._total == before


def test_bytes_that_are_taken_are_released() -> None:
    pending, before = PendingBytes(HELD_BYTES), HeldAnswer._total
    for _ in range(10):
        pending.put(b"x" * 2 * LARGE_BYTES)
        assert HeldAnswer._total - before == 2 * LARGE_BYTES
        pending.take()
    assert HeldAnswer._total == before


@pytest.mark.parametrize("shared", [False, True])
def test_unstreamed_response_without_memory_is_status_503(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = 2 if shared else 1  # each has twice `LARGE_BYTES`
    monkeypatch.setattr(
        large_bodies, "MAX_BYTES", HeldAnswer._total + (2 * answers + 1) * LARGE_BYTES
    )

    async def main() -> None:
        before, other = HeldAnswer._total, HeldAnswer()
        service = race(scripted(LONG), scripted(LONG), by="total") if shared else scripted(LONG)
        client = visitor(service)
        await client.asks(CHAT)
        assert client.status == 200
        other.hold(2 * answers * LARGE_BYTES)
        client = visitor(service)
        await client.asks(CHAT)
        assert (client.status, client.headers["retry-after"]) == (503, "1")
        del other
        assert HeldAnswer._total == before

    run_virtual(main())


def test_a_large_whole_answer_comes_through_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_bodies, "MAX_BYTES", HeldAnswer._total + 9 * LARGE_BYTES)

    async def main() -> None:
        service = build(
            parse('fallback("a", "b")'),
            lambda name: scripted(LONG),
            make_encoder=continuation_encoder,
        )
        client = visitor(service)
        await client.asks(CHAT)
        assert client.status == 200

    run_virtual(main())
