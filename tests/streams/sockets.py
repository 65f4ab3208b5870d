"""The corpus over real sockets: each stream is served packet by packet on the loopback and timed by
the instrument.

While `check_decoder` checks the decoder alone, this checks everything from the socket to the event:
transport, framing, decoder, and the times. The server records the time before it writes each
packet. A token must not arrive before the packet that completes it was written; the difference is
the error.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import unquote

from msgspec import Struct
from tests.streams import Stream, Truth, differences, seen

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.events import Broken, Event
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.transport.client import Client
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect

LOOPBACK = "127.0.0.1"
NOT_COMPARED = ("first_event_ns", "end_ns", "first_answer_ns", "token_ns")
"""Times: token times are compared with those of the server, and the others follow from them."""


class StreamCheck(Struct, frozen=True, kw_only=True):
    """The result for one stream. `wrong` has a line for each difference from the truth.

    `error_ns` is, for each token, its measured arrival minus the time before the server's write.
    """

    stream: Stream
    wrong: list[str]
    error_ns: list[int]


async def check_over_sockets(streams: Sequence[Stream], *, at_once: int = 16) -> list[StreamCheck]:
    """Serve and time all `streams`, `at_once` at a time; return the results in their order."""
    turns = asyncio.Semaphore(at_once)
    client = Client(proxies={})
    try:
        async with serving(streams) as (base_urls, written), asyncio.TaskGroup() as group:

            async def check(stream: Stream) -> StreamCheck:
                async with turns:
                    return await _check(
                        stream, base_urls[stream.name], written[stream.name], client
                    )

            checks = [group.create_task(check(stream)) for stream in streams]
        return [check.result() for check in checks]
    finally:
        client.close()


async def _check(
    stream: Stream, base_url: str, written: Mapping[int, int], client: Client
) -> StreamCheck:
    events, observation, server_timings = await _call(stream, base_url, client)
    got = seen(events, server_timings)
    wrong = [
        line
        for line in differences(stream.truth, got)
        if line.partition(":")[0] not in NOT_COMPARED
    ]
    if len(got.token_ns) != len(stream.truth.token_ns):
        return StreamCheck(
            stream=stream,
            wrong=[
                *wrong,
                f"tokens: got {len(got.token_ns)}, expected {len(stream.truth.token_ns)}",
            ],
            error_ns=[],
        )
    errors = [
        at - written[due] for at, due in zip(got.token_ns, stream.truth.token_ns, strict=True)
    ]
    if early := sum(error < 0 for error in errors):
        wrong.append(f"{early} of {len(errors)} tokens arrived before they were written")
    return StreamCheck(
        stream=stream, wrong=wrong + _misobserved(stream.truth, got, observation), error_ns=errors
    )


def _misobserved(truth: Truth, got: Truth, observation: Observation) -> list[str]:
    """Return a line for each difference between the observation and the stream."""
    kind = observation.fault.kind if observation.fault else "ok"
    expected = truth.outcome if truth.outcome != "ok" or truth.token_ns else "empty_answer"
    wrong = [] if kind == expected else [f"observation: got {kind}, expected {expected}"]
    if observation.token_at != list(got.token_ns):
        wrong.append("observation: its token times are not those of the events")
    return wrong


async def _call(
    stream: Stream, base_url: str, client: Client
) -> tuple[list[Event], Observation, dict[str, float]]:
    observed: list[Observation] = []
    service = connect(
        TargetSpec(name=stream.name, base_url=base_url, model="m"), observed.append, client=client
    )
    call = Call(id=stream.name, operation=stream.operation, body={}, start_ns=clock.now_ns())
    events: list[Event] = []
    try:
        async with await service(call) as reply:
            events = [event async for event in reply]
            await reply.finished()
    except Fault as fault:  # before the first token there is only the fault to compare
        events = [Broken(observed[0].end_ns, fault)]
    (observation,) = observed
    return events, observation, observation.server_timings


@asynccontextmanager
async def serving(
    streams: Sequence[Stream],
) -> AsyncIterator[tuple[dict[str, str], dict[str, dict[int, int]]]]:
    """Serve all streams while the context is open.

    Yields two mappings by name: the base URL of each stream, and for each planned time of a packet
    (ns since the request) the time right before the first packet of that time was written.
    """
    by_name = {stream.name: stream for stream in streams}
    written: dict[str, dict[int, int]] = {name: {} for name in by_name}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (name := await _requested(reader)) is not None:
                if not await _play(by_name[name], writer, written[name]):
                    break
        except ConnectionError:
            pass  # the client closes early, which is right for some of the streams
        except asyncio.CancelledError:
            # the loop ends (Ctrl-C); asyncio before 3.12 would print that as a failure of this task
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield {name: f"http://{LOOPBACK}:{port}/{name}/v1" for name in by_name}, written


async def _requested(reader: asyncio.StreamReader) -> str | None:
    """Read a request and return the name of its stream; None at the end of the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(
            line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line
        )
        await reader.readexactly(int(fields.get("content-length", "0")))
    except asyncio.IncompleteReadError:
        return None
    return unquote(head.split(" ")[1]).split("/")[1]


async def _play(stream: Stream, writer: asyncio.StreamWriter, written: dict[int, int]) -> bool:
    """Write one response at its times. Returns whether the connection can take another request."""
    begin_ns = clock.now_ns()
    await _wait_until(begin_ns + stream.head_ns)
    writer.write(_head(stream))
    for packet in stream.packets:
        await _wait_until(begin_ns + packet.at_ns)
        data = (
            b"%x\r\n%b\r\n" % (len(packet.data), packet.data)
            if stream.framing == "chunked"
            else packet.data
        )
        if writer.is_closing():
            return False
        written.setdefault(packet.at_ns, clock.now_ns())
        writer.write(data)
    await _wait_until(begin_ns + stream.end_ns)
    written.setdefault(stream.end_ns, clock.now_ns())
    if stream.ending == "cut" or stream.framing == "close" or writer.is_closing():
        return False
    if stream.framing == "chunked":
        writer.write(b"0\r\n\r\n")
    return True


def _head(stream: Stream) -> bytes:
    size = sum(len(packet.data) for packet in stream.packets)
    framing = {
        "chunked": "Transfer-Encoding: chunked\r\n",
        "sized": f"Content-Length: {size + (stream.ending == 'cut')}\r\n",
        "close": "Connection: close\r\n",
    }
    return (
        f"HTTP/1.1 200 OK\r\nContent-Type: {stream.content_type}\r\n{framing[stream.framing]}\r\n"
    ).encode()


async def _wait_until(due_ns: int) -> None:
    await asyncio.sleep(max(0.0, (due_ns - clock.now_ns()) / clock.NS_PER_S))
