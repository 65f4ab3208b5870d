"""The process: binds the port, runs the gateway on uvloop, and ends in good order.

At SIGTERM or SIGINT it takes no new connections, gives answers under way `DRAIN_S` to end, and breaks off the rest.
"""

import asyncio
import socket
from collections import deque

import uvicorn
import uvloop

from splitsecond.errors import CallerFault
from splitsecond.gateway.app import Gateway
from splitsecond.gateway.connection import Connection
from splitsecond.gateway.routes import Routes
from splitsecond.gateway.settings import Settings, check_reach
from splitsecond.timing.observation import Observation
from splitsecond.transport.client import Client
from splitsecond.upstream.attempt import Observer

BACKLOG = 2048
KEEP_ALIVE_S = 75
DRAIN_S = 30
REMEMBERED = 10_000
"""Observations that are kept where nobody else takes them."""


def serve(settings: Settings, observer: Observer | None = None) -> None:
    """Serve until SIGINT or SIGTERM. Prints ``READY url`` when it answers. `observer`: gets each attempt's observation.

    Raises `CallerFault`: no keys and not only this machine, or a port that cannot be had.
    """
    check_reach(settings)
    bound = _bind(settings.listen.host, settings.listen.port)
    seen: deque[Observation] = deque(maxlen=REMEMBERED)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, observer or seen.append, bound))
    except KeyboardInterrupt:
        pass  # uvicorn has ended in good order, and passes the signal on
    finally:
        bound.close()


class _Server(uvicorn.Server):
    """Says when it answers, and when it is going down."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, url: str) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"READY {self._url}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.draining = True
        await super().shutdown(sockets)


async def _serve(settings: Settings, observer: Observer, bound: socket.socket) -> None:
    client = Client()
    try:
        gateway = Gateway(
            Routes(settings, observer, client), settings.keys, max_body_bytes=settings.listen.max_body_mib << 20
        )
        config = uvicorn.Config(
            gateway,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_level="warning",
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
        )
        host, port = bound.getsockname()[:2]
        await _Server(config, gateway, f"http://{f'[{host}]' if ':' in host else host}:{port}/v1").serve([bound])
    finally:
        client.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CallerFault(
            f"cannot listen on {host}:{port}: {error}", kind="cannot_listen", hint="Choose another with --port."
        ) from error
