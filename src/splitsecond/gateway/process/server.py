"""One worker: all parts of the gateway put together, on uvloop, from the first answer to an end in good order.

A gateway of one worker is this and nothing more. Of several each is a process of its own, started by `supervisor`.

At SIGTERM or SIGINT it says that it is not ready, takes no new connections, gives answers under way `DRAIN_S` to end,
and breaks off the rest; a second signal breaks them off at once. What was served is written to the log either way.
"""

import asyncio
import contextlib
import gc
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import uvicorn
import uvloop
from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.gateway.advice import Advice
from splitsecond.gateway.app import Gateway
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.gateway.connection import Connection
from splitsecond.gateway.dashboard.gathering import Gathering
from splitsecond.gateway.facts import TargetFacts
from splitsecond.gateway.notices import Notices
from splitsecond.gateway.process.ports import BACKLOG, bound, url
from splitsecond.gateway.process.reload import Source, Watch, on_hangup, say
from splitsecond.gateway.records.allowance import Allowance
from splitsecond.gateway.records.books import Books
from splitsecond.gateway.records.history import history, opened, spent_usd
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.gateway.records.tally import Tally
from splitsecond.gateway.routes import Routes
from splitsecond.policy.expression import targets
from splitsecond.policy.targets.standing import Standing
from splitsecond.timing.observation import Observation
from splitsecond.transport.client import Client
from splitsecond.upstream.spec import TargetSpec

if TYPE_CHECKING:
    from splitsecond.store.reading import Tokens

KEEP_ALIVE_S = 75
DRAIN_S = 30
LEARN_S = 5.0
"""Between two readings of the list of prices, which take a second of a processor."""
GARBAGE_OBJECTS = 20_000
"""How many more objects there must be before cycles are looked for: a few megabytes. Hardly anything makes any."""
MOST_UNPRICED = 10_000
"""Attempts that wait for their price."""
UNWIND_S = 2.0
"""How long what was broken off may take to close its connections and leave its observations."""


class Seat(Struct, frozen=True, kw_only=True):
    """Which of a gateway's workers this is. `folder`: one that all may write to, gone at the end; None: it is alone."""

    number: int = 0
    workers: int = 1
    folder: str | None = None


class Worker:
    """All parts of the gateway, put together. Use it within one event loop, and close it at the end.

    What it learns of targets stays when settings change, except what was held against a key that is another one then.
    """

    def __init__(self, settings: Settings, seat: Seat | None = None, *, chance: Random | None = None) -> None:
        """`chance`: what decides where nothing else does. Raises `CallerFault` for settings that cannot be built, or a
        log that cannot be opened."""
        self._seat = seat or Seat()
        folder = None if self._seat.folder is None else Path(self._seat.folder)
        self._settings = settings
        self._facts = TargetFacts(settings)
        self._standing = Standing(self._facts.facts, chance=chance)
        self._client = Client()
        self._routes = Routes(settings, self._observe, self._client, self._standing)  # before the log has a thread
        self._log = opened(settings.log, say)
        self._metrics = Metrics(
            folder=folder,
            available=self._available,
            cascades=self._cascades,
            dropped=self._dropped,
            cost=self._cost_usd,
        )
        self._tally = Tally(folder and folder / "tally", workers=self._seat.workers, number=self._seat.number)
        self._allowance = Allowance(settings.keys, self._facts.cost_usd, tally=self._tally)
        keeps = [self._metrics.took, *([self._log.put] if self._log is not None else [])]
        self._books = Books(*keeps, charge=self._charge)
        self._advice = Advice(settings, self._facts)
        self._notices = Notices(self._standing, say, folder)
        self._unpriced: deque[tuple[str, Observation]] = deque(maxlen=MOST_UNPRICED)
        self._changed = asyncio.Event()
        self._gathering = Gathering(self._metrics, self._standing, say, log=self._log, seats=self._seat.workers)
        self.gateway = Gateway(self._routes, books=self._books, metrics=self._metrics, overview=self._gathering.data)
        self._serve()

    def __repr__(self) -> str:
        return repr(self._client)

    def take(self, settings: Settings) -> None:
        """Serves by other settings from the next request on. Raises `CallerFault`, and nothing has changed.

        Requests under way end as they began. Connections are kept, and are used again where the provider is the same.
        The same settings once more (SIGHUP) say that something has changed elsewhere: refused keys are tried again.
        """
        tried(settings)
        before, self._settings = self._settings, settings
        self._facts = TargetFacts(settings, self._facts)
        again = before == settings
        self._standing.renew(self._facts.facts, lambda target: again or _way(before, target) != _way(settings, target))
        self._allowance = Allowance(settings.keys, self._facts.cost_usd, tally=self._tally)
        self._routes = Routes(settings, self._observe, self._client, self._standing, self._routes)
        self._advice = Advice(settings, self._facts)
        self._notices.renew()
        self._serve()
        self._changed.set()

    async def learn(self) -> None:
        """Learns what others know of the targets: at first how fast they were, and then what they cost.

        Until cancelled. No request waits for it, and where it fails that is said, and the gateway does without.
        """
        used = await self._remember()
        used_before = [target for each in used.values() for target in each]
        while True:
            asked = [*self._targets(), *used_before, *(attempt.target for _, attempt in self._unpriced)]
            try:
                listed = await asyncio.to_thread(self._facts.look_up, asked)
                self._facts.learn(listed)
            except CallerFault as fault:
                say(f"{fault} What has no price in the configuration counts as free.")
            self._standing.renew(self._facts.facts)
            self._allowance.carry_over({client: spent_usd(each, self._facts.price) for client, each in used.items()})
            for _ in range(len(self._unpriced)):
                self._allowance.charge(*self._unpriced.popleft())
            await asyncio.sleep(LEARN_S)
            await self._changed.wait()
            self._changed.clear()

    async def _remember(self) -> "dict[str, Mapping[str, Tokens]]":
        """Takes the speeds of other times; what limited clients have used of each target today."""
        log, settings = self._log, self._settings
        found = await asyncio.to_thread(history, log, settings.seeds, say)
        ages_ns = {id(attempt): age_ns for attempt, age_ns in found}
        self._standing.seed([attempt for attempt, _ in found], lambda attempt: ages_ns[id(attempt)])
        if log is None or self._seat.number:
            return {}
        today = clock.wall_time().replace(hour=0, minute=0, second=0, microsecond=0)
        clients = [key.name for key in settings.keys if key.usd_per_day is not None]
        try:
            return {client: await asyncio.to_thread(log.spent_tokens, client, today) for client in clients}
        except CallerFault as fault:
            say(f"{fault} What was spent today before this moment is not counted.")
            return {}

    def close(self) -> None:
        """Closes every connection to a provider, and writes down what is not yet written."""
        self._client.close()
        self._books.flush()
        self._metrics.close()
        if self._log is not None:
            self._log.close()

    def _serve(self) -> None:
        listen = self._settings.listen
        self._gathering.use(self._settings, self._allowance, self._facts)
        self.gateway.use(
            self._routes,
            self._settings.keys,
            max_body_bytes=listen.max_body_mib << 20,
            allowance=self._allowance,
            metrics_for=listen.metrics,
            cors=listen.cors,
            advise=self._advice.for_client,
            cost=self._facts.cost_usd,
        )

    def _observe(self, attempt: Observation) -> None:
        self._standing.observe(attempt)
        self._books.observe(attempt)
        if attempt.fault is not None or self._notices.open:
            self._notices.heard(attempt, self._advice)

    def _charge(self, client: str, attempt: Observation) -> None:
        """An attempt has ended, whose price may still have to be looked up."""
        if not self._allowance.counts(client):
            return
        if self._facts.knows(attempt.target):
            self._allowance.charge(client, attempt)
        else:
            self._unpriced.append((client, attempt))
            self._changed.set()

    def _targets(self) -> list[str]:
        """Those that routes name."""
        return list(dict.fromkeys(name for each in self._settings.routes.values() for name in targets(each)))

    def _available(self) -> dict[str, bool]:
        return {name: self._standing.available(name) for name in self._targets()}

    def _cascades(self) -> dict[str, tuple[float, bool]]:
        return {name: (each.share, each.dearer) for name, each in self._standing.cascades().items()}

    def _cost_usd(self, attempt: Observation) -> float | None:
        return self._facts.cost_usd(attempt)

    def _dropped(self) -> int:
        return 0 if self._log is None else self._log.dropped


def tried(settings: Settings) -> None:
    """Raises `CallerFault` where a worker could not be built. Sends nothing and opens nothing."""
    client = Client()
    Routes(settings, lambda _: None, client, Standing(TargetFacts(settings).facts))
    client.close()


class Server(uvicorn.Server):
    """uvicorn's server, with signals of ours: `end` is called for each. `ready` is called when it answers."""

    def __init__(self, gateway: Gateway, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
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
        )
        self.answers = asyncio.Event()
        self._gateway = gateway
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # what start-up left behind need not be looked through again and again
        gc.set_threshold(GARBAGE_OBJECTS)
        self._ready()
        self.answers.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """In the place of uvicorn's, which ends the process by the signal before it could close anything."""
        loop = asyncio.get_running_loop()
        handled = (signal.SIGTERM, signal.SIGINT)
        for each in handled:
            loop.add_signal_handler(each, self.end)
        try:
            yield
        finally:
            for each in handled:
                loop.remove_signal_handler(each)

    def end(self) -> None:
        """In good order; at once, where that was asked for already."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._gateway.draining = True

    async def unwound(self) -> None:
        """Breaks off what is still under way."""
        if left := list(self.server_state.tasks):
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=UNWIND_S)


async def served(worker: Worker, listening: socket.socket, server: Server) -> None:
    """Serves until it is told to end."""
    try:
        async with asyncio.TaskGroup() as group:
            learning = group.create_task(_learning(worker, server))
            await server.serve([listening])
            await server.unwound()
            learning.cancel()
    finally:
        worker.close()


async def _learning(worker: Worker, server: Server) -> None:
    """Learns once it answers, so that nobody waits for the one while the other takes the processor."""
    await server.answers.wait()
    await worker.learn()


def serve(source: Source, settings: Settings) -> None:
    """Serve in this process until SIGINT or SIGTERM. Prints ``READY url`` when it answers.

    Raises `CallerFault`: an address that cannot be had, settings that cannot be built.
    """
    (listening,) = bound(settings.listen.host, settings.listen.port)
    with listening, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(source, settings, listening))


async def _serve(source: Source, settings: Settings, listening: socket.socket) -> None:
    worker = Worker(settings)
    address = url(listening)

    async def take(found: Settings) -> None:
        worker.take(found)

    watch = Watch(source, settings, take)
    server = Server(worker.gateway, lambda: print(f"READY {address}", flush=True))
    on_hangup(watch.now, server.end)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run())
        await served(worker, listening, server)
        watching.cancel()


def _way(settings: Settings, target: str) -> tuple[TargetSpec, str] | None:
    """How `target` is asked, and with which key; None where it cannot be asked any more."""
    try:
        return settings.spec(target), settings.credential(target)
    except CallerFault:
        return None
