"""The hub of a gateway: the process beside its workers that writes the log and belongs to the
fleet, and through which the workers exchange metrics and what they know about targets.

Each worker has one connection to it (`log/store/hub_connection`). A hub that dies is replaced;
workers connect to the next one, which knows what they tell it again. Limits are not its business:
workers count in shared memory.

The first line of standard input is a `HubSettings` in JSON, because URLs can contain a password;
later lines replace what may change. The end of standard input asks the hub to end: when all workers
have disconnected, it writes what they have sent, and leaves the fleet.
"""

import contextlib
import gc
import os
import selectors
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from splitsecond.core import clock, internal_errors
from splitsecond.core.errors import CallerFault, say
from splitsecond.core.internal_errors import contained
from splitsecond.core.loading import loading
from splitsecond.gateway.fleet.view import WorkerReport
from splitsecond.gateway.hub.messages import FromWorker
from splitsecond.gateway.hub.settings import HubSettings
from splitsecond.gateway.records.metric_fields import MetricCounts
from splitsecond.gateway.records.metrics import AllMetrics, AskMetrics, Inherited, WorkerMetrics
from splitsecond.log.store.hub_connection import Hello
from splitsecond.log.store.sender import Sender

if TYPE_CHECKING:  # they import SQLAlchemy and psycopg, which not every gateway needs
    from splitsecond.gateway.hub.fleet_thread import FleetThread
    from splitsecond.log.store.log_receiver import LogReceiver

RECOVERY_TICK_S = 0.01
"""How often it is looked whether the next block of a file can be written."""
TICK_S = 0.1
"""How often the log is looked at while something waits for it."""
IDLE_S = 1.0
FINISH_S = 4.0
"""How long the end may wait until the records of files are written. Closing the log can take
`CLOSE_S` more."""
RETRY_S = 1.0
SAY_NS = 60 * clock.NS_PER_S
PATIENCE_NS = 15 * clock.NS_PER_S
"""How long a hub waits for its log in silence: a worker that starts with it refuses a log for which
waiting is of no use, and its words are the last ones of the gateway."""
GARBAGE_OBJECTS = 20_000
"""New objects after which the garbage collector runs. Records are no cycles."""
_CHUNK = 1 << 16

Begin = Callable[[], "tuple[socket.socket, LogReceiver | None]"]
"""Returns where the hub listens, and the log. Raises `CallerFault` if that is not possible now."""


class Hub:
    def __init__(self, begin: Begin, end: int, fleet: "FleetThread | None" = None) -> None:
        """`end`: a file descriptor with lines of settings; its end of file asks the hub to end."""
        self._begin = begin
        self._end = end
        self._fleet = fleet
        self._selector = selectors.DefaultSelector()
        self._selector.register(end, selectors.EVENT_READ, self._read_settings)
        if fleet is not None:
            self._selector.register(fleet.changed, selectors.EVENT_READ, self._send_views)
        self._listening: socket.socket | None = None
        self._receiver: LogReceiver | None = None
        self._begin_ns = 0  # not before then
        self._complain_ns = clock.now_ns() + PATIENCE_NS
        self._lines = bytearray()
        self._senders: dict[Sender, int] = {}
        """The connected workers, and the events that are awaited of each."""
        self._metrics: dict[int, tuple[int, WorkerMetrics]] = {}
        """By the number of a worker's slot: the process that has sent them, and the metrics."""
        self._errors: dict[str, int] = {}
        self._ending = False

    def run(self) -> None:
        while not self._ending or self._senders:
            self._turn()
        if self._receiver is not None:
            self._receiver.look_for_files()
            give_up_ns = clock.now_ns() + round(FINISH_S * clock.NS_PER_S)
            while self._receiver.may_recover and clock.now_ns() < give_up_ns:
                self._turn()
            self._receiver.close()

    def _turn(self) -> None:
        if self._listening is None and clock.now_ns() >= self._begin_ns:
            self._try_to_begin()
        receiver = self._receiver
        soon = self._listening is None or (receiver is not None and receiver.is_busy)
        quick = receiver is not None and receiver.is_recovering
        for key, _ in self._selector.select(
            RECOVERY_TICK_S if quick else TICK_S if soon else IDLE_S
        ):
            key.data()
        if receiver is not None:
            receiver.turn()
        for sender in self._senders:
            self._watch(sender)
        if self._fleet is not None and not (self._fleet.lives or self._ending):
            raise RuntimeError("the thread of the fleet has ended")

    def _try_to_begin(self) -> None:
        try:
            self._listening, self._receiver = self._begin()
        except CallerFault as fault:
            now_ns = clock.now_ns()
            self._begin_ns = now_ns + round(RETRY_S * clock.NS_PER_S)
            if now_ns >= self._complain_ns:
                self._complain_ns = now_ns + SAY_NS
                say(f"{fault} Records wait for that.")
        else:
            self._selector.register(self._listening, selectors.EVENT_READ, self._accept)

    def _read_settings(self) -> None:
        chunk = os.read(self._end, _CHUNK)
        self._lines += chunk
        *complete, rest = self._lines.split(b"\n")
        self._lines = rest
        for line in complete:
            with contained("reload"):
                settings = msgspec.json.decode(line, type=HubSettings)
                self._errors = settings.internal_errors
                if self._fleet is not None and settings.fleet is not None:
                    self._fleet.use(settings.fleet.keys)
        if not chunk:
            self._ending = True
            self._selector.unregister(self._end)
            if self._receiver is not None:
                self._receiver.ending = True
            if self._fleet is not None:
                self._fleet.end()

    def _accept(self) -> None:
        assert self._listening is not None  # it is readable
        connection, receiver = self._listening.accept()[0], self._receiver
        connection.setblocking(False)
        yield_processor = (lambda: None) if receiver is None else receiver.yield_processor
        sender = Sender(connection, yield_processor, messages=FromWorker, on_message=self._handle)
        self._senders[sender] = 0
        if receiver is not None:
            receiver.add(sender)
        self._watch(sender)

    def _watch(self, sender: Sender) -> None:
        """Await what can be done with a connection: not reading while the log takes no more."""
        paused = self._receiver is not None and self._receiver.paused
        events = (0 if paused else selectors.EVENT_READ) | (
            selectors.EVENT_WRITE if sender.unsent else 0
        )
        before, self._senders[sender] = self._senders[sender], events
        if before == events:
            return
        if before:
            self._selector.unregister(sender.connection)
        if events:
            self._selector.register(sender.connection, events, lambda: self._serve(sender))

    def _serve(self, sender: Sender) -> None:
        if sender.unsent:
            sender.flush()
        # by records of another worker, a moment ago
        if self._receiver is not None and self._receiver.paused:
            return
        if not self._selector.get_key(sender.connection).events & selectors.EVENT_READ:
            return
        try:
            arrivals = sender.receive()
        except ValueError as error:  # of msgspec too
            say(f"a worker sent what is no message ({error}). Its connection is closed.")
            arrivals = None
        if arrivals is None:
            self._selector.unregister(sender.connection)
            sender.connection.close()
            del self._senders[sender]
            if self._receiver is not None:
                self._receiver.remove(sender)
        elif arrivals and self._receiver is not None:
            self._receiver.receive(sender, arrivals)

    def _handle(self, sender: Sender, message: Any) -> None:
        if sender.hello is None:
            raise ValueError("its first message is no Hello")
        worker, pid = sender.hello.worker, sender.hello.pid
        if isinstance(message, Hello):
            before, metrics = self._metrics.get(worker, (pid, None))
            if metrics is not None and before != pid:
                sender.send(Inherited(metrics.counts))
                self._metrics[worker] = pid, WorkerMetrics(None, metrics.counts)
        elif isinstance(message, WorkerMetrics):
            self._metrics[worker] = pid, message
        elif isinstance(message, AskMetrics):
            others = [each for number, (_, each) in self._metrics.items() if number != worker]
            sender.send(AllMetrics([*others, self._own_metrics()]))
        elif isinstance(message, WorkerReport) and self._fleet is not None:
            self._fleet.report(worker, message)

    def _own_metrics(self) -> WorkerMetrics:
        counts = MetricCounts(internal_errors=internal_errors.counts.copy())
        for where, number in self._errors.items():
            counts.internal_errors[where] += number
        return WorkerMetrics(None if self._fleet is None else self._fleet.metrics(), counts)

    def _send_views(self) -> None:
        assert self._fleet is not None  # it has changed
        views = self._fleet.views()
        for sender in self._senders:
            if sender.hello is not None and sender.hello.worker in views:
                sender.send(views[sender.hello.worker])


def main() -> int:
    # the gateway handles them, and closes standard input
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    line = bytearray()
    while not line.endswith(b"\n"):  # without a buffer, so that the hub finds what comes after it
        if not (byte := os.read(0, 1)):
            return 0
        line += byte
    settings = msgspec.json.decode(line, type=HubSettings)
    if not Path(settings.socket).parent.is_dir():
        return 0  # the gateway was killed meanwhile, and the next one has removed its folder
    fleet = None
    if settings.fleet is not None:
        from splitsecond.gateway.hub.fleet_thread import FleetThread

        fleet = FleetThread(settings.fleet)
    with contextlib.ExitStack() as stack:
        Hub(lambda: _begin(settings, stack), 0, fleet).run()
    if fleet is not None:
        fleet.join()
    return 0


def _begin(
    settings: HubSettings, stack: contextlib.ExitStack
) -> "tuple[socket.socket, LogReceiver | None]":
    with contextlib.ExitStack() as opened:
        receiver = None
        if settings.log is not None:
            with loading():
                from splitsecond.log.store.log import Log
                from splitsecond.log.store.log_receiver import LogReceiver

            # it reports it
            log = Log.open(
                settings.log.url, keep_days=settings.log.keep_days, away=lambda why: None
            )
            receiver = LogReceiver(opened.enter_context(log))
        listening = opened.enter_context(socket.socket(socket.AF_UNIX))
        try:
            with contextlib.suppress(FileNotFoundError):  # the socket of a hub that died
                os.unlink(settings.socket)
            listening.bind(settings.socket)
            listening.listen()
        except OSError as error:
            words = f"the socket {settings.socket} of the hub cannot be created: {error.strerror}"
            raise CallerFault(words, kind="hub_socket") from None
        stack.push(opened.pop_all())
    return listening, receiver
