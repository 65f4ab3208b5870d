"""What `splitsecond doctor` shows: the instrument's error level by level, targets phase by phase, streams."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.analysis.accuracy import TRUSTED_TPOT_SHARE, TRUSTED_TTFT_MS, Accuracy
from splitsecond.analysis.wording import percent
from splitsecond.clock import NS_PER_MS
from splitsecond.report.rows import MISSING, number, printable, share
from splitsecond.timing.observation import Observation


def accuracy_table(levels: Sequence[Accuracy], console: Console) -> None:
    """Prints the instrument's error at each level, and the highest load to trust."""
    table = _table("The instrument's own error, against a server's send times")
    for heading in (
        "streams\nat\nonce",
        "TTFT\nerror\np50 ms",
        "TTFT\nerror\np99 ms",
        "TTFT\nerror\nmax ms",
        "each\ntoken\np99 ms",
        "TPOT\nerror\np99",
        "read\nlag\np99 ms",
        "CPU ms\nper 1,000\ntokens",
        "trust",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for level in levels:
        table.add_row(
            str(level.streams),
            number(level.ttft_error_ms.p50),
            number(level.ttft_error_ms.p99),
            number(level.ttft_error_ms.max),
            number(level.token_error_ms.p99),
            share(level.tpot_error_share.p99),
            number(level.read_lag_ms.p99),
            number(level.cpu_ms_per_1000_tokens),
            Text("yes", "green") if level.trusted else Text("no", "bold red"),
        )
    console.print(table)
    for level in levels:
        if not level.trusted:
            console.print(Text(f"  {level.streams} streams: {level.why_not}.", "red"))
    console.print(Text(_highest(levels), "bold"))
    console.print(
        Text(
            f"Trusted: TTFT within {TRUSTED_TTFT_MS:g} ms and TPOT within {percent(TRUSTED_TPOT_SHARE)} at p99, no "
            "request lost. Read lag is how long bytes waited for us; with kernel times it is not in the figures.",
            "dim",
        )
    )


def _highest(levels: Sequence[Accuracy]) -> str:
    """The highest load up to which every level can be trusted, as a sentence."""
    trusted = 0
    for level in sorted(levels, key=lambda each: each.streams):
        if not level.trusted:
            break
        trusted = level.streams
    if not trusted:
        return "This machine cannot be trusted to measure now: close what else runs on it, and try again."
    best = max(level.streams for level in levels)
    return f"Trust this machine up to {trusted} streams of 100 tokens/s" + (" or more." if trusted == best else ".")


def target_table(checks: Sequence[tuple[str, Sequence[Observation], str]], console: Console) -> None:
    """Prints the phases of a first and a second request to each target; `checks` are (name, observations, fault)."""
    table = _table("Targets, a cold and a warm request each, times in ms")
    table.add_column("target", overflow="fold")
    for heading in ("DNS", "TCP", "TLS", "round\ntrip", "TTFT\ncold", "TTFT\nwarm", "tokens\nby"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("works", no_wrap=True)
    for name, seen, fault in checks:
        cold = seen[0] if seen else None
        warm = seen[1] if len(seen) > 1 else None
        cells = (
            [MISSING] * 7
            if cold is None
            else [
                _ms(cold.dns_ns),
                _ms(cold.tcp_ns),
                _ms(cold.tls_ns) if cold.tls_ns else MISSING,
                _ms((warm or cold).rtt_ns),
                _ms(cold.ttft_cold_ns),
                _ms(warm.ttft_ns) if warm else MISSING,
                (warm or cold).token_source or MISSING,
            ]
        )
        table.add_row(printable(name), *cells, Text("no", "bold red") if fault else Text("yes", "green"))
    console.print(table)
    for name, _, fault in checks:
        if fault:
            console.print(Text(f"  {printable(fault)}" if name in fault else f"  {name}: {printable(fault)}", "red"))


def _ms(ns: int | None) -> str:
    return number(None if ns is None else ns / NS_PER_MS)


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = True
    return table
