"""Messages to systemd, or another service manager with its protocol: ready, reloading, stopping,
still alive.

A service manager that starts the gateway as ``Type=notify`` names a socket in ``NOTIFY_SOCKET``;
without it nothing is sent. Source: the manual page sd_notify(3).
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

from splitsecond.core import clock
from splitsecond.core.internal_errors import contained

WATCHDOG_SHARE = 0.4
"""Share of the watchdog's timeout between two messages, so that one may be late."""
SEND_S = 0.2
"""How long a message waits for room in the queue of the service manager. The event loop waits,
too."""


class ServiceManager:
    def __init__(
        self, say: Callable[[str], None], environment: Mapping[str, str] = os.environ
    ) -> None:
        self._say = say
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]  # Linux: an abstract socket
        self._failed = False
        timeout_us = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog_s = int(timeout_us) / 1e6 if ours and timeout_us.isdecimal() else 0.0

    def ready(self) -> None:
        self._notify("READY=1")

    def announce(self, address: str, *, dashboard: bool = True) -> None:
        """Print that requests are accepted at `address`, and where the dashboard is, if there is
        one."""
        line = f"READY {address}"
        if dashboard:
            line += f" dashboard={dashboard_address(address)}"
        with contextlib.suppress(OSError):
            os.write(1, f"{line}\n".encode())
        self.ready()

    def reloading(self) -> None:
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={clock.now_ns() // clock.NS_PER_US}")

    def stopping(self) -> None:
        self._notify("STOPPING=1")

    async def keep_alive(self) -> None:
        while self._watchdog_s:
            with contained("task"):
                self._notify("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s * WATCHDOG_SHARE)

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(SEND_S)
                channel.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._failed:
                self._say(f"The service manager cannot be reached at NOTIFY_SOCKET: {error}.")
            self._failed = True


def dashboard_address(address: str) -> str:
    here = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    return f"{here.removesuffix('/v1')}/dashboard"
