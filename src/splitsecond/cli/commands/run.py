"""`splitsecond run PROGRAM …`: the program with a gateway of its own, and a summary of its calls at
its end.

The gateway is configured by a file in a temporary folder. The file has no secret: the program's own
credentials come with its requests.
"""

import json as json_text
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from splitsecond.cli.agents import CHATGPT_URL, client_variables, command_line, vendor_addresses
from splitsecond.cli.commands.serve import check_profiles
from splitsecond.cli.foreground import CannotStart, run_in_foreground
from splitsecond.cli.log_source import log_url, runs_log
from splitsecond.core import clock
from splitsecond.core.catalog.prices import prices
from splitsecond.core.catalog.provider import provider
from splitsecond.core.errors import CallerFault, NetworkFault, file_faults
from splitsecond.core.grouping import grouped
from splitsecond.core.loading import module_command
from splitsecond.core.money.cost import usd
from splitsecond.core.scratch import scratch_folder
from splitsecond.core.wording import counted_as, number, percent
from splitsecond.gateway.process.attended import MODULE
from splitsecond.log.production.sessions import (
    ReportedSession,
    TargetTimes,
    reported,
    sentence,
    span,
)
from splitsecond.log.production.target_times import target_times
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.log import Past
from splitsecond.routing.configuration.checkup import check_policies
from splitsecond.routing.configuration.reading import load
from splitsecond.routing.configuration.settings import check_log
from splitsecond.routing.construction.expression import targets
from splitsecond.routing.router.routes import CHATGPT

USUAL = timedelta(days=7)
"""The part of the log that the usual times of targets are computed from."""
MAX_SESSIONS = 8
"""Sessions in the summary."""
STOP_S = 20.0
"""How long the gateway may take to end: it finishes requests and writes the log."""
DRAIN_S = 2
READY = b"READY "
NO_LOG = "off"
ACCESS_LOG = "access.jsonl"


def run(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM ...", help="The program and its arguments.", show_default=False
        ),
    ],
    route: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="A target or policy for all calls; default: the vendor "
            "whose API the program uses.",
            show_default=False,
        ),
    ] = "",
    log: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Where calls are logged; off: nowhere. Default: runs.db in your data folder.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Run a coding agent, or any program, through a gateway of its own.

    \b
    splitsecond run claude
    splitsecond run -- codex exec "Fix the test"
    splitsecond run --route 'fallback("anthropic/claude-sonnet-4-6", "groq/kimi-k2")' claude

    The gateway listens on a free port of this machine, and the program finds it by
    ANTHROPIC_BASE_URL, OPENAI_BASE_URL, GOOGLE_GEMINI_BASE_URL, OLLAMA_HOST and similar variables.
    Calls go to the vendor with the program's own credentials, which are not stored; if one of these
    variables is set, its address is the vendor. The program gets the terminal and the signals, and
    its exit code is that of this command. At its end a summary on standard error says how long it
    waited, and for what.
    """
    log = _log(log)
    name = Path(program[0]).name
    with scratch_folder("run-") as scratch:
        file = scratch.path / "splitsecond.yaml"
        needs_key = _configure(file, route, log, name)
        with _gateway(file) as origin:
            variables = client_variables(origin, os.environ, keys=not needs_key)
            began = clock.wall_time()
            try:
                code = run_in_foreground(command_line(program, origin), {**os.environ, **variables})
            except CannotStart as fault:
                typer.echo(f"splitsecond: {fault}", err=True)
                raise typer.Exit(fault.exit_code) from None
            took_s = (clock.wall_time() - began).total_seconds()
        ids = _call_ids(file.with_name(ACCESS_LOG))
    if log != NO_LOG:
        past = Past.open(log)
        calls = [each for each in past.calls(began - timedelta(seconds=1)) if each[1].call in ids]
        usual = target_times(
            columns for columns, _ in past.attempts(began - USUAL, clock.wall_time())
        )
        typer.echo("\n".join(summary(name, calls, took_s, log, usual)), err=True)
    raise typer.Exit(code)


def _log(log: str) -> str:
    if log == NO_LOG:
        return log
    if not log:
        file = runs_log()
        with file_faults(
            f"cannot make the folder of {file}",
            kind="unwritable_file",
            hint="Name another with --log.",
        ):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return f"sqlite:///{file}"
    return log_url(str(Path(log).absolute()) if "://" not in log else log)


def _configure(file: Path, route: str, log: str, name: str) -> bool:
    """Write the configuration, and return whether the program needs its own credentials.

    Raises `CallerFault` for a wrong `route` or address.
    """
    with_route = bool(route)
    providers: dict[str, Any] = {}
    for vendor, base_url in vendor_addresses(os.environ).items():
        own = with_route and provider(vendor).key_variable(os.environ)
        providers[vendor] = {"base_url": base_url, **({} if own else {"credentials": "client"})}
    address = (
        providers["openai-responses"]["base_url"]
        if os.environ.get("OPENAI_BASE_URL")
        else CHATGPT_URL
    )
    providers[CHATGPT] = {"like": "openai-responses", "base_url": address, "credentials": "client"}
    settings: dict[str, Any] = {
        "listen": {"port": 0, "client": name[:64], "drain_s": DRAIN_S},
        "providers": providers,
        "pass_through": True,
        "log": log,
        # it tells the calls of this run from others in the log
        "access_log": str(file.with_name(ACCESS_LOG)),
    }
    if route:
        settings["routes"] = {"*": {"policy": route}}
    with file_faults(f"cannot write {file}", kind="unwritable_file"):
        file.write_text(json_text.dumps(settings), "utf-8")
    try:
        read = load(file, os.environ, checks=(check_log, check_profiles, check_policies))
    except CallerFault as fault:
        fault.message = fault.message.removeprefix(f"{file}: ").replace(
            "routes.*.policy", "--route"
        )
        raise
    provider_names = [
        target.partition("/")[0] for policy in read.routes.values() for target in targets(policy)
    ]
    return not route or any(
        read.providers[name].credentials == "client"
        for name in provider_names
        if name in read.providers
    )


@contextmanager
def _gateway(file: Path) -> Iterator[str]:
    """Run a gateway while the context is open, and yield its address. What it reports is shown at
    its end, because the program has the terminal.

    Raises `NetworkFault` if it does not start.
    """
    command = [*module_command(MODULE), str(file)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None  # it is a pipe
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith(READY):
                process.wait()
                raise NetworkFault(
                    f"the gateway did not start: {_text(errors)}",
                    kind="gateway_failed",
                    phase="connect",
                )
            yield line.split()[1].decode().removesuffix("/v1")
        finally:
            process.stdin.close()  # it ends
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if report := _text(errors):
            typer.echo(report, err=True)


def _call_ids(access_log: Path) -> set[str]:
    return {json_text.loads(line)["call"] for line in access_log.read_text("utf-8").splitlines()}


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace").strip()


def summary(
    name: str,
    timed_calls: list[tuple[datetime, CallRecord]],
    took_s: float,
    log: str,
    usual: Mapping[str, TargetTimes] | None = None,
) -> list[str]:
    """Return the lines about the calls of a program that ran for `took_s` seconds. `usual`: the
    usual times of targets."""
    timed_calls = sorted(timed_calls, key=lambda each: each[0])
    calls = [call for _, call in timed_calls]
    log = log.removeprefix("sqlite:///")
    where = f"The log is {log}."
    if not calls:
        return [f"splitsecond: {name} made no calls through the gateway. {where}"]
    by_target = grouped(timed_calls, lambda each: each[1].target or each[1].route)
    target_names = sorted(by_target)
    price = prices([target for target in target_names if "/" in target]).get
    whole = reported(timed_calls, price, usual)
    waited_s = whole.causes.waited_s
    share = percent(min(waited_s / took_s, 1.0)) if took_s else ""
    lines = [
        f"splitsecond: {name} ran for {span(took_s)} and waited {span(waited_s)} ({share}) for "
        f"{counted_as(len(calls), 'call')}"
        f"{f', {whole.errors:,} of them failed' if whole.errors else ''}."
    ]
    for target in target_names:
        own = by_target[target]
        lines.append(_line(target, [call for _, call in own], reported(own, price)))
    sessions = grouped(timed_calls, lambda each: each[1].session.id if each[1].session else "")
    sessions.pop("", None)
    for session, own in list(sessions.items())[:MAX_SESSIONS]:
        lines.append(f"  Session {session[:8]}: {sentence(reported(own, price, usual))}")
    if len(sessions) > MAX_SESSIONS:
        lines.append(f"  and {counted_as(len(sessions) - MAX_SESSIONS, 'other session')}")
    if sessions:
        where += f" `splitsecond sessions ID --log {log}` shows each turn of a session."
    return [*lines, where]


def _line(target: str, calls: list[CallRecord], report: ReportedSession) -> str:
    attempts = [attempt for call in calls for attempt in call.attempts]
    input_tokens = sum(attempt.input_tokens or 0 for attempt in attempts)
    cached = sum(attempt.cached_tokens or 0 for attempt in attempts)
    output_tokens = sum(attempt.output_tokens or 0 for attempt in attempts)
    waits = sorted(
        call.first_token_ns - call.start_ns for call in calls if call.first_token_ns is not None
    )
    ttft = (
        f", first token after {number(waits[len(waits) // 2] / clock.NS_PER_S)} s (median)"
        if waits
        else ""
    )
    tokens = (
        f"{input_tokens:,} input tokens ({percent(cached / input_tokens)} cached)"
        if input_tokens
        else "no input tokens"
    )
    cost = "" if report.unpriced or not report.usd else f", {usd(report.usd)} at list prices"
    return (
        f"  {target}: {counted_as(len(calls), 'call')}{ttft}, {tokens}, {output_tokens:,} output "
        f"tokens{cost}"
    )
