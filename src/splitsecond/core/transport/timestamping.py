"""Timestamps of sent packets, and those of network cards (Linux; networking/timestamping.rst of the
kernel).

The kernel can stamp a packet when it enters the queue of its interface, and when it is handed to
the device. The stamps come back through the error queue of the socket. They show how late a request
leaves after it was written.

A network card can stamp packets by a clock of its own. Whether it can is asked through ioctls that
change nothing.
"""

import array
import fcntl
import socket
import struct
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.transport.kernel import STAMP

_LINUX = sys.platform == "linux"
_SO_TIMESTAMPING = 37  # as SO_TIMESTAMPNS, on all architectures but alpha, mips, parisc and sparc
_TX_SOFTWARE, _RX_HARDWARE, _SOFTWARE, _RAW_HARDWARE, _OPT_ID, _TX_SCHED, _OPT_TSONLY = (
    2,
    4,
    16,
    64,
    128,
    256,
    2048,
)
# SO_EE_ORIGIN_TIMESTAMPING, SCM_TSTAMP_SND; 1 is the queue
_TIMESTAMPING_ORIGIN, _STAGE_SENT = 4, 0
_EXTENDED_ERROR = struct.Struct("@IBBBBII")
_SIOCETHTOOL, _SIOCGHWTSTAMP, _GET_TS_INFO = 0x8946, 0x89B1, 0x41
# command, features, index of the card's clock, kinds sent, kinds received
_TS_INFO = struct.Struct("@IIiI3II3I")
_CONFIG = struct.Struct("@iii")  # flags, sent packets, received packets that are stamped
_REQUEST = struct.Struct("@16sP16x")
_ALL_PACKETS = 1  # HWTSTAMP_FILTER_ALL; the others are packets of PTP
_WRITES, _BYTES = 200, 1000
_WAIT_S = 0.2


class SendStamps(Struct, frozen=True):
    """When the kernel queued a packet, and handed it to the network device, in monotonic ns; None:
    not known."""

    queued_ns: int | None = None
    left_ns: int | None = None


class CardStamps(Struct, frozen=True):
    """Whether a network interface stamps all received packets in hardware.

    `able`: it can. `enabled`: it does now, None if that cannot be read. `reason`: why it cannot, ""
    if it can.
    """

    interface: str
    able: bool
    enabled: bool | None
    reason: str


def stamp_sends(sock: socket.socket) -> bool:
    """Ask for the times at which packets leave. Until `sent_stamps` takes them, the socket polls as
    failed."""
    if not _LINUX:
        return False
    flags = _TX_SOFTWARE | _TX_SCHED | _SOFTWARE | _OPT_ID | _OPT_TSONLY
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, flags)
    except OSError:
        return False
    return True


def sent_stamps(sock: socket.socket) -> SendStamps:
    """Take the stamps of what was sent last; of several packets, the latest counts."""
    queued_ns = left_ns = None
    for sent, at_ns in _error_queue(sock):
        if sent:
            left_ns = at_ns
        else:
            queued_ns = at_ns
    return SendStamps(queued_ns, left_ns)


def _error_queue(sock: socket.socket) -> Iterator[tuple[bool, int]]:
    """Yield whether a packet was handed to the device (else queued), and when, in monotonic ns."""
    offset_ns = clock.wall_offset_ns()
    while _LINUX:
        try:
            _, ancillary, _, _ = sock.recvmsg(1, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:  # the queue is empty, or the connection is gone
            return
        at_ns, sent = 0, None
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPING:
                seconds, nanoseconds = STAMP.unpack_from(data)
                at_ns = seconds * NS_PER_S + nanoseconds - offset_ns
            elif len(data) >= _EXTENDED_ERROR.size:
                _, origin, _, _, _, stage, _ = _EXTENDED_ERROR.unpack_from(data)
                sent = stage == _STAGE_SENT if origin == _TIMESTAMPING_ORIGIN else None
        if at_ns > 0 and sent is not None:
            yield sent, at_ns


def loopback_send_delays_ns() -> Sequence[int]:
    """Return for some writes on the loopback how long after them the kernel handed the packet to
    the device, in ns.

    Empty: the kernel gives no such stamps. Raises `OSError` if no connection can be opened.
    """
    delays: list[int] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
    ):
        theirs, _ = server.accept()
        with theirs:
            theirs.settimeout(_WAIT_S)
            ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not stamp_sends(ours):
                return delays
            for _ in range(_WRITES):
                written_ns = clock.now_ns()
                ours.sendall(bytes(_BYTES))
                received = 0
                while received < _BYTES:
                    received += len(theirs.recv(_BYTES))
                left_ns = sent_stamps(ours).left_ns
                if left_ns is not None:
                    delays.append(left_ns - written_ns)
    return delays


def card_stamps() -> list[CardStamps]:
    """Return what each network interface but the loopback can stamp. Empty where the system cannot
    say."""
    if not _LINUX:
        return []
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return [_card(sock, name) for name in names]


def _card(sock: socket.socket, name: str) -> CardStamps:
    try:
        info = _asked(sock, name, _SIOCETHTOOL, _TS_INFO.pack(_GET_TS_INFO, *(0,) * 10))
    except OSError as error:
        return CardStamps(
            name, able=False, enabled=None, reason=(error.strerror or str(error)).lower()
        )
    _, features, _, _, _, _, _, received, *_ = _TS_INFO.unpack(info)
    if not features & _RX_HARDWARE or not features & _RAW_HARDWARE:
        return CardStamps(name, able=False, enabled=False, reason="software timestamps only")
    if not received & 1 << _ALL_PACKETS:
        return CardStamps(
            name, able=False, enabled=False, reason="hardware timestamps of PTP packets only"
        )
    try:
        _, _, enabled = _CONFIG.unpack(_asked(sock, name, _SIOCGHWTSTAMP, bytes(_CONFIG.size)))
    except OSError:  # some drivers do not say
        return CardStamps(name, able=True, enabled=None, reason="")
    return CardStamps(name, able=True, enabled=enabled == _ALL_PACKETS, reason="")


def _asked(sock: socket.socket, interface: str, request: int, data: bytes) -> bytes:
    buffer = array.array("B", data)
    fcntl.ioctl(sock.fileno(), request, _REQUEST.pack(interface.encode(), buffer.buffer_info()[0]))
    return buffer.tobytes()
