"""Ports for servers that bind them later, in processes of their own."""

import random
import socket
from contextlib import ExitStack, suppress

BELOW = 32_768
"""Linux takes the ports of outgoing connections from here on, so nobody but tests takes those
below."""
ABOVE = 20_000


def free_ports(count: int) -> list[str]:
    """Return numbers of ports that nobody uses now, and that no connection takes in the
    meantime."""
    chosen = random.SystemRandom()  # several test processes choose at the same time
    found: list[str] = []
    with ExitStack() as kept:
        while len(found) < count:
            port = chosen.randrange(ABOVE, BELOW)
            with suppress(OSError):
                kept.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(str(port))
    return found
