"""Kernel features for sockets: arrival timestamps, round-trip times, the limit of open files.

Linux stamps every packet when it comes off the network, long before our process runs, and returns
the stamp beside the data of `recvmsg` (socket(7), SO_TIMESTAMPNS). A read that merges packets has
the last one's stamp. Other systems, and the first packets after a host switches stamping on, have
none: then the clock is read instead, and the read is marked so. TCP_INFO's layout is append-only
(tcp(7), struct tcp_info), so a fixed offset into it is safe.
"""

import fcntl
import resource
import socket
import struct
import sys
import termios
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_LINUX = sys.platform == "linux"
# Python 3.11 has no name for it. 35 is the option of the native struct timespec on every
# architecture but alpha, mips, parisc and sparc (asm-generic/socket.h, SO_TIMESTAMPNS_OLD).
SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)

STAMP = struct.Struct("@ll")
"""struct timespec: seconds and nanoseconds of the wall clock."""

ANCILLARY_BYTES = socket.CMSG_SPACE(STAMP.size)
"""Room for one stamp beside a read. No other ancillary data is enabled."""

UNSENT_BYTES = 1 << 17
"""Most bytes that the kernel takes before it can send them."""

_WORD = struct.Struct("@I")
_RTT_OFFSET = 68  # tcpi_rtt: after 8 bytes of flags and 15 words
_LONG = struct.Struct("@Q")
# tcpi_bytes_received (Linux 4.1): after 8 bytes of flags, 24 words and 3 long words
_BYTES_OFFSET = 128
# tcpi_data_segs_in (Linux 4.6): after 8 bytes of flags, 24 words, 4 long words and 4 words
_PACKETS_OFFSET = 152


def stamp_arrivals(sock: socket.socket) -> bool:
    if not _LINUX:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except (
        OSError
    ):  # a kernel or sandbox without it: the clock is read instead, and each read is marked so
        return False
    return True


def limit_unsent(sock: socket.socket) -> None:
    """Let the socket take at most `UNSENT_BYTES` that cannot be sent yet.

    Without this the kernel buffers megabytes at once, and the end of a write says nothing about
    when a long request left.
    """
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None:
        with suppress(OSError):  # a kernel or sandbox without it
            sock.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)


@contextmanager
def stamping() -> Iterator[None]:
    """Keep the kernel's stamping switched on, so that a connection's first packets have a stamp
    too.

    Linux stamps while at least one socket of the host requests it, and takes some milliseconds to
    begin. Without this a client whose connections come one after another would make it begin again
    for each.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stamped:
        stamp_arrivals(stamped)
        yield


def rtt_ns(sock: socket.socket) -> int | None:
    if not _LINUX:
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_OFFSET + _WORD.size)
    except OSError:
        return None
    if len(info) < _RTT_OFFSET + _WORD.size:
        return None
    microseconds: int = _WORD.unpack_from(info, _RTT_OFFSET)[0]
    return microseconds * 1000


def packets_received(sock: socket.socket) -> int:
    if not _LINUX:
        return 0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _PACKETS_OFFSET + _WORD.size)
    except OSError:
        return 0
    packets: int = (
        _WORD.unpack_from(info, _PACKETS_OFFSET)[0]
        if len(info) >= _PACKETS_OFFSET + _WORD.size
        else 0
    )
    return packets


def bytes_read(sock: socket.socket) -> int | None:
    """Return how many bytes were read from the connection since it was opened; None: not available.

    These are the bytes that the kernel has received in order, without those that wait to be read.
    Bytes that arrive between the two questions would count as read, so they are repeated until
    nothing has arrived.
    """
    waiting = array("i", [0])
    before = -1
    while True:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_OFFSET + _LONG.size)
        if len(info) < _BYTES_OFFSET + _LONG.size:
            return None
        received: int = _LONG.unpack_from(info, _BYTES_OFFSET)[0]
        if received == before:
            return received - waiting[0]
        before = received
        fcntl.ioctl(sock.fileno(), termios.FIONREAD, waiting)


def raise_file_limit(limit: int) -> int:
    """Raise the soft limit of open files to `limit`, as far as the hard limit allows. Return the
    resulting limit.

    Each connection takes a file descriptor. The usual soft limit of 1,024 suits programs that use
    `select`, which cannot handle more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return limit if soft == resource.RLIM_INFINITY else soft
    allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (ValueError, OSError):  # macOS has a lower limit for each process beside these two
        return soft
    return allowed
