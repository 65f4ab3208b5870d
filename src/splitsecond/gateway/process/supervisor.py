"""Several workers: the parent holds the port and the settings, starts the workers, and starts again one that died.

It reads the configuration alone, and hands each worker what it has read through the worker's standard input, which no
one else can see: so all run on the same settings, one that is started again too, and what is wrong with a file is said
once. A worker ends when that pipe does, so that none is left behind however the parent ends. It answers in lines on its
standard output (``READY`` once it serves by what it was given, ``REFUSED why``).

Signals are for the parent, which passes them on; workers are in sessions of their own, out of reach of the terminal's.
"""

import asyncio
import contextlib
import pickle
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence

import msgspec

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.gateway.process.ports import bound, url
from splitsecond.gateway.process.reload import Source, Watch, on_hangup, say
from splitsecond.gateway.process.server import DRAIN_S, Seat, tried

START_S = 30.0
"""How long a worker may take until it answers."""
TELL_S = 10.0
"""How long it may take to put new settings in force."""
STOP_S = DRAIN_S + 10.0
"""How long it may take to end, before it is killed."""
STEADY_S = 30.0
"""After so long a worker's death has nothing to do with that of the one before it."""
MOST_STILLBORN = 5
"""In a row, in one seat: workers that die before they answer. Then it would only go on like that. Those that answer and
die later are replaced for ever, since whatever kills them leaves the others to serve."""
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
"""Before another takes the place of one that died: after the first death in a row, the second, and so on."""
_LENGTH = 4
_ANSWERS = ("READY", "REFUSED")


class WorkersFail(Fault):
    """A worker dies again and again. Nobody's request is at fault: something about this machine or this program is."""


def frame(settings: Settings) -> bytes:
    """Settings as they go through the pipe."""
    data = pickle.dumps(settings)
    return len(data).to_bytes(_LENGTH, "big") + data


def framed(data: bytearray) -> Settings | None:
    """Takes the first whole frame off `data`; None while there is none."""
    size = int.from_bytes(data[:_LENGTH], "big") + _LENGTH
    if len(data) < _LENGTH or len(data) < size:
        return None
    found: Settings = pickle.loads(bytes(data[_LENGTH:size]))  # from our own parent
    del data[:size]
    return found


def serve(source: Source, settings: Settings) -> None:
    """Serve with several workers until SIGINT or SIGTERM. Prints ``READY url`` when all of them answer.

    Raises `CallerFault`: an address that cannot be had, settings that cannot be built; `WorkersFail`.
    """
    tried(settings)
    sockets = bound(settings.listen.host, settings.listen.port, settings.listen.workers)
    with contextlib.ExitStack() as stack:
        for each in sockets:
            stack.enter_context(each)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="splitsecond-"))
        seats = [Seat(number=number, workers=len(sockets), folder=folder) for number in range(len(sockets))]
        try:
            asyncio.run(Supervisor(source, settings, sockets, seats).run())
        except BaseExceptionGroup as failures:
            faults = [each for each in failures.exceptions if isinstance(each, Fault)]
            raise (faults or failures.exceptions)[0] from None


class Supervisor:
    """See the file."""

    def __init__(
        self, source: Source, settings: Settings, sockets: Sequence[socket.socket], seats: Sequence[Seat]
    ) -> None:
        self._source = source
        self._settings = settings
        self._sockets = sockets
        self._seats = seats
        self._workers: dict[int, Process] = {}
        self._answered: set[int] = set()
        self._over = asyncio.Event()
        self._failure: WorkersFail | None = None
        self._address = url(sockets[0])

    async def run(self) -> None:
        """Until all workers have ended, as they were told to."""
        loop = asyncio.get_running_loop()
        watch = Watch(self._source, self._settings, self._take)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._end)
        on_hangup(watch.now, self._end)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.run())
            seated = zip(self._seats, self._sockets, strict=True)
            await asyncio.wait([group.create_task(self._keep(*each)) for each in seated])
            watching.cancel()
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        """Told to end: so are the workers, and told again where we are. Nobody queues at a port that is closed."""
        self._over.set()
        for each in self._sockets:
            each.close()
        for worker in self._workers.values():
            worker.end()

    async def _take(self, settings: Settings) -> None:
        tried(settings)
        self._settings = settings
        async with asyncio.TaskGroup() as group:
            for number, worker in self._workers.items():
                group.create_task(_told(number, worker, settings))

    async def _keep(self, seat: Seat, listening: socket.socket) -> None:
        """One worker after another in a seat, until the end."""
        deaths = stillborn = 0
        while True:
            began_ns = clock.now_ns()
            how, answered = await self._one(seat, listening)
            if self._over.is_set():
                return
            deaths = 1 if clock.now_ns() - began_ns > STEADY_S * clock.NS_PER_S else deaths + 1
            stillborn = 0 if answered else stillborn + 1
            if stillborn == MOST_STILLBORN:
                self._give_up(f"worker {seat.number} {how}; {stillborn} in a row died before they answered")
                return
            say(f"worker {seat.number} {how}; another takes its place.")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _PAUSES_S[min(deaths, len(_PAUSES_S)) - 1])
                return

    def _give_up(self, words: str) -> None:
        hint = "Their last words, if any, stand above."
        self._failure = WorkersFail(words, kind="workers_fail", phase="queue", hint=hint)
        self._end()

    async def _one(self, seat: Seat, listening: socket.socket) -> tuple[str, bool]:
        """One worker from its start to its end: how it ended, in words, and whether it has ever answered.

        Raises `CallerFault` where none can start.
        """
        worker = await Process.start(seat, listening)
        self._workers[seat.number] = worker
        try:
            if self._over.is_set():
                worker.end()
            settings = self._settings
            try:
                async with asyncio.timeout(START_S):
                    answers = await worker.tell(settings)
            except TimeoutError:
                return f"did not answer within {START_S:g} s", False
            except CallerFault as fault:
                if seat.number not in self._answered:
                    raise
                return f"could not start: {fault}", False
            if answers:
                if settings is not self._settings:  # others came while it started
                    await _told(seat.number, worker, self._settings)
                self._answers(seat.number)
            return await worker.ended(self._over), answers
        finally:
            del self._workers[seat.number]
            await worker.stop()

    def _answers(self, number: int) -> None:
        """One more serves; when the first of every seat does, so do we."""
        waiting = len(self._answered) < len(self._seats)
        self._answered.add(number)
        if waiting and len(self._answered) == len(self._seats):
            print(f"READY {self._address}", flush=True)


class Process:
    """A worker process, seen from the parent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, seat: Seat, listening: socket.socket) -> "Process":
        """Starts one, which waits to be told its settings."""
        number = listening.fileno()
        command = (sys.executable, "-m", "splitsecond.gateway", str(number), msgspec.json.encode(seat))
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=(number,),
                start_new_session=True,
            )
        )

    async def tell(self, settings: Settings) -> bool:
        """Returns when it serves by `settings`; False: it has died. Raises `CallerFault` where it cannot."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ValueError("the process has no pipes")
        async with self._turn:
            with contextlib.suppress(ConnectionError):  # it is dead, as reading will show
                stdin.write(frame(settings))
                await stdin.drain()
            word = why = ""
            while word not in _ANSWERS and (line := await stdout.readline()):
                word, _, why = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
        if word == "REFUSED":
            raise CallerFault(why, kind="bad_config")
        return word == "READY"

    def end(self) -> None:
        """Tells it to end in good order; told again, at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    async def ended(self, over: asyncio.Event) -> str:
        """Waits until it has, for `STOP_S` at most once it is `over`; says how in words."""
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(self._process.wait())
            patience = group.create_task(self._patience(over))
            waiting.add_done_callback(lambda _: patience.cancel())
        code = waiting.result()
        return f"was ended by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"

    async def stop(self) -> None:
        """Leaves nothing of it behind."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._kill()
        await self._process.wait()

    async def _patience(self, over: asyncio.Event) -> None:
        await over.wait()
        await asyncio.sleep(STOP_S)
        self._kill()

    def _kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def _signal(number: int) -> str:
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")


async def _told(number: int, worker: Process, settings: Settings) -> None:
    try:
        async with asyncio.timeout(TELL_S):
            await worker.tell(settings)
    except TimeoutError:
        say(f"worker {number} has not put the new settings in force within {TELL_S:g} s.")
    except CallerFault as fault:
        say(f"worker {number} goes on by its old settings: {fault}")
