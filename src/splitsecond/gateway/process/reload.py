"""New settings while the gateway runs: where they come from, what of them can be put in force, and when.

The files are looked at twice a second, also those with secrets; SIGHUP has them looked at once more at once. A file
that is still being written is left alone until it has stayed the same for one look. Wrong settings change nothing:
what is wrong is said on standard error, once, and what was in force stays in force.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.defaults import unconfigured
from splitsecond.gateway.configuration.reading import load
from splitsecond.gateway.configuration.settings import Settings, check_reach

LOOK_S = 0.5
AT_START = ("host", "port", "workers")
"""What of `listen` is settled when the process starts."""

Stamp = dict[Path, tuple[int, int, int] | None]
"""Of each file what changes with it; None where there is none."""

Take = Callable[[Settings], Awaitable[None]]


class Source(Struct, frozen=True):
    """A file, or None for the environment alone; `listen` is what the command line puts in the place of the file's."""

    path: Path | None
    environment: Mapping[str, str]
    listen: Mapping[str, Any] = {}

    def load(self) -> Settings:
        """The settings as they stand there. Raises `CallerFault` where they are wrong, or would be open to all."""
        environment = dict(self.environment)
        settings = unconfigured(environment) if self.path is None else load(self.path, environment)
        settings = structs.replace(settings, listen=structs.replace(settings.listen, **self.listen))
        check_reach(settings)
        return settings

    def stamp(self, settings: Settings) -> Stamp:
        """Of the configuration's file, and those with the secrets of `settings`."""
        return {file: _stamp(file) for file in (self.path, *settings.files) if file is not None}


def kept(wanted: Settings, running: Settings) -> tuple[Settings, list[str]]:
    """`wanted`, with what only a restart can change as it is in `running`; and the names of that where it differs.

    Raises `CallerFault` where that would be open to all.
    """
    names = [name for name in AT_START if getattr(wanted.listen, name) != getattr(running.listen, name)]
    listen = structs.replace(wanted.listen, **{name: getattr(running.listen, name) for name in names})
    waiting = [f"listen.{name}" for name in names]
    waiting += [name for name in ("log", "seeds") if getattr(wanted, name) != getattr(running, name)]
    found = structs.replace(wanted, listen=listen, log=running.log, seeds=running.seeds)
    check_reach(found)
    return found, waiting


class Watch:
    """Gives new settings to `take`, which may refuse them with a `CallerFault`. `running`: those in force.

    At SIGHUP `take` is given those that are there, also where they are the same.
    """

    def __init__(self, source: Source, running: Settings, take: Take) -> None:
        self.running = running
        self._source = source
        self._take = take
        self._asked = asyncio.Event()
        self._stamp: Stamp = {}  # so that the first look finds what has changed since `running` was read
        self._wrong = ""

    def now(self) -> None:
        """Look at once, and take what is there even where it looks unchanged."""
        self._asked.set()

    async def run(self) -> None:
        """Until cancelled."""
        before: Stamp = {}
        while True:
            asked = await self._waited()
            stamp = self._source.stamp(self.running)
            settled = stamp == before and (stamp != self._stamp or self._wrong)
            before = stamp
            if asked or settled:
                self._stamp = stamp
                await self._reload(asked=asked)

    async def _waited(self) -> bool:
        """Whether we were asked to look, else it is time to."""
        try:
            async with asyncio.timeout(LOOK_S):
                await self._asked.wait()
        except TimeoutError:
            return False
        self._asked.clear()
        return True

    async def _reload(self, *, asked: bool) -> None:
        try:
            wanted = await asyncio.to_thread(self._source.load)  # so that no answer waits for the reading
            found, waiting = kept(wanted, self.running)
            changed = found != self.running
            if changed or asked:
                await self._take(found)
        except CallerFault as fault:
            if asked or str(fault) != self._wrong:
                say(f"{fault} What was in force stays in force.")
            self._wrong = str(fault)
            return
        mended, self._wrong = bool(self._wrong), ""
        self.running = found
        files = self._source.stamp(found).items()
        self._stamp = {file: self._stamp.get(file, after) for file, after in files}  # as they were before the reading
        if changed or asked or mended or waiting:
            say(f"{self._source.path or 'the environment'} is in force: {summary(found)}.")
        for name in waiting:
            say(f"{name} has changed, which takes a restart.")


def summary(settings: Settings) -> str:
    """How much there is, in a few words."""
    return f"{counted(len(settings.routes), 'route')}, {counted(len(settings.keys), 'key')}"


def say(words: str) -> None:
    """One line to whoever runs the gateway."""
    print(f"splitsecond: {words}", file=sys.stderr, flush=True)


def on_hangup(act: Callable[[], None], end: Callable[[], None]) -> None:
    """Has the running loop call `act` at SIGHUP, or `end` where it means that our terminal has gone."""
    had_terminal = os.isatty(sys.stderr.fileno())

    def heard() -> None:
        gone = had_terminal and not os.isatty(sys.stderr.fileno())
        (end if gone else act)()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, heard)


def counted(number: int, word: str) -> str:
    """ "1 route", "2 routes"."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
