import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.report.tables import print_item, print_left_out, print_table, room_left
from splitsecond.cli.log_source import LoggedTraffic, days_of
from splitsecond.cli.options import Config, GatewayKey, GatewayUrl, Json, Log, Since, config_file
from splitsecond.cli.results import Output
from splitsecond.cli.running_gateway import answer_of, gateway_address
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import usd
from splitsecond.gateway.records.session_budgets import ALLOW
from splitsecond.log.production.sessions import (
    CAUSES,
    SCHEMA,
    Pricing,
    ReportedSession,
    ReportedTurn,
    looped,
    moved,
    reported,
    sentence,
    span,
    summarised,
)
from splitsecond.log.production.target_times import target_times
from splitsecond.log.production.token_cost import spent_usd
from splitsecond.log.store.log import LoggedSession
from splitsecond.routing.configuration.reading import load
from splitsecond.routing.configuration.settings import GatewaySettings

SHOWN = 40
BAR, SHORT_BAR = 32, 24
"""Characters of the waterfall's bars, on a wide and on a narrow screen."""
WIDE = 120
_WHOLE_ID = re.compile("[0-9a-f]{16}")
_MARKS: Mapping[str, tuple[str, str]] = {
    "network_s": ("n", "cyan"),
    "queue_s": ("q", "yellow"),
    "retries_s": ("r", "red"),
    "cache_miss_s": ("m", "magenta"),
    "prefill_s": ("p", "blue"),
    "generation_s": ("g", "green"),
}
"""The letter and the colour of each cause in a bar."""


def sessions(
    session: Annotated[
        str, typer.Argument(metavar="ID", help="A session, or the beginning of its id.")
    ] = "",
    log: Log = "",
    config: Config = None,
    since: Since = "7d",
    json: Json = "",
    allow: Annotated[
        bool,
        typer.Option(
            "--allow", help="Let the session use its budget once more, at the gateway that runs."
        ),
    ] = False,
    url: GatewayUrl = "",
    api_key_env: GatewayKey = "",
) -> None:
    """Show sessions of agents, and what one waited for.

    \b
    splitsecond sessions
    splitsecond sessions 3f9c --since 2h
    splitsecond sessions --json sessions.json
    splitsecond sessions 3f9c000000000001 --allow

    Without an ID it lists the sessions of the log. With one it shows each call as a bar: network
    (n), queues and limits (q), retries and fallbacks (r), cache misses (m), reading new tokens (p),
    generation (g). A cache miss is the time to read tokens again that the session had sent before,
    by the target's usual times in the log.
    """
    if allow:
        _allow(session, config, url, api_key_env)
        return
    output = Output(json=json)
    output.check()
    logged = LoggedTraffic(log, config, days_of(since))
    listed = logged.sessions()
    if not listed:
        hint = "Look further back with --since."
        raise CallerFault(
            f"the log has no sessions from {logged.words}", kind="nothing_logged", hint=hint
        )
    price = logged.price(sorted({tokens.target for each in listed for tokens in each.spent}))
    if not session:
        rows = [summarised(each, price) for each in listed]

        def show_all(console: Console) -> None:
            console.print(f"Sessions, {logged.words}", highlight=False)
            _show_list(listed[:SHOWN], price, console)
            if len(listed) > SHOWN:
                console.print(f"{len(listed) - SHOWN:,} earlier ones are in --json.", style="dim")
            unpriced = sum(price(tokens.target) is None for each in listed for tokens in each.spent)
            for note in logged.price_notes(unpriced):
                print_item(console, "", note, "dim")

        document = {
            "schema": SCHEMA,
            "since": logged.since,
            "until": logged.until,
            "sessions": rows,
        }
        output.show(document, lambda: rows, show_all)
        return
    chosen = _named(listed, session)
    report = reported(list(logged.calls(chosen.id)), price, target_times(logged.attempts()))
    statement = sentence(report)
    document = {"schema": SCHEMA, "session": report, "statement": statement}
    output.show(document, lambda: report.turns, partial(_show, report, statement))


def _allow(session: str, config: Path | None, url: str, key_env: str) -> None:
    """Raises `CallerFault` if the gateway refuses, or none answers."""
    if not _WHOLE_ID.fullmatch(session):
        words = f"--allow: got {session!r}, expected the whole id of a session, with 16 digits"
        raise CallerFault(words, kind="bad_option", hint="The refusal of its call names it.")
    file = config_file(config)
    settings = GatewaySettings() if file is None else load(file, os.environ, serving=False)
    address = gateway_address(settings, url)
    if answer_of(address, f"{ALLOW}?session={session}", key_env, post=True) is None:
        raise CallerFault(
            f"no gateway answers at {address}", kind="no_gateway", hint="Name another with --url."
        )
    typer.echo(f"The session {session} may use its budget once more.")


def _named(candidates: list[LoggedSession], name: str) -> LoggedSession:
    matching = [each for each in candidates if each.id.startswith(name.lower())]
    if len(matching) == 1:
        return matching[0]
    words = (
        f"{len(matching)} sessions begin with {name!r}"
        if matching
        else f"the log has no session {name!r}"
    )
    raise CallerFault(words, kind="unknown_session", hint="`splitsecond sessions` lists them.")


def _show_list(listed: Sequence[LoggedSession], price: Pricing, console: Console) -> None:
    """Print a row for each session. Ids are whole; a narrow console leaves out the last columns,
    and names them."""
    loops = any(each.repeated for each in listed)
    rows = [_cells(each, price, loops=loops) for each in listed]
    headings = [*rows[0]]
    for count in range(len(headings), 0, -1):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in headings[:count]:
            left = heading in ("session", "began (UTC)", "client")
            table.add_column(heading, justify="left" if left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*[*row.values()][:count])
        if room_left(console, [table]) >= 0:
            break
    print_table(table, console)
    print_left_out([each.replace("\n", " ") for each in headings[count:]], console)


def _cells(each: LoggedSession, price: Pricing, *, loops: bool) -> dict[str, str | Text]:
    loop = f"{each.repeated:,} calls" if each.repeated else "–"
    unpriced = any(price(tokens.target) is None for tokens in each.spent)
    return {
        "session": each.id,
        "began (UTC)": f"{datetime.fromtimestamp(each.began_us / 1e6, UTC):%m-%d %H:%M}",
        "turns": f"{each.calls:,}",
        **({"longest\nloop": loop} if loops else {}),
        "time": span((each.ended_us - each.began_us) / 1e6),
        "cost": _cost(spent_usd(each.spent, price), unpriced),
        "cached": f"{each.cached_tokens / each.input_tokens:.0%}" if each.input_tokens else "–",
        "errors": Text(f"{each.errors:,}", "red" if each.errors else ""),
        "slowest\nturn": span(each.slowest_ns / NS_PER_S),
        "client": Text(each.client or "–"),
        "agents": f"{each.agents:,}",
    }


def _cost(amount: float, unpriced: bool) -> str:
    return "no price" if unpriced and not amount else f"{usd(amount)}{'+' if unpriced else ''}"


def _show(report: ReportedSession, statement: str, console: Console) -> None:
    cached = "–" if report.cached_share is None else f"{report.cached_share:.0%}"
    limited = f" (and {report.limited:,} refused at a limit)" if report.limited else ""
    console.print(
        f"Session {report.id}, {report.began:%Y-%m-%d %H:%M} UTC: {len(report.turns):,} "
        f"turns{limited}, {span(report.wall_s)}, {_cost(report.usd, report.unpriced > 0)}, "
        f"{cached} of input tokens cached",
        highlight=False,
    )
    wide = console.width >= WIDE
    remarks = _remarks(report.turns)
    print_table(_waterfall(report, remarks if wide else {}, wide=wide), console)
    for at, words in ({} if wide else remarks).items():
        print_item(console, f"{_number(report.turns[at])}: ", words)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("cause")
    for heading in ("time", "share"):
        table.add_column(heading, justify="right")
    for name, words in CAUSES.items():
        seconds = getattr(report.causes, name)
        table.add_row(
            words, span(seconds), f"{seconds / report.wall_s:.0%}" if report.wall_s else "–"
        )
    print_table(table, console)
    console.print(statement, highlight=False)


def _waterfall(report: ReportedSession, remarks: Mapping[int, str], *, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("at", "turn", "took", "new", "cached", *(["cost"] if wide else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    if remarks:
        table.add_column("target", overflow="fold")
    longest_s = report.slowest.took_s
    for at, turn in enumerate(report.turns):
        read = turn.input_tokens
        table.add_row(
            span(turn.at_s),
            _number(turn),
            span(turn.took_s),
            "–" if read is None else f"{read - turn.cached_tokens:,}",
            "–" if read is None else f"{turn.cached_tokens:,}",
            *([usd(turn.usd)] if wide else []),
            _bar(turn, longest_s, BAR if wide else SHORT_BAR),
            *([Text(remarks.get(at, ""))] if remarks else []),
        )
    return table


def _number(turn: ReportedTurn) -> str:
    return f"{turn.agent[:4]} {turn.turn}" if turn.agent else f"{turn.turn}"


def _remarks(turns: Sequence[ReportedTurn]) -> dict[int, str]:
    """Return what is to say of turns, by their place: a target that is not the one before,
    failures, moves, loops."""
    # the latter: the loop of each agent's next turn
    remarks, goes_on = dict[int, str](), dict[str, int]()
    loops, before = [""] * len(turns), ""
    for at, turn in reversed([*enumerate(turns)]):
        if goes_on.get(turn.agent, 0) <= turn.repeated:
            loops[at] = looped(turn)
        goes_on[turn.agent] = turn.repeated
    for at, turn in enumerate(turns):
        target, before = turn.target if turn.target != before else "", turn.target
        failed = "" if turn.outcome == "ok" else turn.fault or turn.outcome
        if words := "; ".join(each for each in (target, failed, moved(turn), loops[at]) if each):
            remarks[at] = words
    return remarks


def _bar(turn: ReportedTurn, longest_s: float, size: int) -> Text:
    """Return the call as a bar whose length is its time: a letter for each part of it, dots for
    what overlaps."""
    bar, done_s, drawn = Text(), 0.0, 0
    parts = [(mark, colour, getattr(turn.causes, name)) for name, (mark, colour) in _MARKS.items()]
    for mark, colour, seconds in ((".", "dim", turn.overlap_s), *parts):
        done_s += seconds
        end = round(done_s / longest_s * size) if longest_s else 0
        bar.append(mark * (end - drawn), colour)
        drawn = max(drawn, end)
    return bar
