"""`python -m splitsecond.gateway FD SEAT`: one worker of several, for `supervisor`, which tells it its settings."""

import asyncio
import os
import signal
import socket
import sys

import msgspec
import uvloop

from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.gateway.process.server import Seat, Server, Worker, served
from splitsecond.gateway.process.supervisor import framed

_STDIN = 0
_CHUNK = 65536


class Told:
    """What the parent says on standard input: settings, one after another, and by its end that it is gone."""

    def __init__(self) -> None:
        self._data = bytearray()

    def wait(self) -> Settings | None:
        """The first settings; None where the parent has gone before it said any."""
        while (found := framed(self._data)) is None:
            if not self._read():
                return None
        return found

    def follow(self, worker: Worker, server: Server) -> None:
        """From here on whatever the running loop hears."""
        loop = asyncio.get_running_loop()

        def heard() -> None:
            if not self._read():
                loop.remove_reader(_STDIN)
                server.end()
            while (found := framed(self._data)) is not None:
                try:
                    worker.take(found)
                except CallerFault as fault:
                    refused(fault)
                else:
                    print("READY", flush=True)

        loop.add_reader(_STDIN, heard)

    def _read(self) -> bool:
        data = os.read(_STDIN, _CHUNK)
        self._data += data
        return bool(data)


def refused(fault: CallerFault) -> None:
    """Tells the parent why not."""
    print(f"REFUSED {' '.join(str(fault).split())}", flush=True)


async def _serve(told: Told, settings: Settings, listening: socket.socket, seat: Seat) -> None:
    worker = Worker(settings, seat)
    server = Server(worker.gateway, lambda: print("READY", flush=True))
    told.follow(worker, server)
    await served(worker, listening, server)


def main() -> int:
    """Serves until it is told to end. Gives the exit code."""
    for each in (signal.SIGINT, signal.SIGHUP):  # they are for the parent
        signal.signal(each, signal.SIG_IGN)
    listening = socket.socket(fileno=int(sys.argv[1]))
    seat = msgspec.json.decode(sys.argv[2], type=Seat)
    told = Told()
    settings = told.wait()
    if settings is None:
        return 0
    try:
        with listening, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(told, settings, listening, seat))
    except CallerFault as fault:
        refused(fault)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
