"""The packet clock: recorded packets are parsed, filtered and taken from a ring, and connections
get their times.

Nothing here needs a privilege. Only the last test opens a ring of the kernel, where that is
allowed.
"""

import asyncio
import fcntl
import mmap
import select
import socket
import struct
import termios
from array import array
from itertools import accumulate, count, pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.transport.conftest import Run
from tests.transport.peers import GET, Peer, Recorder, chunked, stay
from tests.transport.test_connection import HandLoop, RecordingOwner
from tests.transport.test_tls import server_side, trust

from splitsecond.benchmark.runs.settings import RunSettings
from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, NetworkFault
from splitsecond.core.observation import ArrivalClock, PacketCounts
from splitsecond.core.transport import Client
from splitsecond.core.transport import client as client_module
from splitsecond.core.transport import connection as connection_module
from splitsecond.core.transport import packets as packets_module
from splitsecond.core.transport.connection import HttpConnection, ReadBuffer, ReadContext
from splitsecond.core.transport.exchange import Connected, Exchange, Origin
from splitsecond.core.transport.packets import (
    FRAME_BYTES,
    MAX_PORTS,
    MAX_UNCLAIMED,
    MAX_UNCLAIMED_PACKETS,
    SNAP_BYTES,
    PacketRing,
    PacketStreams,
    filter_program,
    key_of,
    packet_clock_refusal,
    parse,
)
from splitsecond.core.transport.polling import LoopPoller
from splitsecond.core.transport.stream_times import StreamTimes

# Recorded on the loopback: a server's SYN-ACK, and its first 13 bytes, over IPv4 and IPv6.
OPENED_4 = bytes.fromhex(
    "4500003c0000400040063cba7f0000017f0000018e8788fab52915ae421acf1ba012ffcbfe3000000204ffd70402080acd136c19be4737d9"
    "0103030a"
)
DATA_4 = bytes.fromhex(
    "45000041f3f54000400648bf7f0000017f0000018e8788fab52915af421acf1b80180040fe3500000101080acd136c19be4737d964617461"
    "3a20746f6b656e0a0a"
)
OPENED_6 = bytes.fromhex(
    "6005a31f002806400000000000000000000000000000000100000000000000000000000000000001915da736f41697faefac4ddca012ffb8"
    "003000000204ffc40402080a5f28ebb61429f6680103030a"
)
DATA_6 = bytes.fromhex(
    "6005a31f002d06400000000000000000000000000000000100000000000000000000000000000001915da736f41697fbefac4ddc80180040"
    "003500000101080a5f28ebb61429f668646174613a20746f6b656e0a0a"
)
KEY_4 = bytes([127, 0, 0, 1, 127, 0, 0, 1]) + struct.pack(">HH", 36487, 35066)
KEY_6 = (bytes(15) + b"\1") * 2 + struct.pack(">HH", 37213, 42806)
IPV4, IPV6 = 0x0800, 0x86DD


def test_recorded_packets_are_parsed() -> None:
    assert parse(OPENED_4, 0, len(OPENED_4)) == (KEY_4, 0xB52915AE, 0, 0x12)
    assert parse(DATA_4, 0, len(DATA_4)) == (KEY_4, 0xB52915AF, 13, 0x18)
    assert parse(OPENED_6, 0, len(OPENED_6)) == (KEY_6, 0xF41697FA, 0, 0x12)
    assert parse(DATA_6, 0, len(DATA_6)) == (KEY_6, 0xF41697FB, 13, 0x18)


def test_options_of_ip_do_not_move_the_payload() -> None:
    longer = (
        b"\x47"
        + DATA_4[1:2]
        + struct.pack(">H", len(DATA_4) + 8)
        + DATA_4[4:20]
        + bytes(8)
        + DATA_4[20:]
    )
    assert parse(longer, 0, len(longer)) == (KEY_4, 0xB52915AF, 13, 0x18)


def test_padding_of_the_link_is_no_payload() -> None:
    assert parse(DATA_4 + bytes(6), 0, len(DATA_4) + 6) == (KEY_4, 0xB52915AF, 13, 0x18)


@pytest.mark.parametrize(("packet", "place", "header"), [(DATA_4, 2, 0), (DATA_6, 4, 40)])
def test_packet_without_a_length_has_that_of_the_kernel(
    packet: bytes, place: int, header: int
) -> None:
    large = packet[:place] + b"\0\0" + packet[place + 2 :]
    segment = parse(large, 0, len(packet) + 100_000)
    assert segment is not None
    assert segment[2] == 100_013


def test_packets_of_other_protocols_are_ignored() -> None:
    assert parse(DATA_4[:9] + b"\x11" + DATA_4[10:], 0, len(DATA_4)) is None
    assert parse(DATA_6[:6] + b"\x11" + DATA_6[7:], 0, len(DATA_6)) is None
    assert parse(b"\0" * 100, 0, 100) is None
    assert parse(b"\x42" + DATA_4[1:], 0, len(DATA_4)) is None  # a header shorter than any


@given(st.binary(min_size=SNAP_BYTES, max_size=SNAP_BYTES))
def test_any_packet_bytes_are_parsed_without_an_error(data: bytes) -> None:
    segment = parse(data, 0, len(data))
    assert segment is None or segment[2] >= 0


# The filter.


def passes(program: bytes, packet: bytes, protocol: int) -> int:
    """Run a filter as the kernel does, and return how many bytes of the packet it passes."""
    steps = list(struct.iter_unpack("@HBBI", program))
    accumulator = index = place = 0
    while True:
        operation, if_true, if_false, operand = steps[place]
        place += 1
        match operation:
            case 0x28:
                accumulator = (
                    protocol
                    if operand == 0xFFFFF000
                    else int.from_bytes(packet[operand : operand + 2])
                )
            case 0x30:
                accumulator = packet[operand]
            case 0x48:
                accumulator = int.from_bytes(packet[index + operand : index + operand + 2])
            case 0xB1:
                index = (packet[operand] & 15) * 4
            case 0x15:
                place += if_true if accumulator == operand else if_false
            case 0x45:
                place += if_true if accumulator & operand else if_false
            case 0x05:
                place += operand
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")


@pytest.mark.parametrize(
    "ports", [[36487, 37213], [1, 36487, 37213, 2], [*range(36400, 36399 + MAX_PORTS), 37213]]
)
def test_the_filter_passes_tcp_from_known_ports(ports: list[int]) -> None:
    program = filter_program(ports)
    assert passes(program, DATA_4, IPV4) == SNAP_BYTES
    assert passes(program, DATA_6, IPV6) == SNAP_BYTES
    assert passes(program, DATA_4, 0x0806) == 0
    assert passes(program, DATA_4[:9] + b"\x11" + DATA_4[10:], IPV4) == 0
    assert passes(program, DATA_6[:6] + b"\x11" + DATA_6[7:], IPV6) == 0
    assert passes(program, DATA_4[:6] + b"\x20\x00" + DATA_4[8:], IPV4) == 0  # a fragment


def test_the_filter_drops_other_ports() -> None:
    for ports in ([], [36486, 36488], list(range(1000, 1000 + MAX_PORTS))):
        assert passes(filter_program(ports), DATA_4, IPV4) == 0
        assert passes(filter_program(ports), DATA_6, IPV6) == 0


def test_filter_for_too_many_ports_passes_everything() -> None:
    program = filter_program(range(1000, 1001 + MAX_PORTS))
    assert passes(program, DATA_4, IPV4) == passes(program, DATA_6, IPV6) == SNAP_BYTES


# The ring.


def slot(packet: bytes, wall_ns: int, *, status: int = 1) -> bytes:
    head = struct.pack(
        "@IIIHHII", status, len(packet), len(packet), 80, 80, wall_ns // 10**9, wall_ns % 10**9
    )
    return (head.ljust(80, b"\0") + packet).ljust(FRAME_BYTES, b"\0")


def test_packets_are_taken_in_order_and_slots_returned() -> None:
    ring = mmap.mmap(-1, 4 * FRAME_BYTES)
    wall_ns = 10**18
    with clock.using(lambda: 5_000, lambda: wall_ns + 5_000):
        for place, packet, at in ((2, OPENED_4, 100), (3, DATA_4, 200), (0, DATA_6, 300)):
            ring[place * FRAME_BYTES : (place + 1) * FRAME_BYTES] = slot(packet, wall_ns + at)
        streams = PacketStreams()
        streams.add((KEY_6, 0xF41697FA, 0, 0x12), 50)
        assert streams.take(ring, 2 * FRAME_BYTES) == 1 * FRAME_BYTES
        assert streams.take(ring, 2 * FRAME_BYTES) == 2 * FRAME_BYTES
        for key, arrived in ((KEY_4, 200), (KEY_6, 300)):
            times = streams.claim(key, 0)
            assert times is not None
            assert times.take(13) == ([13], [arrived])
        assert streams.counts(0).packets == 4


def with_options(packet: bytes) -> bytes:
    """An IPv4 packet with two words of options."""
    return (
        b"\x47"
        + packet[1:2]
        + struct.pack(">H", len(packet) + 8)
        + packet[4:20]
        + bytes(8)
        + packet[20:]
    )


def with_flags(packet: bytes, tcp: int, flags: int) -> bytes:
    return packet[: tcp + 13] + bytes([flags]) + packet[tcp + 14 :]


PACKETS = (
    OPENED_4, OPENED_6, DATA_4, DATA_6, with_options(DATA_4), DATA_4 + bytes(6),
    with_flags(DATA_4, 20, 0x11),
    with_flags(DATA_6, 40, 0x04), OPENED_4[:32] + b"\xf0" + OPENED_4[33:],
    DATA_4[:2] + bytes(2) + DATA_4[4:],
    DATA_6[:4] + bytes(2) + DATA_6[6:], DATA_4[:9] + b"\x11" + DATA_4[10:],
    DATA_6[:6] + b"\x11" + DATA_6[7:],
    bytes(60),
)  # fmt: skip


def arrivals(streams: PacketStreams) -> list[tuple[bytes, int, tuple[list[int], list[int]]]]:
    every = [*streams._claimed.items(), *streams._unclaimed.items()]
    return [(key, len(times), times.take(times.arrived)) for key, times in every]


@given(st.lists(st.sampled_from(PACKETS), max_size=12), st.booleans())
def test_a_ring_gives_the_same_as_its_packets_parsed_one_by_one(
    packets: list[bytes], ours: bool
) -> None:
    """The most frequent headers are unpacked in one step, not by `parse`."""
    ring = mmap.mmap(-1, 16 * FRAME_BYTES)
    whole, singly = PacketStreams(), PacketStreams()
    keys = (KEY_4, 0xB52915AE), (KEY_6, 0xF41697FA)
    for streams in (whole, singly):
        for key, first in keys:
            streams.add((key, first, 0, 0x12), 1)
            if ours:
                streams.claim(key, 0)
    wall_ns = 10**18
    with clock.using(lambda: 5_000, lambda: wall_ns + 5_000):
        for at, packet in enumerate(packets):
            ring[at * FRAME_BYTES : (at + 1) * FRAME_BYTES] = slot(packet, wall_ns + 100 + at)
            if segment := parse(packet, 0, len(packet)):
                singly.add(segment, 100 + at)
        assert whole.take(ring, 0) == len(packets) * FRAME_BYTES
    assert whole.counts(0) == singly.counts(0)
    assert arrivals(whole) == arrivals(singly)


def test_claimed_stream_has_all_packets_since_it_was_opened() -> None:
    streams = PacketStreams()
    streams.add((KEY_4, 99, 0, 0x12), 1)
    streams.add((KEY_4, 100, 10, 0x18), 2)
    streams.add((KEY_6, 100, 10, 0x18), 2)  # opened before the ring was
    times = streams.claim(KEY_4, 4)
    assert times is not None
    streams.add((KEY_4, 110, 5, 0x18), 3)
    assert times.take(11) == ([6, 5], [2, 3])
    assert streams.claim(KEY_4, 0) is None
    assert streams.claim(KEY_6, 0) is None


def test_stream_with_read_but_unseen_bytes_is_not_claimed() -> None:
    streams = PacketStreams()
    streams.add((KEY_4, 99, 0, 0x12), 1)
    assert streams.claim(KEY_4, 5) is None


def test_streams_of_other_programs_are_bounded() -> None:
    streams = PacketStreams()
    keys = [number.to_bytes(12) for number in range(MAX_UNCLAIMED + 1)]
    for key in keys:
        streams.add((key, 0, 0, 0x12), 1)
    assert streams.claim(keys[0], 0) is None
    for number in range(MAX_UNCLAIMED_PACKETS + 1):
        streams.add((keys[1], 1 + number, 1, 0x18), 1)
    assert streams.claim(keys[1], 0) is None
    assert streams.claim(keys[2], 0) is not None


def test_packet_counts_outlive_the_connection() -> None:
    streams = PacketStreams()
    streams.add((KEY_4, 99, 0, 0x12), 1)
    streams.claim(KEY_4, 0)
    streams.add((KEY_4, 105, 5, 0x18), 2)
    streams.add((KEY_4, 100, 5, 0x18), 3)
    streams.add((KEY_4, 100, 5, 0x18), 4)
    streams.count_missed()
    counted = PacketCounts(packets=4, lost=7, reordered=1, repeated=1, missed=1)
    assert streams.counts(7) == counted
    streams.release(KEY_4)
    assert streams.counts(7) == counted
    assert counted.since(PacketCounts(packets=1, lost=2)) == PacketCounts(3, 5, 1, 1, 1)


# Connections.

PIECES = [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"5\r\nhello\r\n",
    b"6\r\n world\r\n0\r\n\r\n",
]


class FakeRing:
    """A ring whose packets are the pieces above, each a nanosecond after the one before; some may
    be missing.

    `begin_ns` is the time of the first one.
    """

    begin_ns = 0
    knows = True
    sees: int | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.streams = PacketStreams()
        self.expected: list[int] = []
        FakeRing.begin_ns = 0
        self.sock: socket.socket | None = None
        self.times: StreamTimes | None = None

    def expect(self, port: int) -> None:
        self.expected.append(port)

    def claim(self, sock: socket.socket) -> StreamTimes | None:
        assert self.expected == [sock.getpeername()[1]]
        self.sock = sock
        self.times = StreamTimes(0) if self.knows else None
        return self.times

    def drain(self) -> None:
        assert self.sock is not None
        assert self.times is not None
        FakeRing.begin_ns = FakeRing.begin_ns or clock.now_ns() - len(PIECES)
        waiting = array("i", [0])
        fcntl.ioctl(self.sock.fileno(), termios.FIONREAD, waiting)
        there = self.times.read + waiting[0]
        begin = 0
        for number, piece in enumerate(PIECES[: self.sees]):
            if self.times.arrived == begin and begin + len(piece) <= there:
                self.times.add(begin, len(piece), self.begin_ns + number)
            begin += len(piece)

    def counts(self) -> PacketCounts:
        return self.streams.counts(0)

    def close(self) -> None: ...


def exchanged(
    run: Run, monkeypatch: pytest.MonkeyPatch, ring: Any
) -> tuple[Recorder, PacketCounts | None]:
    """The answer in `PIECES`, read when all of it has arrived."""
    monkeypatch.setattr(client_module, "PacketRing", ring)
    found: list[tuple[Recorder, PacketCounts | None]] = []

    async def story() -> None:
        async with Peer(stay(b"".join(PIECES))) as peer:
            client = Client(proxies={}, gather=True, arrival_clock="packets")
            receiver = Recorder()
            await client.send(peer.origin, GET, receiver)
            await receiver.over.wait()
            found.append((receiver, client.packet_counts()))
            client.close()

    run(story())
    return found[0]


def test_each_piece_of_a_read_has_the_clock_of_its_packet(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, counts = exchanged(run, monkeypatch, FakeRing)
    assert receiver.body == b"hello world"
    assert receiver.clocks == ["packets", "packets"]
    # the headers, two pieces, the end
    assert [at - FakeRing.begin_ns for at in receiver.at] == [0, 1, 2, 2]
    assert counts == PacketCounts()


def test_bytes_of_lost_packets_have_the_time_of_the_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lossy(FakeRing):
        sees = 2

    receiver, counts = exchanged(run, monkeypatch, Lossy)
    assert receiver.body == b"hello world"
    assert receiver.clocks[0] == "packets"
    assert receiver.clocks[-1] != "packets"
    assert counts == PacketCounts(missed=1)


def test_a_stream_that_the_ring_does_not_know_is_read_without_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ignorant(FakeRing):
        knows = False

    receiver, _ = exchanged(run, monkeypatch, Ignorant)
    assert receiver.body == b"hello world"
    assert "packets" not in receiver.clocks


def refused(*_: Any) -> Any:
    raise PermissionError(1, "Operation not permitted")


def test_kernel_timestamps_are_used_without_the_privilege(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, counts = exchanged(run, monkeypatch, refused)
    assert receiver.body == b"hello world"
    assert "packets" not in receiver.clocks
    assert counts is None


def test_packet_clock_is_refused_without_the_privilege(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets_module, "_open_ring", refused)
    assert packet_clock_refusal() == "this process lacks the capability CAP_NET_RAW"
    RunSettings().check()
    with pytest.raises(CallerFault, match="the packet clock is not available: this process lacks"):
        RunSettings(clock="packets").check()


def test_system_without_packet_rings_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> Any:
        raise OSError(92, "Protocol not available")

    monkeypatch.setattr(packets_module, "_open_ring", unknown)
    assert packet_clock_refusal() == "the system has no packet rings (Protocol not available)"


def test_an_unknown_clock_is_refused() -> None:
    with pytest.raises(
        CallerFault, match="clock: got 'sundial', expected packets or kernel or process"
    ):
        RunSettings(clock="sundial").check()


@each_case("secure", [False, True])
@each_case("host", ["127.0.0.1", "::1"])
def test_real_connection_uses_the_packet_clock_if_allowed(
    run: Run, host: str, secure: bool
) -> None:
    allowed = not packet_clock_refusal()
    tls = server_side(host) if secure else None

    async def story() -> None:
        async with Peer(stay(*[b"".join(PIECES)] * 3), host=host, tls=tls) as peer:
            client = Client(trust=trust(), proxies={}, gather=True, arrival_clock="packets")
            for _ in range(3):
                receiver = Recorder()
                before = clock.now_ns()
                await client.send(peer.origin, GET, receiver)
                await receiver.over.wait()
                assert receiver.body == b"hello world"
                assert all(before <= at <= clock.now_ns() for at in receiver.at)
                assert ("packets" in receiver.clocks) is allowed
            counts = client.packet_counts()
            assert (counts is not None) is allowed
            assert counts is None or (counts.missed, counts.packets >= 3) == (0, True)
            client.close()

    run(story())


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_key_of_a_socket_is_that_of_the_packets_it_receives(
    family: socket.AddressFamily, host: str
) -> None:
    with (
        socket.create_server((host, 0), family=family) as listening,
        socket.create_connection(listening.getsockname()[:2]) as near,
    ):
        address = socket.inet_pton(family, host)
        ports = struct.pack(">HH", listening.getsockname()[1], near.getsockname()[1])
        assert key_of(near) == address + address + ports


class KnownRing:
    """A ring that knows when each packet of one stream arrived."""

    def __init__(self, times: StreamTimes) -> None:
        self.times, self.streams = times, PacketStreams()

    def claim(self, sock: socket.socket) -> StreamTimes:
        return self.times

    def drain(self) -> None: ...


def test_reset_connection_fails_as_without_a_packet_ring() -> None:
    receiver = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        select.select([near], [], [])  # the reset has arrived
    loop = cast(asyncio.AbstractEventLoop, HandLoop())
    connection = HttpConnection(
        near,
        None,
        origin=Origin("http", "test", 80),
        info=Connected(1, False, 0, 0, 0, "here"),
        owner=RecordingOwner(),
        reading=ReadContext(
            loop, LoopPoller(loop), ReadBuffer(), ring=cast(PacketRing, KnownRing(StreamTimes(0)))
        ),
    )
    exchange = Exchange(receiver, connection.info, lambda _: pytest.fail("nothing to send again"))
    connection.start(exchange, b"request", "POST", reused=False)
    connection._readable()
    assert near.fileno() == -1
    assert isinstance(receiver.fault, NetworkFault)


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WORDS = [b"one", b"two", b"three", b"four", b"five", b"six"] * 3
WIRE = HEAD + chunked(WORDS)
ENDS = list(accumulate([len(HEAD), *(len(chunked([word])) - len(chunked([])) for word in WORDS)]))
"""The offsets at which the headers and each chunk end."""


def received(
    bounds: list[int], close_after: int, in_read: int, *, together: bool
) -> tuple[list[object], list[int]]:
    """Return what a receiver gets of `WIRE`, and the arrivals.

    `WIRE` comes in packets that end at `bounds`, and `in_read` packets are read together. The
    receiver closes after `close_after` pieces.
    """
    times, began = StreamTimes(0), clock.now_ns() - 1_000_000
    receiver, pieces = Recorder(), count(1)
    near, far = socket.socketpair()
    with near, far, pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_module, "key_of", lambda sock: b"")
        near.setblocking(False)
        loop = cast(asyncio.AbstractEventLoop, HandLoop())
        connection = HttpConnection(
            near,
            None,
            origin=Origin("http", "test", 80),
            info=Connected(1, False, 0, 0, 0, "here"),
            owner=RecordingOwner(),
            reading=ReadContext(
                loop, LoopPoller(loop), ReadBuffer(), ring=cast(PacketRing, KnownRing(times))
            ),
        )
        exchange = Exchange(
            receiver, connection.info, lambda _: pytest.fail("nothing to send again")
        )
        connection.start(exchange, b"request", "POST", reused=False)
        connection._last_at = began
        heard = receiver.body_received

        def body_received(at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
            heard(at, lag, source, data)
            if next(pieces) == close_after:
                exchange.close()

        def take(bodies: list[bytes], arrivals: list[int], read_ns: int) -> None:
            for body, at in zip(bodies, arrivals, strict=True):
                if connection.exchange is exchange:
                    body_received(at, read_ns - at, "packets", body)

        patch.setattr(receiver, "body_received", body_received)
        exchange.take_packets = take if together else None
        for number, (begin, end) in enumerate(pairwise(bounds), 1):
            far.sendall(WIRE[begin:end])
            times.add(begin, end - begin, began + number)
            if number % in_read == 0 or end == len(WIRE):
                connection._readable()
            if connection._closed:
                break
        connection.close()
    return receiver.story, [at - began for at in receiver.at]


@given(
    cuts=st.lists(st.integers(1, len(WIRE) - 1), max_size=2)
    | st.lists(st.integers(1, len(WIRE) - 1), max_size=12),
    chunks=st.booleans(),
    close_after=st.integers(0, 30),
    in_read=st.integers(1, 8),
)
def test_packets_passed_together_give_the_same_as_one_by_one(
    cuts: list[int], chunks: bool, close_after: int, in_read: int
) -> None:
    """With `chunks`, packets end where chunks do."""
    bounds = sorted({0, len(WIRE), *cuts, *(ENDS if chunks else ())})
    one_by_one = received(bounds, close_after, in_read, together=False)
    assert received(bounds, close_after, in_read, together=True) == one_by_one
