"""The sockets that a server listens on."""

import socket
import sys
from contextlib import ExitStack

from splitsecond.core.errors import CallerFault

BACKLOG = 2048


def bind(host: str, port: int, count: int = 1) -> list[socket.socket]:
    """Return `count` sockets that listen at one address, for as many processes. Raises
    `CallerFault` if that fails.

    On Linux each socket has its own queue, and the kernel distributes new connections among them
    (SO_REUSEPORT). If several processes accepted from one queue, the first one to wake up would get
    most. Elsewhere all share one socket. The address is first bound without SO_REUSEPORT, because
    two servers at one port would not notice each other.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        first = socket.create_server((host, port), family=family, backlog=BACKLOG)
        if count == 1 or sys.platform != "linux":
            return [first] * count
        address = first.getsockname()[:2]
        first.close()
        return [
            socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=True)
            for _ in range(count)
        ]
    except (OSError, OverflowError) as error:
        raise CallerFault(
            f"cannot listen on {host}:{port}: {error}",
            kind="cannot_listen",
            hint="Choose another port with --port; 0 takes a free one.",
        ) from error


def bind_range(host: str, port: int, count: int) -> list[socket.socket]:
    """Return sockets that listen on `count` successive ports from `port`; 0 takes free ones. Raises
    like `bind`."""
    with ExitStack() as stack:
        numbers = range(port, port + count) if port else [0] * count
        sockets = [stack.enter_context(bind(host, number)[0]) for number in numbers]
        stack.pop_all()
        return sockets


def base_url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
