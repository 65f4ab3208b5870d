"""`python -m splitsecond.gateway FD SLOT`: one of several workers, started by `supervisor`.

The supervisor writes settings to standard input, one JSON line each; the worker answers each with a
line on standard output: ``READY`` when it serves by them, or ``REFUSED why``. The end of standard
input ends the worker.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator

import msgspec
import uvloop

from splitsecond.core.errors import CallerFault
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.serving.server import HttpServer
from splitsecond.gateway.process.slot import WorkerSlot
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.gateway.process.worker_server import run_worker, worker_server
from splitsecond.routing.configuration.settings import GatewaySettings, decode

_STDIN = 0
_CHUNK = 65536


class SettingsReader:
    def __init__(self) -> None:
        self._data = bytearray()

    def first(self) -> GatewaySettings | None:
        """Wait for the first settings. Return None if the supervisor ends before it sends any.
        Raises as `decode`."""
        while self._read():
            for line in self._complete():
                return decode(line)
        return None

    def follow(self, worker: GatewayWorker, server: HttpServer) -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            if not self._read():
                loop.remove_reader(_STDIN)
                server.end()
            for line in self._complete():
                apply(worker, line)

        loop.add_reader(_STDIN, read)

    def _complete(self) -> Iterator[bytes]:
        while (end := self._data.find(b"\n")) >= 0:
            line = bytes(self._data[:end])
            del self._data[: end + 1]
            yield line

    def _read(self) -> bool:
        data = os.read(_STDIN, _CHUNK)
        self._data += data
        return bool(data)


def apply(worker: GatewayWorker, line: bytes) -> None:
    try:
        worker.renew(decode(line))
    except CallerFault as fault:
        refuse(str(fault))
    except Exception as error:
        report_internal_error("reload", error)
        refuse(f"internal error ({type(error).__name__})")
    else:
        answer("READY")


def refuse(why: str) -> None:
    answer(f"REFUSED {' '.join(why.split())}")


def answer(line: str) -> None:
    """Write a line to the supervisor. If it has died, the input has ended too, which ends the
    worker."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, line.encode() + b"\n")


async def _serve(
    reader: SettingsReader, settings: GatewaySettings, listening: socket.socket, slot: WorkerSlot
) -> None:
    worker = GatewayWorker(settings, slot)
    server = worker_server(worker, listening, settings.listen.drain_s)
    reader.follow(worker, server)
    await run_worker(worker, server, lambda: answer("READY"))


def main() -> int:
    for each in (signal.SIGINT, signal.SIGHUP):  # the supervisor handles them
        signal.signal(each, signal.SIG_IGN)
    listening = socket.socket(fileno=int(sys.argv[1]))
    slot = msgspec.json.decode(sys.argv[2], type=WorkerSlot)
    reader = SettingsReader()
    try:
        settings = reader.first()
        if settings is None:
            return 0
        with listening, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(reader, settings, listening, slot))
    except CallerFault as fault:
        refuse(str(fault))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
