"""Reloading of the configuration while the gateway runs.

The files, also those with secrets and policies, are checked twice a second, and at once after
SIGHUP. A file that is still being written is left alone until it has not changed for one check, and
read again if it changed while it was read: it may have been empty then. Invalid settings change
nothing: the error is reported on standard error once, and the old configuration keeps running. So
does it after an error of this program.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from splitsecond.core.errors import CallerFault, say
from splitsecond.core.internal_errors import contained, report_internal_error
from splitsecond.gateway.process.service_manager import ServiceManager
from splitsecond.routing.configuration.defaults import unconfigured
from splitsecond.routing.configuration.reading import Check, Overrides, load
from splitsecond.routing.configuration.settings import GatewaySettings, check_reach, summary
from splitsecond.routing.router.settings import NO_SIMULATOR

POLL_S = 0.5
RESTART_ONLY = ("host", "port", "workers", "drain_s")
"""Fields of `listen` that only a restart can change."""
KEPT = ("log", "seeds", "telemetry", "access_log", "shared")
"""Other settings that only a restart can change."""

Stamp = dict[Path, tuple[int, int, int] | None]
"""Modification time, inode and size of each file; None: the file cannot be read."""

ApplySettings = Callable[[GatewaySettings], Awaitable[None]]


class ConfigSource(Struct, frozen=True):
    """Source of the settings.

    `path`: the configuration file; None: the environment alone. `listen` and `policies`: options of
    the command line, which override the file; `policies` is a file of policies. `simulator`: the
    address of the simulator.
    """

    path: Path | None
    environment: Mapping[str, str]
    listen: Mapping[str, Any] = {}
    policies: Path | None = None
    simulator: str = NO_SIMULATOR

    def load(self, checks: Sequence[Check] = ()) -> GatewaySettings:
        """Return the settings. Raises `CallerFault` if they are invalid, or would open the gateway
        to everyone.

        `checks`: see `reading.load`.
        """
        environment = dict(self.environment)
        if self.path is None:
            if self.policies is not None:
                words = (
                    f"{self.policies}: policies are for the routes of a configuration, and "
                    f"there is none"
                )
                raise CallerFault(
                    words, kind="bad_policy_file", hint="Name the configuration as well."
                )
            settings = unconfigured(environment, self.simulator)
            settings = structs.replace(
                settings, listen=structs.replace(settings.listen, **self.listen)
            )
            check_reach(settings)
            return settings
        overrides = Overrides(self.policies, self.listen, self.simulator)
        return load(self.path, environment, overrides=overrides, checks=checks)

    def stamp(self, settings: GatewaySettings) -> Stamp:
        return {file: _stamp(file) for file in (self.path, *settings.files) if file is not None}


def reloadable(
    loaded: GatewaySettings, running: GatewaySettings
) -> tuple[GatewaySettings, list[str]]:
    """Return `loaded` with the fields of `running` that only a restart can change, and the names of
    those that differ.

    Raises `CallerFault` if the result would open the gateway to everyone: a file that lost its end
    may lack its keys.
    """
    if running.keys and not loaded.keys:
        raise CallerFault(
            "the configuration has no keys any more, so everyone could use the gateway",
            kind="no_keys",
            hint="Restart the gateway to serve without keys.",
        )
    names = [
        name
        for name in RESTART_ONLY
        if getattr(loaded.listen, name) != getattr(running.listen, name)
    ]
    listen = structs.replace(
        loaded.listen, **{name: getattr(running.listen, name) for name in names}
    )
    waiting = [f"listen.{name}" for name in names]
    waiting += [name for name in KEPT if getattr(loaded, name) != getattr(running, name)]
    settings = structs.replace(
        loaded, listen=listen, **{name: getattr(running, name) for name in KEPT}
    )
    check_reach(settings)
    return settings, waiting


class ConfigWatcher:
    """Watches the files of the configuration and applies changes. `running`: the current settings.

    `apply` may reject new settings with a `CallerFault`; whatever else it raises is reported as an
    internal error, and changes no settings either. `manager` gets a message at each requested
    reload.
    """

    def __init__(
        self,
        source: ConfigSource,
        running: GatewaySettings,
        apply: ApplySettings,
        manager: ServiceManager,
    ) -> None:
        self.running = running
        self._manager = manager
        self._source = source
        self._apply = apply
        self._requested = asyncio.Event()
        # empty, so that the first check finds changes since `running` was read
        self._stamp: Stamp = {}
        self._error = ""

    def now(self) -> None:
        self._requested.set()

    async def run(self) -> None:
        before: Stamp = {}
        while True:
            with contained("reload"):
                requested = await self._wait()
                stamp = self._source.stamp(self.running)
                settled = stamp == before and (stamp != self._stamp or self._error)
                before = stamp
                if requested or settled:
                    self._stamp = stamp
                    if requested:
                        self._manager.reloading()
                    await self._reload(requested=requested)
                    if requested:
                        self._manager.ready()

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(POLL_S):
                await self._requested.wait()
        except TimeoutError:
            return False
        self._requested.clear()
        return True

    async def _reload(self, *, requested: bool) -> None:
        try:
            # in a thread, so that no response waits for it
            loaded = await asyncio.to_thread(self._source.load)
            if self._source.stamp(self.running) != self._stamp:
                return  # it was being written, perhaps empty: the next check reads it
            settings, waiting = reloadable(loaded, self.running)
            changed = settings != self.running
            if changed or requested:
                await self._apply(settings)
        except Exception as error:
            self._report(error, requested=requested)
            return
        fixed, self._error = bool(self._error), ""
        self.running = settings
        files = self._source.stamp(settings).items()
        # from before the files were read
        self._stamp = {file: self._stamp.get(file, after) for file, after in files}
        if changed or requested or fixed or waiting:
            say(f"{self._source.path or 'the environment'} is loaded: {summary(settings)}.")
        for name in waiting:
            say(f"{name} has changed; restart the gateway to apply it.")

    def _report(self, error: Exception, *, requested: bool) -> None:
        why = (
            str(error)
            if isinstance(error, CallerFault)
            else f"internal error ({type(error).__name__})."
        )
        if requested or why != self._error:
            if not isinstance(error, CallerFault):
                report_internal_error("reload", error)
            say(f"{why} The old configuration keeps running.")
        self._error = why


def on_hangup(reload: Callable[[], None], end: Callable[[], None]) -> None:
    """Make the running loop call `reload` at SIGHUP, or `end` if the signal means that the terminal
    was closed."""
    had_terminal = os.isatty(sys.stderr.fileno())

    def on_signal() -> None:
        closed = had_terminal and not os.isatty(sys.stderr.fileno())
        (end if closed else reload)()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_signal)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
