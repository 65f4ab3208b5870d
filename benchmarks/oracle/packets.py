"""What the packets say: every request to a port, with the times of the packets that brought its
tokens.

It shares no code with the instrument. A process of its own copies whole packets of the port from a
packet socket (packet(7)) into a file, with the kernel's receive time of each. Later the file is
parsed: TCP streams, HTTP/1.1 with chunked bodies, server-sent events. So it judges every tool, ours
included, by the same packets.

It needs Linux, CAP_NET_RAW, and a server on 127.0.0.1 without TLS.
"""

import bisect
import ctypes
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

BUFFER_BYTES = 1 << 28
LONGEST_PACKET = 1 << 17
NS_PER_S = 1_000_000_000

_SOL_PACKET, _STATISTICS, _IGNORE_OUTGOING = 263, 6, 23
_ETH_P_IP = 0x0800
_SO_ATTACH_FILTER, _SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 26, 35, 33
_RECORD = struct.Struct("<QI")
_SYN = 2


class PacketRequest(Struct):
    """One streamed chat completion, in nanoseconds of wall-clock time.

    `sent`: the packet with the request's first byte. `complete`: the one with its last byte.
    `first` and `last`: those that completed the first and the last event with text. `end`: that
    with the end mark or, without one, the end of the body. `texts`: events with text.
    """

    sent: int
    complete: int
    asked_tokens: int
    first: int = 0
    last: int = 0
    end: int = 0
    texts: int = 0
    tokens: int = 0
    """Output tokens, by the server's usage; without usage the events with text."""

    @property
    def ttft_ms(self) -> float:
        """First text − first byte of the request."""
        return (self.first - self.sent) / 1e6

    @property
    def e2e_ms(self) -> float:
        """Last text − first byte of the request."""
        return (self.last - self.sent) / 1e6

    @property
    def tpot_ms(self) -> float | None:
        """(Last text − first text) ÷ (tokens − 1); None for one token."""
        tokens = self.tokens or self.texts
        return (self.last - self.first) / (tokens - 1) / 1e6 if tokens > 1 else None


class Capture:
    """Copies the packets of `port` on 127.0.0.1 into `path` while the context is open, in a process
    of its own."""

    def __init__(self, port: int, path: Path) -> None:
        self._port, self._path = port, path
        self._process: subprocess.Popen[str] | None = None
        self.lost = 0
        """Packets that the kernel had no room for; known after the end."""

    def __enter__(self) -> Self:
        command = [
            sys.executable,
            "-m",
            "benchmarks.oracle.packets",
            str(self._port),
            str(self._path),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "READY\n":
            raise SystemExit("the packet capture could not start; it needs Linux and CAP_NET_RAW")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        said, _ = self._process.communicate()
        self.lost = int(said or 0)


def _filter(port: int) -> bytes:
    """Return the kernel's filter (bpf(4)) that passes TCP over IPv4 from or to `port`, without
    fragments."""
    steps = [
        (0x28, 0, 0, 0xFFFFF000),  # the protocol of the packet
        (0x15, 0, 9, _ETH_P_IP),
        (0x30, 0, 0, 9),
        (0x15, 0, 7, socket.IPPROTO_TCP),
        (0x28, 0, 0, 6),
        (0x45, 5, 0, 0x1FFF),
        (0xB1, 0, 0, 0),
        (0x48, 0, 0, 0),
        (0x15, 3, 0, port),
        (0x48, 0, 0, 2),
        (0x15, 1, 0, port),
        (0x06, 0, 0, 0),
        (0x06, 0, 0, LONGEST_PACKET),
    ]
    return b"".join(struct.pack("@HBBI", *step) for step in steps)


def record(port: int, path: Path) -> None:
    """Copy packets into `path` until standard input ends; then print how many were lost."""
    program = ctypes.create_string_buffer(_filter(port))
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP)) as sock,
        path.open("wb", buffering=1 << 20) as file,
    ):
        attached = struct.pack("@HL", (len(program) - 1) // 8, ctypes.addressof(program))
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)
        sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.settimeout(0.2)
        ended = threading.Event()
        threading.Thread(target=_set_at_end, args=[ended], daemon=True).start()
        print("READY", flush=True)
        while True:
            try:
                data, controls, _, _ = sock.recvmsg(LONGEST_PACKET, 64)
            except TimeoutError:
                if ended.is_set():
                    break
                continue
            seconds, nanoseconds = struct.unpack("@qq", controls[0][2])
            file.write(_RECORD.pack(seconds * NS_PER_S + nanoseconds, len(data)))
            file.write(data)
        print(struct.unpack("@II", sock.getsockopt(_SOL_PACKET, _STATISTICS, 8))[1], flush=True)


def _set_at_end(ended: threading.Event) -> None:
    """Set `ended` when standard input ends."""
    sys.stdin.read()
    ended.set()


class _Stream:
    """One direction of a connection: its bytes in order, and when each arrived."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._ends: list[int] = []
        self._times: list[int] = []
        self._next: int | None = None
        self.broken = False
        """Whether bytes are missing."""

    def begin(self, sequence: int) -> None:
        self._next = (sequence + 1) % (1 << 32)

    def add(self, sequence: int, payload: bytes, at: int) -> None:
        if self._next is None:
            self._next = sequence
        repeated = (self._next - sequence) % (1 << 32)
        if repeated >= 1 << 31:
            self.broken = True
        if self.broken or repeated >= len(payload):
            return
        self.data += payload[repeated:]
        self._next = (sequence + len(payload)) % (1 << 32)
        self._ends.append(len(self.data))
        self._times.append(at)

    def time_of(self, place: int) -> int:
        """Return the arrival of the byte at `place`."""
        return self._times[bisect.bisect_right(self._ends, place)]


def _packets(path: Path) -> Iterator[tuple[int, bytes]]:
    """Return the complete records of a capture, which may have been cut off."""
    with path.open("rb") as file:
        while len(head := file.read(_RECORD.size)) == _RECORD.size:
            at, length = _RECORD.unpack(head)
            packet = file.read(length)
            if len(packet) < length:
                return
            yield at, packet


def read(path: Path, port: int) -> list[PacketRequest]:
    """Return the requests in a capture of `port` that were sent completely and had a token, by
    their start."""
    connections: dict[bytes, list[tuple[_Stream, _Stream]]] = defaultdict(list)
    for at, packet in _packets(path):
        header = (packet[0] & 15) * 4
        target, sequence = struct.unpack_from(">HI", packet, header + 2)
        from_client = target == port
        client = packet[12:16] + packet[header : header + 2]
        if not from_client:
            client = packet[16:20] + packet[header + 2 : header + 4]
        flags = packet[header + 13]
        known = connections[client]
        if not known or (flags & _SYN and from_client):
            known.append((_Stream(), _Stream()))
        stream = known[-1][0 if from_client else 1]
        if flags & _SYN:
            stream.begin(sequence)
            continue
        payload = packet[header + (packet[header + 12] >> 4) * 4 : int.from_bytes(packet[2:4])]
        if payload:
            stream.add(sequence, payload, at)
    found = [
        request
        for pairs in connections.values()
        for asked, answered in pairs
        for request in _requests(asked, answered)
    ]
    return sorted((request for request in found if request.texts), key=lambda request: request.sent)


def _requests(asked: _Stream, answered: _Stream) -> Iterator[PacketRequest]:
    """Pair the requests of a connection with its responses, which have the same order."""
    response_at = 0
    at = 0
    while (body := asked.data.find(b"\r\n\r\n", at)) >= 0:
        begun, at = at, body + 4
        headers = _headers(asked.data[begun:body])
        if "chunked" in headers.get("transfer-encoding", ""):
            text, at = _dechunked(asked.data, at)
        else:
            length = int(headers.get("content-length", 0))
            text, at = bytes(asked.data[at : at + length]), at + length
        if at > len(asked.data):
            return
        response = answered.data.find(b"\r\n\r\n", response_at)
        if response < 0:
            return
        head = _headers(answered.data[response_at:response])
        if "text/event-stream" not in head.get("content-type", ""):
            response_at = response + 4 + int(head.get("content-length", 0))
            continue
        fields: dict[str, Any] = json.loads(text)
        request = PacketRequest(
            sent=asked.time_of(begun),
            complete=asked.time_of(at - 1),
            asked_tokens=fields.get("max_completion_tokens") or fields.get("max_tokens") or 0,
        )
        response_at = _read_events(request, answered, response + 4)
        yield request
        if response_at < 0:
            return


def _headers(data: bytes | bytearray) -> dict[str, str]:
    lines = data.decode("latin-1").split("\r\n")[1:]
    return {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }


def _dechunked(data: bytearray, at: int) -> tuple[bytes, int]:
    """Return a chunked body and where it ends; an end beyond the data if it is incomplete."""
    text = b""
    for begin, end in _chunks(data, at):
        if begin == end:
            return text, end + 2
        text += data[begin:end]
    return text, len(data) + 1


def _chunks(data: bytearray, at: int) -> Iterator[tuple[int, int]]:
    """Return where each complete chunk begins and ends; the last is empty."""
    while (line := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:line].split(b";")[0], 16)
        begin = line + 2
        at = begin + size + 2
        if at > len(data):
            return
        yield begin, begin + size
        if not size:
            return


def _read_events(request: PacketRequest, answered: _Stream, at: int) -> int:
    """Add the events of a response that begins at `at`; return where it ends, -1 if it was cut
    off."""
    pending = b""
    for begin, end in _chunks(answered.data, at):
        if begin == end:
            request.end = request.end or answered.time_of(end - 1)
            return end + 2
        *lines, pending = (pending + answered.data[begin:end]).split(b"\n")
        arrived = answered.time_of(end - 1)
        for line in lines:
            if line.startswith(b"data:"):
                _add_event(request, line[5:].strip(), arrived)
    return -1


def _add_event(request: PacketRequest, data: bytes, at: int) -> None:
    if data == b"[DONE]":
        request.end = at
        return
    event = json.loads(data)
    request.tokens = (event.get("usage") or {}).get("completion_tokens") or request.tokens
    delta = next((choice.get("delta") or {} for choice in event.get("choices") or ()), {})
    if delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning"):
        request.texts += 1
        request.first = request.first or at
        request.last = at


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    record(int(sys.argv[1]), Path(sys.argv[2]))
