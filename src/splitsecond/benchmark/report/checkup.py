from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.report.production import print_fitting
from splitsecond.benchmark.report.tables import add_columns, name_text, titled_table
from splitsecond.benchmark.statistics.accuracy import TRUSTED_TPOT_SHARE, TRUSTED_TTFT_MS, Accuracy
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.core.pages.figure_cells import MISSING, number, safe_text, share
from splitsecond.core.transport.timestamping import CardStamps
from splitsecond.core.wording import counted_as, listed, percent
from splitsecond.log.statistics.summary import Summary

_FEWER_OF_LEVELS = (
    "token\np99",
    "TTFT\nmax",
    "CPU",
    "receive\np99",
    "send\np99",
    "lag\np99",
    "TTFT\np50",
)
_FEWER_OF_TARGETS = ("tokens\nby", "round\ntrip", "DNS")
"""Columns that a narrow console leaves out, one after another."""


class TargetCheck(Struct, frozen=True):
    """The check of one target: why it does not work, "" if it does.

    `first_token`: by each clock, the nanoseconds from sending the last request to its first token.
    `left_after_ns`: how long after it was written that request left the kernel; None: not known.
    """

    name: str
    observations: Sequence[Observation] = ()
    fault: str = ""
    first_token: Mapping[str, int] = {}
    left_after_ns: int | None = None


def accuracy_table(levels: Sequence[Accuracy], console: Console) -> None:
    print_fitting(console, partial(_levels, levels), _FEWER_OF_LEVELS)
    for level in levels:
        if not level.trusted:
            console.print(Text(f"  {counted_as(level.streams, 'stream')}: {level.why_not}.", "red"))
    console.print(Text(_highest(levels), "bold"))
    clocks = ", ".join(dict.fromkeys(level.clock for level in levels if level.clock))
    priorities = ", ".join(dict.fromkeys(level.priority for level in levels if level.priority))
    console.print(
        Text(f"Arrival times: {clocks}. Priority of the measuring process: {priorities}.", "dim")
    )
    console.print(
        Text(
            f"Trusted: TTFT within {TRUSTED_TTFT_MS:g} ms and TPOT within "
            f"{percent(TRUSTED_TPOT_SHARE)} at p99, and no request lost. The errors of sending the "
            "request and of receiving the first token add up to that of TTFT. Lag is how long "
            "bytes waited to be read; only with the process clock it is part of the figures. CPU "
            "is in ms per 1,000 tokens.",
            "dim",
        )
    )


def _levels(
    levels: Sequence[Accuracy], left_out: frozenset[str], _beside: bool, _name_width: int
) -> Table:
    cells: dict[str, Callable[[Accuracy], str | Text]] = {
        "streams": lambda level: str(level.streams),
        "TTFT\np50": lambda level: _error(level.ttft_error_ms.p50),
        "TTFT\np99": lambda level: _error(level.ttft_error_ms.p99),
        "TTFT\nmax": lambda level: _error(level.ttft_error_ms.max),
        "send\np99": lambda level: _error(level.send_error_ms.p99),
        "receive\np99": lambda level: _error(level.receive_error_ms.p99),
        "token\np99": lambda level: _error(level.token_error_ms.p99),
        "TPOT\np99": lambda level: share(level.tpot_error_share.p99),
        "lag\np99": lambda level: number(level.read_lag_ms.p99),
        "CPU": lambda level: number(level.cpu_ms_per_1000_tokens),
        "trust": lambda level: Text("yes", "green") if level.trusted else Text("no", "bold red"),
    }
    table = titled_table("The instrument's own error in ms, against the server's own times")
    columns = add_columns(table, cells, left_out)
    for level in levels:
        table.add_row(*(cell(level) for cell in columns))
    return table


def _highest(levels: Sequence[Accuracy]) -> str:
    trusted = 0
    for level in sorted(levels, key=lambda each: each.streams):
        if not level.trusted:
            break
        trusted = level.streams
    if not trusted:
        return "This machine cannot be trusted to measure now. Close other programs and try again."
    best = max(level.streams for level in levels)
    beyond = " or more" if trusted == best else ""
    return f"Trust this machine up to {counted_as(trusted, 'stream')} of 100 tokens/s{beyond}."


def packet_clock_advice(refusal: str) -> str:
    if not refusal:
        return (
            "The packet clock is available: each token gets the time of the packet that brought it."
        )
    return (
        f"The packet clock is not available: {refusal}. To allow it, start a container with "
        "--cap-add NET_RAW, or copy "
        "the Python interpreter and run: sudo setcap cap_net_raw,cap_sys_nice+ep PYTHON."
    )


def send_advice(delays_ms: Summary) -> str:
    if not delays_ms.n:
        return (
            "When requests leave this machine is not known: the kernel gives no transmit "
            "timestamps."
        )
    p50, p99 = _error(delays_ms.p50), _error(delays_ms.p99)
    return (
        f"On the loopback, a request leaves the kernel {p50} ms (p50) and {p99} ms (p99) after "
        "it was written."
    )


def card_advice(cards: Sequence[CardStamps]) -> str:
    able = [
        f"{card.interface} "
        f"({'unknown if on' if card.enabled is None else 'on' if card.enabled else 'off'})"
        for card in cards
        if card.able
    ]
    if able:
        return (
            f"Hardware receive timestamps: available at {listed(able)}. Arrival times are the "
            "kernel's nevertheless."
        )
    alike = grouped(cards, lambda card: card.reason)
    why = "; ".join(
        f"{listed([card.interface for card in each])}: {reason}" for reason, each in alike.items()
    )
    return f"Hardware receive timestamps: not available ({safe_text(why or 'no network card')})."


def target_table(checks: Sequence[TargetCheck], console: Console) -> None:
    print_fitting(console, partial(_targets, checks), _FEWER_OF_TARGETS)
    for check in checks:
        name, fault = safe_text(check.name), safe_text(check.fault)
        by_clock = ", ".join(
            f"{clock} {at / NS_PER_MS:,.3f}" for clock, at in check.first_token.items()
        )
        if by_clock:
            words = f"TTFT of the last request by each clock, ms: {by_clock}."
            console.print(Text(f"  {name}: {words}", "dim"))
        if check.left_after_ns is not None:
            after = f"{check.left_after_ns / NS_PER_MS:,.3f} ms after it was written"
            console.print(Text(f"  {name}: the last request left the kernel {after}.", "dim"))
        if fault:
            console.print(Text(f"  {fault}" if name in fault else f"  {name}: {fault}", "red"))


def _targets(
    checks: Sequence[TargetCheck], left_out: frozenset[str], _beside: bool, name_width: int
) -> Table:
    table = titled_table("Targets, a cold and a warm request each, times in ms")
    table.add_column("target", overflow="fold", no_wrap=not name_width)
    headings = ("DNS", "TCP", "TLS", "round\ntrip", "TTFT\ncold", "TTFT\nwarm", "tokens\nby")
    columns = zip(headings, zip(*map(_times, checks), strict=True), strict=True)
    columns_left = add_columns(table, dict(columns), left_out)
    table.add_column("works", no_wrap=True)
    for check, *times in zip(checks, *columns_left, strict=True):
        works = Text("no", "bold red") if check.fault else Text("yes", "green")
        table.add_row(name_text(check.name, name_width), *times, works)
    return table


def _times(check: TargetCheck) -> list[str]:
    cold, warm = (*check.observations, None, None)[:2]
    if cold is None:
        return [MISSING] * 7
    return [
        _ms(cold.dns_ns),
        _ms(cold.tcp_ns),
        _ms(cold.tls_ns) if cold.tls_ns else MISSING,
        _ms((warm or cold).rtt_ns),
        _ms(cold.ttft_cold_ns),
        _ms(warm.ttft_ns) if warm else MISSING,
        (warm or cold).token_source or MISSING,
    ]


def _error(ms: float | None) -> str:
    return MISSING if ms is None else f"{ms:.3f}"


def _ms(ns: int | None) -> str:
    return number(None if ns is None else ns / NS_PER_MS)
