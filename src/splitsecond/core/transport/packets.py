"""The packet clock: a ring in which the kernel puts the headers of received TCP packets, with their
arrival times.

A read has one timestamp, that of its last packet. A packet socket (packet(7)) has one for each
packet, whatever this process does meanwhile. The sequence number of a packet tells which bytes of
its stream it brought, so each byte gets the time of its packet, also inside TLS, and streams can be
read late and seldom without losing a time.

The ring is mapped into this process (TPACKET_V2, the kernel's
Documentation/networking/packet_mmap.rst) and read without system calls. One socket covers all
interfaces: as a "cooked" socket (SOCK_DGRAM) its packets begin with the IP header, whatever the
link layer. A filter in the kernel passes only the packets from known server ports.

It needs Linux and CAP_NET_RAW. Without them `PacketRing` raises `OSError`, and arrivals have the
time of their read.
"""

import asyncio
import ctypes
import errno
import mmap
import socket
import struct
import sys
from collections.abc import Iterable, Sequence

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import PacketCounts
from splitsecond.core.transport.kernel import bytes_read
from splitsecond.core.transport.stream_times import StreamTimes

FRAME_BYTES = 256
"""A slot of the ring: 80 bytes of the kernel's own, then an IP header (at most 60) and a TCP header
(60)."""
SNAP_BYTES = 128
BLOCK_BYTES = 1 << 20
BLOCKS = 16
"""16 MiB, which hold 65,536 packets: more than half a second of 1,024 streams of 100 tokens/s."""
DRAIN_S = 0.1
"""How often the ring is emptied even if nothing is read: other programs may use the same server
ports."""
MAX_UNCLAIMED = 1024
"""Streams that were opened and have no connection here (yet): those of other programs are dropped,
oldest first."""
MAX_UNCLAIMED_PACKETS = 256
"""Packets kept of such a stream: a TLS handshake takes fewer than 20."""
MAX_PORTS = 200
"""Ports in the kernel's filter; its jumps reach no further. With more, packets from all ports
pass."""

_SOL_PACKET, _RX_RING, _STATISTICS, _VERSION, _IGNORE_OUTGOING = 263, 5, 6, 10, 23
_TPACKET_V2 = 1
_SO_ATTACH_FILTER = 26
_ETH_P_ALL, _ETH_P_IP, _ETH_P_IPV6 = 0x0003, 0x0800, 0x86DD
# the filter's pseudo address of the packet's protocol (SKF_AD_OFF + SKF_AD_PROTOCOL)
_AD_PROTOCOL = 0xFFFFF000
_USER = 1  # the slot holds a packet (TP_STATUS_USER)
_SYN = 0x02
_IPV4_WITHOUT_OPTIONS = 0x45  # the first byte: version 4, a header of 5 words

_LOAD_HALF, _LOAD_BYTE, _LOAD_HALF_BEHIND_HEADER, _LOAD_HEADER_LENGTH = 0x28, 0x30, 0x48, 0xB1
_IF_EQUAL, _IF_ANY_BIT, _JUMP, _RETURN = 0x15, 0x45, 0x05, 0x06

# status, length, (captured, link header,) network header, seconds, nanoseconds
_SLOT = struct.Struct("@II6xHII")
_FREE = struct.Struct("@I")  # the status of a slot that the kernel may use
_TCP = struct.Struct(">IIBB")  # sequence number, acknowledgement, length of the header, flags
_IPV4 = struct.Struct(">BxH5xB2x12sI4xBB")
"""IPv4 without options, then TCP: version and header length, total length, protocol, key, sequence
number, length of the TCP header, flags. The addresses and the ports behind them are a key."""
_IPV6 = struct.Struct(">4xHBx36sI4xBB")
"""IPv6 without extensions, then TCP: payload length, next header, and the rest as above."""
_STEP = struct.Struct("@HBBI")  # one instruction of a filter (struct sock_filter)

Key = bytes
"""Identifies one direction of a connection: source address, destination address, source port,
destination port."""

Segment = tuple[Key, int, int, int]
"""The parts of a TCP packet that matter here: key, sequence number, bytes of payload, flags."""


def parse(data: "bytes | mmap.mmap", ip: int, length: int) -> Segment | None:
    """Return the TCP segment of the IP packet of `length` bytes at `ip`; None if it is not TCP, or
    cannot be read.

    A packet of more than 64 KiB, which some interfaces make of several, has no length in its
    header.
    """
    first = data[ip]
    if first >> 4 == 4:
        tcp = ip + (first & 15) * 4
        total = data[ip + 2] << 8 | data[ip + 3] or length
        if data[ip + 9] != socket.IPPROTO_TCP or tcp < ip + 20:
            return None
        addresses = data[ip + 12 : ip + 20]
    elif first >> 4 == 6:
        tcp = ip + 40
        total = (data[ip + 4] << 8 | data[ip + 5] or length - 40) + 40
        if data[ip + 6] != socket.IPPROTO_TCP:
            return None
        addresses = data[ip + 8 : ip + 40]
    else:
        return None
    sequence, _, offset, flags = _TCP.unpack_from(data, tcp + 4)
    payload = ip + total - tcp - (offset >> 4) * 4
    return addresses + data[tcp : tcp + 4], sequence, max(payload, 0), flags


def key_of(sock: socket.socket) -> Key:
    peer, here = sock.getpeername(), sock.getsockname()
    return b"".join((
        *(socket.inet_pton(sock.family, address[0].partition("%")[0]) for address in (peer, here)),
        struct.pack(">HH", peer[1], here[1]),
    ))  # fmt: skip


def filter_program(ports: Sequence[int]) -> bytes:
    """Return the kernel's filter (bpf(4)) that passes TCP packets over IPv4 and IPv6 from `ports`,
    without fragments.

    A step is (operation, jump if true, jump if false, operand); a jump counts the steps to skip.
    """
    compared = ports if len(ports) <= MAX_PORTS else ()
    first = 13
    drop, accept = first + len(compared), first + len(compared) + 1
    if len(ports) > MAX_PORTS:
        drop, accept = accept, drop
    steps = [
        (_LOAD_HALF, 0, 0, _AD_PROTOCOL),
        (_IF_EQUAL, 10 - 2, 0, _ETH_P_IPV6),
        (_IF_EQUAL, 0, drop - 3, _ETH_P_IP),
        (_LOAD_BYTE, 0, 0, 9),  # the protocol inside IPv4
        (_IF_EQUAL, 0, drop - 5, socket.IPPROTO_TCP),
        (_LOAD_HALF, 0, 0, 6),  # the fragment's flags and offset
        (_IF_ANY_BIT, drop - 7, 0, 0x3FFF),
        (_LOAD_HEADER_LENGTH, 0, 0, 0),
        (_LOAD_HALF_BEHIND_HEADER, 0, 0, 0),  # the source port
        (_JUMP, 0, 0, first - 10),
        (_LOAD_BYTE, 0, 0, 6),  # the protocol inside IPv6
        (_IF_EQUAL, 0, drop - 12, socket.IPPROTO_TCP),
        (_LOAD_HALF, 0, 0, 40),  # the source port
        *(
            (_IF_EQUAL, accept - first - number - 1, 0, port)
            for number, port in enumerate(compared)
        ),
    ]
    ends = {drop: (_RETURN, 0, 0, 0), accept: (_RETURN, 0, 0, SNAP_BYTES)}
    steps += [ends[place] for place in sorted(ends)]
    return b"".join(_STEP.pack(*step) for step in steps)


class PacketStreams:
    def __init__(self) -> None:
        self._unclaimed: dict[Key, StreamTimes] = {}
        self._claimed: dict[Key, StreamTimes] = {}
        self._packets = self._missed = 0
        self._reordered = self._repeated = 0  # sums over the released streams

    def take(self, ring: mmap.mmap, at: int) -> int:
        """Add the packets of `ring` from the slot at `at` on, and return the place of the first
        empty slot.

        The slots are given back to the kernel.
        """
        size, claimed = len(ring), self._claimed
        slot, ipv4, ipv6, free = (
            _SLOT.unpack_from,
            _IPV4.unpack_from,
            _IPV6.unpack_from,
            _FREE.pack_into,
        )
        offset_ns = 0
        while True:
            status, length, network, seconds, nanoseconds = slot(ring, at)
            if not status & _USER:
                return at
            if not offset_ns:
                offset_ns = clock.wall_offset_ns()
            arrived = seconds * NS_PER_S + nanoseconds - offset_ns
            first, total, protocol, key, sequence, header, flags = ipv4(ring, at + network)
            payload = total - 20 - (header >> 4) * 4
            if first >> 4 == 6:
                total, protocol, key, sequence, header, flags = ipv6(ring, at + network)
                payload = total - (header >> 4) * 4
            elif first != _IPV4_WITHOUT_OPTIONS:
                total = 0
            times = (
                claimed.get(key)
                if total and protocol == socket.IPPROTO_TCP and not flags & _SYN
                else None
            )
            if times is not None:
                self._packets += 1
                if payload > 0:
                    times.add(sequence, payload, arrived)
            elif segment := parse(ring, at + network, length):
                self.add(segment, arrived)
            free(ring, at, 0)
            at += FRAME_BYTES
            if at == size:
                at = 0

    def add(self, segment: Segment, at: int) -> None:
        key, sequence, length, flags = segment
        self._packets += 1
        times = self._claimed.get(key)
        if times is None or flags & _SYN:
            times = self._of_unclaimed(key, sequence, flags)
        if times is not None and length:
            times.add(sequence, length, at)

    def claim(self, key: Key, read: int) -> StreamTimes | None:
        times = self._unclaimed.pop(key, None)
        if times is None or read > times.arrived:
            return None
        times.take(read)
        self._claimed[key] = times
        return times

    def release(self, key: Key) -> None:
        times = self._claimed.pop(key, None)
        if times is not None:
            self._reordered += times.reordered
            self._repeated += times.repeated

    def count_missed(self) -> None:
        self._missed += 1

    def counts(self, lost: int) -> PacketCounts:
        return PacketCounts(
            packets=self._packets,
            lost=lost,
            reordered=self._reordered + sum(times.reordered for times in self._claimed.values()),
            repeated=self._repeated + sum(times.repeated for times in self._claimed.values()),
            missed=self._missed,
        )

    def _of_unclaimed(self, key: Key, sequence: int, flags: int) -> StreamTimes | None:
        if flags & _SYN:
            self._unclaimed[key] = StreamTimes((sequence + 1) % (1 << 32))
            if len(self._unclaimed) > MAX_UNCLAIMED:
                del self._unclaimed[next(iter(self._unclaimed))]
            return None
        times = self._unclaimed.get(key)
        if times is not None and len(times) >= MAX_UNCLAIMED_PACKETS:
            del self._unclaimed[key]
            return None
        return times


class PacketRing:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the ring. Raises `OSError` if the system has none or does not allow it."""
        self.streams = PacketStreams()
        self._ports: dict[int, None] = {}
        self._lost = self._at = 0
        self._loop = loop
        self._socket, self._memory = _open_ring(BLOCKS)
        self._timer = loop.call_later(DRAIN_S, self._drain_regularly)

    def expect(self, port: int) -> None:
        if port not in self._ports:
            self._ports[port] = None
            _set_filter(self._socket, self._ports)

    def claim(self, sock: socket.socket) -> StreamTimes | None:
        read = bytes_read(sock)
        self.drain()
        return None if read is None else self.streams.claim(key_of(sock), read)

    def drain(self) -> None:
        self._at = self.streams.take(self._memory, self._at)

    def counts(self) -> PacketCounts:
        self._lost += struct.unpack("@II", self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8))[1]
        return self.streams.counts(self._lost)

    def close(self) -> None:
        self._timer.cancel()
        if not self._memory.closed:
            self._memory.close()
            self._socket.close()

    def _drain_regularly(self) -> None:
        self._timer = self._loop.call_later(DRAIN_S, self._drain_regularly)
        self.drain()


def _open_ring(blocks: int) -> tuple[socket.socket, mmap.mmap]:
    if sys.platform != "linux":
        raise OSError(errno.ENOTSUP, "only Linux has packet rings")
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
    try:
        _set_filter(sock, ())
        sock.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V2)
        sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        size = BLOCK_BYTES * blocks
        sock.setsockopt(
            _SOL_PACKET,
            _RX_RING,
            struct.pack("@IIII", BLOCK_BYTES, blocks, FRAME_BYTES, size // FRAME_BYTES),
        )
        return sock, mmap.mmap(sock.fileno(), size)
    except BaseException:
        sock.close()
        raise


def _set_filter(sock: socket.socket, ports: Iterable[int]) -> None:
    program = ctypes.create_string_buffer(filter_program(tuple(ports)))
    steps = len(program) // _STEP.size  # the buffer ends with one more byte
    sock.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HL", steps, ctypes.addressof(program))
    )


def packet_clock_refusal() -> str:
    try:
        sock, memory = _open_ring(1)
    except PermissionError:
        return "this process lacks the capability CAP_NET_RAW"
    except OSError as error:
        return f"the system has no packet rings ({error.strerror})"
    memory.close()
    sock.close()
    return ""
