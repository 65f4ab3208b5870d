"""Hostile and absent clients of a WebSocket, and ends of its time: each costs bounded memory and time."""

import asyncio
import json

import pytest
from tests.gateway.over_socket import frame, gateway, identity, run, service, text, types
from tests.gateway.socket_client import SocketClient
from websockets.frames import Frame, Opcode

from splitsecond.gateway.responses_socket import LONGEST_S
from splitsecond.serving.websocket import MAX_SMALL_FRAMES, MAX_WAITING, MESSAGE_S, PING_S, SILENT_S
from splitsecond.testing.fake_service import Script


def test_fragments_and_pings_in_any_split() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        message = json.dumps({"type": "response.create", "model": "fast", "input": "hü"}, ensure_ascii=False).encode()
        client.protocol.send_text(message[:50], fin=False)
        client.protocol.send_ping(b"there?")
        client.protocol.send_continuation(message[50:53], fin=False)
        client.protocol.send_continuation(message[53:], fin=True)
        for byte in b"".join(client.protocol.data_to_send()):
            client.sends(bytes([byte]))
        assert text(await client.hears()) == "It is sunny."
        pongs = [frame for frame in client.frames if frame.opcode is Opcode.PONG]
        assert [bytes(frame.data) for frame in pongs] == [b"there?"]
        await client.leaves()

    run(main)


HOSTILE = {
    "announces 4 EiB": (b"\x81\xff" + (1 << 62).to_bytes(8, "big"), 1009),
    "long in fragments": (frame(Opcode.TEXT, b"x" * 60_000, fin=False) + frame(Opcode.CONT, b"x" * 60_000), 1009),
    "binary": (frame(Opcode.BINARY, b"{}"), 1003),
    "continues nothing": (frame(Opcode.CONT, b"x"), 1002),
    "not masked": (Frame(Opcode.TEXT, b"{}").serialize(mask=False), 1002),
    "reserved bits": (b"\xf1\x80\0\0\0\0", 1002),
    "pings": (frame(Opcode.PING, b"") * (MAX_SMALL_FRAMES + 1), 1008),
    "empty fragments": (
        frame(Opcode.TEXT, b"", fin=False) + frame(Opcode.CONT, b"", fin=False) * MAX_SMALL_FRAMES,
        1008,
    ),
    "many messages": (frame(Opcode.TEXT, b"{" + b" " * 200) * (MAX_WAITING + 2), 1008),
    "long messages": (frame(Opcode.TEXT, b"{" + b" " * 40_000) * 4, 1009),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_frames_end_the_websocket(name: str) -> None:
    async def main() -> None:
        data, code = HOSTILE[name]
        fake = service(Script(tokens=1000, tps=1))
        client = await SocketClient(gateway(fake, max_body_bytes=100_000)).opened()
        client.says({"type": "response.create", "model": "fast", "input": "hi"})
        await asyncio.sleep(1)
        client.sends(data)
        assert client.close_code == code
        assert client.transport.closed
        await client.leaves()
        assert fake.calls[0].closed_at is not None

    run(main)


def test_a_client_that_does_not_read_is_not_read() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        client.connection.pause_writing()
        paused = []
        client.sends(frame(Opcode.PING, b""))
        paused.append(client.transport.reading_paused)
        client.connection.resume_writing()
        paused.append(client.transport.reading_paused)
        assert paused == [True, False]
        client.connection.pause_writing()
        await asyncio.sleep(100)
        assert client.transport.aborted
        assert not client.connection.state.tasks

    run(main)


def test_a_silent_client_is_pinged_and_given_up() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        await asyncio.sleep(PING_S + 15)
        client.reads()  # and answers the ping
        assert {frame.opcode for frame in client.frames} == {Opcode.PING}
        closed = []
        for seconds in (SILENT_S - 20, 50):
            await asyncio.sleep(seconds)
            closed.append(client.transport.closed)
        assert closed == [False, True]
        assert client.close_code == 1001
        await client.leaves()

    run(main)


def test_a_message_that_does_not_arrive_is_given_up() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        message = frame(Opcode.TEXT, b"x" * 500)
        client.sends(message[:20])
        await asyncio.sleep(MESSAGE_S / 2)
        client.sends(message[20:30])
        await asyncio.sleep(MESSAGE_S / 2 + 15)
        assert client.close_code == 1008
        await client.leaves()

    run(main)


def test_a_websocket_ends_after_an_hour() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service(Script(tokens=100, tps=1)))).opened()
        for _ in range(int(LONGEST_S // 100) - 1):
            assert not await client.hears(100)
        events = await client.hears(101)
        assert events[-1]["error"]["code"] == "websocket_connection_limit_reached"
        assert client.close_code == 1000
        await client.leaves()

    run(main)


def test_a_response_in_progress_outlasts_the_hour() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service(Script(tokens=100, tps=1)))).opened()
        for _ in range(int(LONGEST_S // 100) - 1):
            await client.hears(100)
        await client.hears(50)
        events = await client.asks(seconds=200)
        assert types(events)[-2:] == ["response.completed", "error"]
        assert client.close_code == 1000
        await client.leaves()

    run(main)


def test_a_server_that_shuts_down_ends_after_the_response() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        client.says({"type": "response.create", "model": "fast", "input": "hi"})
        await asyncio.sleep(0.1)
        client.connection.shut_down()
        assert identity(await client.hears())
        assert client.close_code == 1001
        await client.leaves()
        idle = await SocketClient(gateway(service())).opened()
        idle.connection.shut_down()
        await asyncio.sleep(0.1)
        assert idle.close_code == 1001
        await asyncio.sleep(15)  # this client does not close
        assert idle.transport.closed
        await idle.leaves()

    run(main)
