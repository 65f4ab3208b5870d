"""The process: binds the ports, serves several providers on one loop, says when each answers.

One uvicorn server listens on all the ports, on asyncio's own loop: its transport writes at once, so that a time stamp
taken right before is the time of the write. uvloop's writes at the end of the loop's turn. Measured with 256 streams of
100 tokens/s on a machine of two cores: 27 µs of CPU per token on asyncio, 24 on uvloop (made to write at once); on
both 90 % of the tokens left within 50 µs of their time, and 99 % within 0.15 ms.
"""

import asyncio
import gc
import os
import socket
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvicorn
from msgspec import structs

from splitsecond.errors import CallerFault
from splitsecond.pacing import Pacer
from splitsecond.simulator.app import SimulatedProvider, Simulator
from splitsecond.simulator.connection import Connection
from splitsecond.simulator.profile import Profile, load
from splitsecond.simulator.truth import Truth

BACKLOG = 2048
KEEP_ALIVE_S = 75
"""As nginx: longer than a benchmark's pause between two conditions."""


def serve(
    profiles: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 9001,
    seed: int = 0,
    log: Path | None = None,
    until_eof: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; if `until_eof`, until standard input ends, too.

    `profiles` are names, aliases or paths; ports count up from `port` (0: any free). Prints
    ``READY name url model=…`` for each when they answer. Raises `CallerFault`: an unknown profile, a port that is
    taken, a log that cannot be written.
    """
    loaded = told_apart([load(name) for name in profiles])
    if not loaded:
        raise CallerFault("no profile given", kind="no_profile", hint='For example "groq".')
    truth = Truth(log)
    try:
        sockets = _bind(host, port, len(loaded))
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(_serve(dict(zip(sockets, loaded, strict=True)), seed, truth, until_eof))
    except KeyboardInterrupt:
        pass  # uvicorn has ended in good order, and passes the signal on
    finally:
        truth.close()


def told_apart(profiles: Sequence[Profile]) -> list[Profile]:
    """The same profiles; one that comes again is renamed `name#2`: it draws differently, and has its own truth."""
    seen: Counter[str] = Counter()
    apart: list[Profile] = []
    for profile in profiles:
        seen[profile.name] += 1
        again = seen[profile.name]
        apart.append(profile if again == 1 else structs.replace(profile, name=f"{profile.name}#{again}"))
    return apart


class _Server(uvicorn.Server):
    """Tells when it answers, and breaks off what it is answering when it goes down."""

    def __init__(self, config: uvicorn.Config, simulator: Simulator, ready: Sequence[str]) -> None:
        super().__init__(config)
        self._simulator = simulator
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # what start-up left behind need not be looked through again and again
        print(*self._ready, sep="\n", flush=True)

    def heard_from_parent(self) -> None:
        """Standard input has something, or has ended with the process that held its other end: then so do we."""
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._simulator.abandon()
        await super().shutdown(sockets)


async def _serve(profiles: Mapping[socket.socket, Profile], seed: int, truth: Truth, until_eof: bool) -> None:
    loop = asyncio.get_running_loop()
    with Pacer(loop) as pacer:
        providers = {
            bound.getsockname()[1]: SimulatedProvider(profile, seed=seed, pacer=pacer, truth=truth)
            for bound, profile in profiles.items()
        }
        simulator = Simulator(providers)
        config = uvicorn.Config(
            simulator,
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
            timeout_graceful_shutdown=1,
        )
        server = _Server(config, simulator, [_ready_line(*item) for item in profiles.items()])
        if until_eof:
            loop.add_reader(sys.stdin.fileno(), server.heard_from_parent)
        await server.serve(list(profiles))


def _ready_line(bound: socket.socket, profile: Profile) -> str:
    host, port = bound.getsockname()[:2]
    return f"READY {profile.name} http://{f'[{host}]' if ':' in host else host}:{port}/v1 model={profile.model}"


def _bind(host: str, port: int, count: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        for number in range(count):
            wanted = port + number if port else 0
            bound.append(socket.create_server((host, wanted), family=family, backlog=BACKLOG))
    except (OSError, OverflowError) as error:
        for one in bound:
            one.close()
        raise CallerFault(
            f"cannot listen on {host}:{wanted}: {error}",
            kind="cannot_listen",
            hint="Choose another with --port; 0 takes a free one.",
        ) from error
    return bound
