import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from splitsecond.benchmark.server_view.reader import MetricsPage
from splitsecond.benchmark.server_view.samples import ServerSample
from splitsecond.core.child_process import ChildProcess
from splitsecond.core.loading import module_command

READER_COMMAND = module_command("splitsecond.benchmark.server_view.reader")
EDGE_S = 2.0
"""Longest wait for a reading at the edge of a block."""


class ServerWatcher:
    """Reads `pages` once a second while the context is open, and passes on each sample.

    If the reading process cannot be started, or ends by itself, `on_end` gets the reason, nothing
    more is read, and the run goes on. With no pages it does nothing.
    """

    def __init__(
        self,
        pages: Sequence[MetricsPage],
        on_sample: Callable[[ServerSample], object],
        on_end: Callable[[str], object] = lambda why: None,
        command: Sequence[str] = READER_COMMAND,
    ) -> None:
        self._pages = pages
        self._on_sample = on_sample
        self._on_end = on_end
        self._leaving = self._ended = False
        self._command = command
        self._child: ChildProcess | None = None
        self._passing: asyncio.Task[None] | None = None
        self._asked: deque[asyncio.Event] = deque()

    async def __aenter__(self) -> Self:
        if self._pages:
            try:
                self._child = await ChildProcess.start(*self._command)
            except OSError as error:
                self._on_end(
                    f"the process that reads metrics cannot be started: {error.strerror or error}"
                )
                return self
            await self._child.write(msgspec.json.encode(self._pages) + b"\n")
            self._passing = asyncio.create_task(self._pass_on(self._child))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if self._child is None or self._passing is None:
            return
        self._leaving = True
        await self._child.stop(patience_s=EDGE_S)
        await self._passing

    async def read_now(self) -> None:
        """Read all pages, and return when they are read, at most `EDGE_S` later."""
        if self._child is None or self._ended:
            return
        done = asyncio.Event()
        self._asked.append(done)
        await self._child.write(b"\n")
        try:
            async with asyncio.timeout(EDGE_S):
                await done.wait()
        except TimeoutError:  # the reader answers later; the run does not wait
            return

    async def _pass_on(self, child: ChildProcess) -> None:
        decoder = msgspec.json.Decoder(ServerSample)
        while (line := await child.read_line()) is not None:
            if line:
                self._on_sample(decoder.decode(line))
            elif self._asked:
                self._asked.popleft().set()
        self._ended = True
        for each in self._asked:
            each.set()
        if not self._leaving:
            self._on_end(f"metrics are no longer read: {await child.ending()}")
