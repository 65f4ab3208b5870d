"""Listening socket whose connections record when the kernel received the bytes of each read.

asyncio reads a socket with `recv`, which returns no timestamp. So `recv` is replaced here by
`recvmsg`, which returns the kernel's timestamp beside the data.
"""

import socket
from typing import Any, ClassVar

from splitsecond.core.clock import NS_PER_S, arrival
from splitsecond.core.transport.kernel import ANCILLARY_BYTES, STAMP, stamp_arrivals

LARGE_READ = 1 << 16
"""Least bytes of a read that is acknowledged at once. The loopback sends them in one packet. Linux
may wait 40 ms for a second one before it acknowledges, and meanwhile the client cannot send the
rest of a long request."""
QUICKACK = getattr(socket, "TCP_QUICKACK", None)


class StampedSocket(socket.socket):
    received_ns: ClassVar[dict[int, int]] = {}
    """The times of all sockets of the process, in monotonic nanoseconds by file descriptor. A read
    without a timestamp leaves none."""

    @staticmethod
    def of(sock: socket.socket) -> "StampedSocket":
        return StampedSocket(sock.family, sock.type, sock.proto, sock.detach())

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        self.received_ns.pop(accepted.fileno(), None)
        stamp_arrivals(accepted)
        return self.of(accepted), address

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        data, ancillary, _, _ = self.recvmsg(bufsize, ANCILLARY_BYTES, flags)
        if ancillary:
            seconds, nanoseconds = STAMP.unpack(ancillary[0][2])
            self.received_ns[self.fileno()] = arrival(seconds * NS_PER_S + nanoseconds)[0]
        if len(data) >= LARGE_READ and QUICKACK is not None:
            self.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
        return data
