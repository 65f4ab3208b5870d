"""What the kernel knows about a TCP connection: when bytes arrived, and how long the round trip is.

Linux stamps every packet when it comes off the network, long before our process runs, and hands the stamp out beside
the data of `recvmsg` (socket(7), SO_TIMESTAMPNS). A read that merges packets carries the last one's stamp. Other
systems, and the first packets after a host switches stamping on, give none: then the clock is read instead, and the
read says so. TCP_INFO's layout is append-only (tcp(7), struct tcp_info), so a fixed offset into it is safe.
"""

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LINUX = sys.platform == "linux"
# Python 3.11 has no name for it. 35 is the option of the native struct timespec on every architecture but
# alpha, mips, parisc and sparc (asm-generic/socket.h, SO_TIMESTAMPNS_OLD).
SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)

STAMP = struct.Struct("@ll")
"""struct timespec: seconds and nanoseconds of the wall clock."""

ANCILLARY_BYTES = socket.CMSG_SPACE(STAMP.size)
"""Room for one stamp beside a read. Nothing else is switched on, so nothing else comes."""

_RTT_US = struct.Struct("@I")
_RTT_OFFSET = 68  # tcpi_rtt: after 8 bytes of flags and 15 words
_INFO_BYTES = _RTT_OFFSET + _RTT_US.size


def stamp_arrivals(sock: socket.socket) -> bool:
    """Ask for a receive timestamp with each read, before connecting. False where the system has none."""
    if not _LINUX:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:  # a kernel or sandbox that does not know it: the clock stands in, and each read says so
        return False
    return True


@contextmanager
def stamping() -> Iterator[None]:
    """While it is open the kernel stamps all packets, so that a connection's first ones have their stamp too.

    Linux stamps while at least one socket of the host asks for it, and takes some milliseconds to begin. Without this
    a client whose connections come one after another would make it begin anew for each.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        stamp_arrivals(asking)
        yield


def rtt_ns(sock: socket.socket) -> int | None:
    """The smoothed round-trip time in nanoseconds. None: the system does not say, or the socket is closed."""
    if not _LINUX:
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return None
    if len(info) < _INFO_BYTES:
        return None
    microseconds: int = _RTT_US.unpack_from(info, _RTT_OFFSET)[0]
    return microseconds * 1000
