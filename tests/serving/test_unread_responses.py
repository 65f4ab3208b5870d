"""Responses that clients do not read hold a bounded number of bytes together."""

import asyncio

import pytest
from tests.serving.fake_client import Transport, connected

from splitsecond.core.serving import slow_reader
from splitsecond.core.serving.request_cycle import RequestCycle, ServerState
from splitsecond.testing.virtual_time import run_virtual


async def _nothing(cycle: RequestCycle) -> None:
    """Answer nothing."""


def test_the_client_that_has_been_behind_for_longest_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_reader, "MAX_UNREAD_BYTES", 100)

    async def main() -> None:
        state = ServerState(first_request_s=60.0)
        transports = [Transport() for _ in range(4)]
        connections = [connected(_nothing, transport) for transport in transports]
        for connection, transport, size in zip(
            connections, transports, (40, 30, 20, 60), strict=True
        ):
            connection.state = state
            transport.unread = size
        for connection in connections[:3]:
            connection.pause_writing()
        connections[1].resume_writing()  # it has read
        assert not any(transport.aborted for transport in transports)
        transports[1].unread = 30
        connections[1].pause_writing()  # and is behind again
        connections[3].pause_writing()
        assert [transport.aborted for transport in transports] == [True, False, True, False]
        await asyncio.sleep(0.01)
        for connection in connections[1::2]:
            connection.connection_lost(None)

    run_virtual(main())


def test_removed_responses_are_not_counted() -> None:
    unread, transport = slow_reader.UnreadResponses(), Transport()
    transport.unread = 5
    unread.add(transport)
    transport.unread = 7
    unread.add(transport)
    unread.remove(transport)
    unread.remove(transport)
    assert (unread._bytes, unread._held) == (0, {})
