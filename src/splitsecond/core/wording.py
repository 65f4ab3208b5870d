"""Words of findings: numbers, conditions and counts as text. All sentences of this room use these
functions."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor, log10
from typing import Protocol

from msgspec import Struct

MISSING = "–"
SIMULATED, ENGINE = "sim/", "engine/"
"""Prefixes of simulated targets, and of the real engine on this machine with a toy model."""

LINE = 98
"""Columns of a line of findings on a terminal of 100, after the bullet."""


class Statement(Struct, frozen=True):
    """A finding as text: in full, and in short, each sentence on a line of its own. `short`: "" if
    it needs none.

    `detail`: it is left out where only the main findings are shown.
    """

    long: str
    short: str = ""
    detail: bool = False

    def lines(self, width: int) -> list[str]:
        return [self.long] if not self.short or len(self.long) <= width else self.short.split("\n")


def full(statements: Iterable[Statement]) -> list[str]:
    return [each.long for each in statements]


def paired(statements: Sequence[str], short: Sequence[str]) -> list[Statement]:
    return [Statement(*both) for both in zip(statements, short, strict=True)]


class Loaded(Protocol):
    """Anything that was measured under a load: a row of findings, or the change of a row.

    `in_sessions`: its concurrency or rate is that of sessions, not of requests.
    """

    @property
    def concurrency(self) -> int | None: ...

    @property
    def rate(self) -> float | None: ...

    @property
    def in_sessions(self) -> bool: ...

    @property
    def cache_reuse(self) -> bool: ...

    @property
    def workload(self) -> str: ...


def number(value: float | None, *, zeros: bool = False) -> str:
    """Format a number with three significant digits, at most four decimals and thousands
    separators: "4.5", "1,234".

    With `zeros`, as tables need it, trailing zeros stay ("4.50"). None is a dash.
    """
    if value is None:
        return MISSING
    rounded = abs(float(f"{value:.3g}"))
    decimals = min(max(2 - floor(log10(rounded)), 0), 4) if rounded else 0
    text = f"{value:,.{decimals}f}"
    return text if zeros or not decimals else text.rstrip("0").rstrip(".")


def ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else number(value)


def percent(share: float | None, *, zeros: bool = False) -> str:
    """Format a share as a percentage: 0.25 is "25%", with `zeros` "25.0%". None is a dash."""
    return MISSING if share is None else f"{number(share * 100, zeros=zeros)}%"


def change(share: float) -> str:
    """Format a relative change with its sign: 0.25 is "+25%", 0.0123 "+1.2%", 24.58 "+2,458%"."""
    tenths = round(abs(share) * 100, 1 if abs(share) < 1 else None)
    sign = "" if tenths == 0 else "+" if share > 0 else "−"
    return f"{sign}{f'{tenths:,.1f}'.removesuffix('.0')}%"


def counted_as(count: int, one: str, several: str = "") -> str:
    """Format a count with its noun: "1 request", "2 requests". `several` is for other plurals than
    `one` with an s."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def chance(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def evidence(
    moved: str,
    interval: tuple[str, str] | None,
    p_value: float | None = None,
    *,
    short: bool = False,
) -> str:
    """Format the evidence for a difference: " (+20%, 95% interval +15% to +25%, p < 0.001)"; "" if
    there is none.

    In short it has no p-value, which the interval implies.
    """
    between = (
        ""
        if interval is None
        else f"95% {span(*interval)}"
        if short
        else f"95% interval {' to '.join(interval)}"
    )
    parts = [moved, between, "" if p_value is None or short else chance(p_value)]
    words = ", ".join(part for part in parts if part)
    return f" ({words})" if words else ""


def span(low: str, high: str) -> str:
    """Format an interval in short: "1.2–3.4", "96.2–99.1%", "+15% to +25%"."""
    if low.startswith(("+", "−")) or high.startswith(("+", "−")):
        return f"{low} to {high}"
    return f"{low.removesuffix('%') if high.endswith('%') else low}–{high}"


def in_a_line(before: str, parts: Sequence[str]) -> str:
    for count in range(len(parts), 0, -1):
        more = f" and {len(parts) - count} more" if count < len(parts) else ""
        line = f"{before}{', '.join(parts[:count])}{more}."
        if len(line) <= LINE:
            break
    return line


def level(of: Loaded, *, short: bool = False) -> str:
    """Format the load of a row: "at concurrency 8", "at 5 requests/s with cache reuse", "on its
    trace"."""
    return ("on " if of.concurrency is None and of.rate is None else "at ") + load(of, short=short)


def load(of: Loaded, *, short: bool = False) -> str:
    """Format the load as a noun: "concurrency 8", in short "c=8", "5 requests/s with cache reuse",
    "its trace"."""
    if of.concurrency is not None:
        return f"{'c=' if short else 'concurrency '}{of.concurrency}{kind(of)}"
    return ("its trace" if of.rate is None else rate(of)) + kind(of)


def rate(of: Loaded) -> str:
    return f"{of.rate:g} {'sessions' if of.in_sessions else 'requests'}/s"


def kind(of: Loaded) -> str:
    """Format what distinguishes the requests of a row: " with cache reuse", " on workload 8k"; ""
    for nothing."""
    return (" with cache reuse" if of.cache_reuse else "") + (
        f" on workload {of.workload}" if of.workload else ""
    )


_OF_TURNS = {"ttft_first_turn": "TTFT of first turns", "ttft_later_turns": "TTFT of later turns"}


def limits(of: Mapping[str, float]) -> str:
    """Format the limits of requests: "TTFT ≤ 300 ms, TPS ≥ 50"."""
    return ", ".join(
        f"TPS ≥ {number(limit)}"
        if name == "tps"
        else f"{_OF_TURNS.get(name, name.upper())} ≤ {number(limit)} ms"
        for name, limit in of.items()
    )


def counted(counts: dict[str, int]) -> str:
    """Format counts by kind, most frequent first: "3 http_429, 1 refused"."""
    return ", ".join(
        f"{n} {kind}" for kind, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words of a sentence: "a", "a and b", "a, b and c"; `last`: the word before the last
    one."""
    return f" {last} ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])
