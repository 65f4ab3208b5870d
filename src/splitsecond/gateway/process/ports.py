"""The sockets that a gateway listens on, one for each of its worker processes."""

import socket
import sys

from splitsecond.errors import CallerFault

BACKLOG = 2048


def bound(host: str, port: int, count: int = 1) -> list[socket.socket]:
    """Sockets that listen at one address. Raises `CallerFault` where it cannot be had.

    On Linux each has its own queue and the kernel deals new connections out among them (SO_REUSEPORT); of one queue
    that several processes take from, the one that wakes first takes most. Elsewhere there is one socket for all. It is
    asked for alone first, as two gateways at one port would not notice each other.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        first = socket.create_server((host, port), family=family, backlog=BACKLOG)
        if count == 1 or sys.platform != "linux":
            return [first] * count
        address = first.getsockname()[:2]
        first.close()
        return [socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=True) for _ in range(count)]
    except (OSError, OverflowError) as error:
        raise CallerFault(
            f"cannot listen on {host}:{port}: {error}", kind="cannot_listen", hint="Choose another with --port."
        ) from error


def url(listening: socket.socket) -> str:
    """The base URL for clients."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
