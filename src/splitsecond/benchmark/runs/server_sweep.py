"""A sweep of a server's settings: each setting is started and measured several times, in random
order.

One start of a server is a trial, measured as a run in a folder below that of the sweep, so an
interrupted sweep continues where it ended. All trials together are one run whose rounds are the
trials: what differs from start to start is in its intervals. A setting whose server does not start,
or dies, is a result too.
"""

import asyncio
import itertools
import os
import re
import shlex
import signal
import socket
import string
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.rows.records import AskedCondition, Run
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.runs.concluding import RunRequest, conclude
from splitsecond.benchmark.runs.measuring import Measurement, Progress
from splitsecond.benchmark.runs.planning import Recorded, bench_job
from splitsecond.benchmark.runs.settings import CONCURRENCY, BenchSettings, Server
from splitsecond.core import clock
from splitsecond.core.child_process import how_it_ended
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import (
    CallerFault,
    Fault,
    content_faults,
    excerpt,
    file_faults,
    read_file,
)
from splitsecond.core.observation import Observation
from splitsecond.log.store.folder import RUN, RunFolder, read_observations, read_readings, read_run
from splitsecond.routing.configuration.discovery import LIST_ERRORS, listed_models

PORT = "port"
FAILURE, LOG = "failure.txt", "server.log"
POLL_S, STOP_S = 0.5, 30.0
LOG_BYTES = 65_536
"""The end of a server's output that is searched for the reason of its end."""
_REASON = re.compile(
    r"out of memory|OutOfMemory|No available memory|not enough|\b\w*Error\b|\berror\b",
    re.IGNORECASE,
)

Value = str | int | float | bool
Count = Annotated[int, msgspec.Meta(ge=1)]


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a sweep's TOML file.

    `command` starts a server; it contains ``{port}`` and the name of each of `settings` in braces.
    Every combination of their values is measured. Instead, `servers` are the addresses of servers
    that run already, by name. Each is measured in `trials` trials at every `concurrency`, with
    `requests` each time. `model` may be "" if a server lists exactly one. `ready_s`: the longest
    time from a server's start until it lists its models, in seconds.
    """

    command: str = ""
    settings: dict[str, list[Value]] = {}
    servers: dict[str, str] = {}
    model: str = ""
    api_format: str = "openai"
    concurrency: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)] = CONCURRENCY
    requests: Count = 20
    trials: Count = 5
    input_tokens: Count = 512
    output_tokens: Count = 128
    slo: str = ""
    seed: int = 0
    ready_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 600.0

    def setups(self) -> "list[Setup]":
        """Return what is measured. Raises `CallerFault` if there is nothing, or the command does
        not fit."""
        if bool(self.command) == bool(self.servers):
            raise _bad_plan("expected either a command with settings or servers")
        if self.servers:
            return [Setup(name, base_url=url) for name, url in self.servers.items()]
        try:
            used = {
                name for _, name, *_ in string.Formatter().parse(self.command) if name is not None
            }
        except ValueError as error:
            raise _bad_plan(f"the command cannot be read: {error}") from None
        if used != {PORT, *self.settings}:
            names = ", ".join(f"{{{name}}}" for name in (PORT, *self.settings))
            raise _bad_plan(f"expected a command with {names}, got {self.command!r}")
        combinations = itertools.product(*self.settings.values())
        return [
            Setup.of(self.command, dict(zip(self.settings, each, strict=True)))
            for each in combinations
        ]


class Setup(msgspec.Struct, frozen=True):
    """One combination of settings. `command` has ``{port}`` in it; "" for a server that runs
    already."""

    name: str
    command: str = ""
    base_url: str = ""

    @classmethod
    def of(cls, command: str, values: Mapping[str, Value]) -> "Setup":
        name = " ".join(f"{name}={_word(value)}" for name, value in values.items()) or "server"
        return cls(name, command.format_map({**values, PORT: f"{{{PORT}}}"}))

    @property
    def folder(self) -> str:
        return re.sub(r"[^A-Za-z0-9_.=-]+", "-", self.name)


def _word(value: Value) -> str:
    return str(value).strip() or "none"


def _bad_plan(message: str) -> CallerFault:
    return CallerFault(f"sweep: {message}", kind="bad_sweep")


def read_plan(path: Path) -> SweepPlan:
    """Read a sweep's file. Raises `CallerFault`."""
    with file_faults(f"cannot read {path}", kind="bad_sweep"):
        text = read_file(path)
    with content_faults(f"{path}", kind="bad_sweep"):
        plan = msgspec.convert(tomllib.loads(text), SweepPlan)
    if plan.slo:
        parse_slo(plan.slo)
    names = [setup.folder for setup in plan.setups()]
    if len(set(names)) < len(names):
        raise _bad_plan("two settings have the same name")
    return plan


class ServerFailed(Exception):
    """A server did not start, or ended. The text is the reason."""


class Sweep:
    """A sweep in a folder. `note` is called with what happens, `progress` makes the display of a
    trial."""

    def __init__(
        self,
        plan: SweepPlan,
        folder: Path,
        note: Callable[[str], None],
        progress: Callable[[], Progress],
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._note = note
        self._progress = progress
        self._setups = plan.setups()

    async def measure(self) -> None:
        for trial in range(1, self._plan.trials + 1):
            order = list(self._setups)
            Random(f"{self._plan.seed}/{trial}").shuffle(order)
            for setup in order:
                place = self._place(setup, trial)
                if self._failures(setup) or _finished(place):
                    continue
                self._note(f"trial {trial} of {self._plan.trials}: {setup.name}")
                place.mkdir(parents=True, exist_ok=True)
                try:
                    await self._trial(setup, place, trial)
                except (ServerFailed, Fault) as error:
                    reason = excerpt(str(error))
                    (place / FAILURE).write_text(reason, encoding="utf-8")
                    self._note(f"{setup.name}: {reason}")

    def _place(self, setup: Setup, trial: int) -> Path:
        return self._folder / setup.folder / f"trial-{trial}"

    def _failures(self, setup: Setup) -> list[str]:
        places = (self._place(setup, trial) / FAILURE for trial in range(1, self._plan.trials + 1))
        return [place.read_text("utf-8") for place in places if place.is_file()]

    def _places(self) -> list[tuple[int, Path]]:
        """Return the trials that left a run, and its folder."""
        trials = range(1, self._plan.trials + 1)
        places = ((trial, self._place(setup, trial)) for trial in trials for setup in self._setups)
        return [(trial, place) for trial, place in places if (place / RUN).is_file()]

    async def _trial(self, setup: Setup, place: Path, trial: int) -> None:
        async with _started(setup, place / LOG, self._plan.ready_s) as (base_url, process):
            settings = BenchSettings(
                servers=[
                    Server(
                        base_url=base_url,
                        model=self._plan.model,
                        name=setup.name,
                        api_format=self._plan.api_format,
                    )
                ],
                concurrency=self._plan.concurrency,
                requests=self._plan.requests,
                rounds=1,
                quick=True,
                input_tokens=self._plan.input_tokens,
                output_tokens=self._plan.output_tokens,
                seed=self._plan.seed + trial,
            )
            with ExitStack() as processes:
                job = await asyncio.to_thread(bench_job, settings, processes, Recorded.of(settings))
                _remove_run(place)  # of a trial that was interrupted
                with RunFolder.open(place) as folder:
                    measurement = Measurement(job, folder, job.meter(None), self._progress())
                    try:
                        await measurement.measure_or_discard()
                    except Fault:
                        await _check_alive(process, place / LOG)
                        raise
                    folder.write_run(measurement.run)
            await _check_alive(process, place / LOG)

    def concluded(self) -> tuple[Run, list[Observation]]:
        """Return all trials as one run, and write its observations into the folder of the sweep.

        Raises `CallerFault` if nothing was measured.
        """
        runs = [(trial, place, read_run(place, Run)) for trial, place in self._places()]
        failures = {each.name: why for each in self._setups if (why := self._failures(each))}
        if not any(run.finished for _, _, run in runs):
            reasons = "; ".join(f"{name}: {why[0]}" for name, why in failures.items())
            raise _bad_plan(f"no server was measured. {reasons}".rstrip())
        conditions: dict[str, AskedCondition] = {}
        observations: list[Observation] = []
        readings = []
        for trial, place, each in runs:
            trial_request = msgspec.convert(each.asked, RunRequest)
            conditions |= {condition.condition: condition for condition in trial_request.conditions}
            observations += [
                replace(o, round=trial, id=f"{trial}/{o.id}", call=f"{trial}/{o.call}")
                for o in read_observations(place)
            ]
            readings += read_readings(place)
        request = RunRequest(
            settings=msgspec.to_builtins(self._plan),
            conditions=list(conditions.values()),
            slo=self._plan.slo,
            failures={name: why[0] for name, why in failures.items()},
        )
        first = runs[0][2]
        run = Run(
            id=self._folder.name,
            began=first.began,
            began_ns=first.began_ns,
            version=first.version,
            environment=first.environment,
            asked=msgspec.to_builtins(request),
            finished=all(
                _finished(self._place(setup, trial))
                for setup in self._setups
                if setup.name not in failures
                for trial in range(1, self._plan.trials + 1)
            ),
        )
        with RunFolder.open(self._folder) as folder:
            folder.write_observations(observations, readings)
        conclude(run, request, observations, readings)
        return run, observations


def _finished(place: Path) -> bool:
    return (place / FAILURE).is_file() or (
        (place / RUN).is_file() and read_run(place, Run).finished
    )


def _remove_run(place: Path) -> None:
    with RunFolder.open(place) as folder:
        folder.discard()


@asynccontextmanager
async def _started(
    setup: Setup, log: Path, ready_s: float
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process | None]]:
    """Run the server of a setup while the context is open.

    Raises `ServerFailed` if it ends before it is ready, or is not ready in time.
    """
    if not setup.command:
        yield setup.base_url, None
        return
    port = _free_port()
    command = shlex.split(setup.command.format_map({PORT: port}))
    with log.open("wb") as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdout=output,
                stderr=output,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerFailed(f"cannot run {command[0]}: {error.strerror}") from None
    try:
        base_url = f"http://127.0.0.1:{port}/v1"
        await _ready(process, base_url, log, ready_s)
        yield base_url, process
    finally:
        await _stop(process)


async def _ready(
    process: asyncio.subprocess.Process, base_url: str, log: Path, ready_s: float
) -> None:
    deadline_ns = clock.now_ns() + round(ready_s * NS_PER_S)
    while True:
        if process.returncode is not None:
            raise ServerFailed(_reason(process.returncode, log))
        with suppress(*LIST_ERRORS):
            if await asyncio.to_thread(listed_models, base_url, timeout_s=2.0):
                return
        if clock.now_ns() > deadline_ns:
            raise ServerFailed(f"it was not ready after {ready_s:g} s: {_last_words(log)}")
        await asyncio.sleep(POLL_S)


async def _check_alive(process: asyncio.subprocess.Process | None, log: Path) -> None:
    if process is not None:
        with suppress(TimeoutError):
            raise ServerFailed(_reason(await asyncio.wait_for(process.wait(), POLL_S), log))


async def _stop(process: asyncio.subprocess.Process) -> None:
    for number_of_signal, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number_of_signal)  # the server's own workers too
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience_s)
            return


def _reason(code: int, log: Path) -> str:
    return f"{_last_words(log)} (the server {how_it_ended(code)})"


def _last_words(log: Path) -> str:
    """Return the line of a server's output that says why it ended, or its last line."""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - LOG_BYTES, 0))
        lines = [
            line.strip()
            for line in file.read().decode("utf-8", "replace").splitlines()
            if line.strip()
        ]
    telling = [line for line in lines if _REASON.search(line)]
    return excerpt((telling or lines or ["it printed nothing"])[-1])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: Any = one.getsockname()[1]
        return int(port)
