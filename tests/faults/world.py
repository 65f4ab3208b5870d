"""A gateway with all its parts before simulated providers, in one process and in virtual time.

Between the gateway's own HTTP client and the simulator's own server lies a pair of sockets, which
the kernel serves at once: so every byte passes through both as it would over a network, and yet
time is virtual and nothing depends on the machine. Clients call the gateway's application directly
(`tests/gateway/visitor`).
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from msgspec import structs
from tests.gateway.visitor import Visitor, visits

from splitsecond.core import clock
from splitsecond.core.pacing import Pacer
from splitsecond.core.serving.connection import HEAD_S, ServerConnection
from splitsecond.core.serving.request_cycle import Application, ServerState
from splitsecond.core.transport.connecting import OpenSocket
from splitsecond.core.transport.exchange import Origin
from splitsecond.gateway.process.slot import SharedTables, WorkerSlot
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.gateway.records.sessions import Sessions
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.simulator.app import SimulatedProvider
from splitsecond.simulator.content.faults import InjectedFault
from splitsecond.simulator.content.tokens import count_tokens, token_text
from splitsecond.simulator.profile import Profile, Quantiles, TableRow
from splitsecond.simulator.truth import TruthLog, TruthRecord
from splitsecond.testing.virtual_time import run_virtual

CLIENT_KEY = "canary-of-the-client-0123456789"
OUR_KEYS = {"KEY_A": "canary-of-provider-a-0123456789", "KEY_B": "canary-of-provider-b-0123456789"}
PROMPT = "canary in the prompt: the colour of the parrot is blue"
TOKENS = 12
TEXT = "".join(map(token_text, range(TOKENS)))
INPUT_TOKENS = count_tokens("chat", PROMPT)

PROVIDERS = """
keys: [{name: web, key: env:CLIENT_KEY}]
providers:
  a:
    {base_url: "http://127.0.0.1:1/v1", api_key: env:KEY_A, region: eu,
      price: {input_usd: 1, output_usd: 1},
     timeouts: {stall: STALL}}
  b: {base_url: "http://127.0.0.1:2/v1", api_key: env:KEY_B, region: eu,
    price: {input_usd: 2, output_usd: 2}}
"""


def profile(*faults: InjectedFault, ttft_ms: float = 50.0, tokens: int = TOKENS) -> Profile:
    """A provider that says `tokens` tokens at 100 a second, and ends by itself."""
    speeds = TableRow(
        concurrency=1, ttft_ms=Quantiles(ttft_ms, ttft_ms), tps=Quantiles(100.0, 100.0)
    )
    return Profile(
        name="m", title="M", model="m", natural_tokens=tokens, table=(speeds,), faults=faults
    )


class Provider:
    """A provider in this process. `connected_ns`: when connections to it were made."""

    def __init__(self, application: Application) -> None:
        self.connected_ns: list[int] = []
        self._state = ServerState(first_request_s=HEAD_S)
        self._application = application

    async def connect(self) -> socket.socket:
        """The other end of a new connection."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        self.connected_ns.append(clock.now_ns())
        try:
            await loop.connect_accepted_socket(self._connection, theirs)
        except asyncio.CancelledError:
            ours.close()
            theirs.close()
            raise
        return ours

    def _connection(self) -> ServerConnection:
        on_connect = (
            self._application.on_connect
            if isinstance(self._application, SimulatedProvider)
            else None
        )
        return ServerConnection(self._application, self._state, on_connect)

    @property
    def open(self) -> int:
        """How many connections are."""
        return len(self._state.connections)


class World:
    """The gateway and its providers "a" and "b". Use within `play`."""

    def __init__(
        self,
        policy: str,
        folder: Path,
        providers: Mapping[str, Profile | Application],
        pacer: Pacer,
        stall: str,
        edit: Callable[[str], str],
        workers: int,
    ) -> None:
        self._truth = TruthLog()
        self.simulated = {
            name: Provider(
                SimulatedProvider(
                    structs.replace(given, name=name), seed=1, pacer=pacer, truth=self._truth
                )
                if isinstance(given, Profile)
                else given
            )
            for name, given in providers.items()
        }
        self.database = folder / "log.db"
        self._folder = folder
        self._text = (
            f"{PROVIDERS.replace('STALL', stall)}routes: {{fast: {{policy: "
            f"'{policy}'}}}}\nlog: sqlite:///log.db\n"
        )
        settings = self._settings(edit)
        slots = [WorkerSlot()]
        if workers > 1:
            shared, sessions = SharedTables.create(workers), Sessions.create(bytes(32))
            slots = [
                WorkerSlot(number=i, workers=workers, shared=shared, sessions=sessions)
                for i in range(workers)
            ]
        self.workers = [GatewayWorker(settings, slot, chance=Random(1)) for slot in slots]
        self.worker = self.workers[0]
        # as `learn` does when a thread has read the log, which is new
        self.worker._note_spending_read()
        self.asked = 0
        self.connecting: dict[str, Callable[[int | None], Coroutine[Any, Any, None]]] = {}
        """What happens, by provider, before a connection to it is there; the argument is the
        deadline (ns)."""

    def _settings(self, edit: Callable[[str], str]) -> GatewaySettings:
        environment = OUR_KEYS | {"CLIENT_KEY": CLIENT_KEY}
        return read(edit(self._text), environment, folder=self._folder)

    def renew(self, edit: Callable[[str], str]) -> None:
        """Reload the configuration, changed by `edit`."""
        for worker in self.workers:
            worker.renew(self._settings(edit))

    async def open_socket(
        self, origin: Origin, proxy: object, tls: object, deadline_ns: int | None
    ) -> OpenSocket:
        """Stands for `core.transport.connecting.open_socket`."""
        name, provider = list(self.simulated.items())[origin.port - 1]
        if name in self.connecting:
            await self.connecting[name](deadline_ns)
        return OpenSocket(await provider.connect(), None, str(origin), 0, 0, 0)

    def requests(self, name: str) -> list[TruthRecord]:
        """What the provider saw, each with the fault that struck it."""
        return [record for record in self._truth.records() if record.profile == name]

    async def ask(
        self, *, stream: bool = True, leaves_after_s: float | None = None, **fields: Any
    ) -> Visitor:
        """A chat, from a client that may leave."""
        self.asked += 1
        visitor = visits(self.worker.gateway)
        body = {
            "model": "fast",
            "messages": [{"role": "user", "content": PROMPT}],
            "stream": stream,
            **fields,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        if leaves_after_s is not None:
            asyncio.get_running_loop().call_later(leaves_after_s, visitor.leave)
        return await visitor.asks(body, headers={"authorization": f"Bearer {CLIENT_KEY}"})

    async def settled(self) -> None:
        """Return when nothing is in flight; a connection that was used is then idle or closed."""
        await asyncio.sleep(2)
        _, _, said = repr(self.worker).partition("connections: ")
        assert (
            said == f"{sum(provider.open for provider in self.simulated.values())} idle, 0 active]"
        )


def play(
    policy: str,
    folder: Path,
    story: Callable[[World], Coroutine[Any, Any, None]],
    *,
    stall: str = "60s",
    edit: Callable[[str], str] = str,
    workers: int = 1,
    **providers: Profile | Application,
) -> World:
    """Makes a world, plays `story` in it, and takes it down: the log is written then.

    `stall`: how long "a" may say nothing within an answer. `edit`: changes the configuration.
    """

    async def main() -> World:
        with Pacer(asyncio.get_running_loop()) as pacer:
            world = World(policy, folder, providers, pacer, stall, edit, workers)
            try:
                with mock.patch("splitsecond.core.transport.client.open_socket", world.open_socket):
                    await story(world)
            finally:
                for worker in world.workers:
                    worker.close()
            await asyncio.sleep(1)  # providers see that we have gone
            return world

    return run_virtual(main())
