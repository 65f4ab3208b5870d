"""Cells and remarks of tables, independent of their looks. A cell is one figure with its 95%
interval."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from splitsecond.core import wording
from splitsecond.core.wording import MISSING as MISSING

MAIN_PERCENTILES = ("p50", "p95")


def safe_text(text: str) -> str:
    """Replace control characters by spaces: text from a provider must not control the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def number(value: float | None) -> str:
    """Format a number for a table: three significant digits; a dash for None."""
    return wording.number(value, zeros=True)


def share(value: float | None) -> str:
    return wording.percent(value, zeros=True)


class FigureCell(Struct, frozen=True, kw_only=True):
    """One figure in a table, with its interval, or with `needs`: the n that its percentile needs
    and lacks."""

    figure: str
    interval: str = ""
    needs: int = 0


class Remark(Struct, frozen=True, kw_only=True):
    """Remark below a table. `kind` is "invalid", "error", "note" or "server" (the server's own
    times).

    `who` names the rows; "" stands for all.
    """

    kind: str
    who: str
    text: str


Interval = tuple[float | None, float | None]


class Summarised(Protocol):
    """Percentiles of a sample with their intervals, as `log.statistics.summary.Summary` has
    them."""

    needs: dict[str, int]

    def interval(self, percentile: str) -> Interval: ...


def cell(spread: Summarised, percentile: str) -> FigureCell:
    """Return the cell of `percentile` ("p50", "p95", "p99") with its interval; a bound that n
    cannot give is "?"."""
    value: float | None = getattr(spread, percentile)
    if value is None:
        return FigureCell(figure=MISSING)
    needs = spread.needs.get(percentile, 0)
    interval = (None, None) if needs else spread.interval(percentile)
    return FigureCell(figure=number(value), interval=interval_text(interval, number), needs=needs)


def interval_text(interval: Interval, formatted: Callable[[float | None], str]) -> str:
    if interval == (None, None):
        return ""
    return "–".join("?" if bound is None else formatted(bound) for bound in interval)
