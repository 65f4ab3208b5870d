from msgspec import Struct

from splitsecond.benchmark.report.rows import load_words
from splitsecond.benchmark.rows.records import CacheSaving, FigureChange, Run
from splitsecond.core.money.cost import usd
from splitsecond.core.pages.figure_cells import MISSING, number, share
from splitsecond.core.wording import change

TITLE = "What prompt caching saves"
HEADINGS = ("TTFT p50, ms", "TTFT p95, ms", "cached input", "$ per 1,000 requests")
NOTE = (
    "Dollars cover input only, with the requests that fill the cache: output costs the same both "
    "ways. For a machine paid by the hour, they cover its time."
)
THOUSAND = 1000
WIDE, LARGE = 0.02, 0.1


class ChangeCell(Struct, frozen=True, kw_only=True):
    """One figure without and with cache reuse: "412 → 243", its change "−41%", and the 95%
    `interval` or "".

    `better`: None where that does not apply. `weak`: chance may explain the change.
    """

    figure: str
    remark: str = ""
    interval: str = ""
    better: bool | None = None
    weak: bool = False


class SavingRow(Struct, frozen=True, kw_only=True):
    target: str
    load: str
    cells: list[ChangeCell]


def saving_rows(run: Run) -> list[SavingRow]:
    conditions = {c.condition: c for c in run.conditions}
    return [
        SavingRow(
            target=saving.target, load=load_words(conditions[saving.fresh]), cells=_cells(saving)
        )
        for saving in run.cache_savings
    ]


def _cells(saving: CacheSaving) -> list[ChangeCell]:
    by_percentile = {wait.percentile: wait for wait in saving.ttft}
    waits = [_wait(by_percentile.get(name)) for name in ("p50", "p95")]
    return [*waits, _cached(saving), _money(saving)]


def _wait(wait: FigureChange | None) -> ChangeCell:
    if wait is None:
        return ChangeCell(figure=MISSING)
    moved = "" if wait.change is None else change(wait.change)
    between = _between(*wait.ci95) if wait.ci95 else ""
    figure = f"{number(wait.before)} → {number(wait.after)}"
    return ChangeCell(
        figure=figure, remark=moved, interval=between, better=wait.better, weak=not wait.real
    )


def _between(low: float, high: float) -> str:
    digits = 2 if high - low >= WIDE and max(abs(low), abs(high)) >= LARGE else 3
    return (
        f"{change(round(low, digits)).removesuffix('%').rstrip()} to {change(round(high, digits))}"
    )


def _cached(saving: CacheSaving) -> ChangeCell:
    if saving.cached_share is None:
        return ChangeCell(figure=MISSING, remark="unreported")
    return ChangeCell(
        figure=share(saving.cached_share), remark=f"in {saving.hits} of {saving.requests}"
    )


def _money(saving: CacheSaving) -> ChangeCell:
    fresh, reuse = saving.usd_per_request_fresh, saving.usd_per_request_reuse
    if fresh is None or reuse is None:
        return ChangeCell(figure=MISSING)
    saved = reuse - fresh
    sign = "+" if saved > 0 else ""
    return ChangeCell(
        figure=f"{_dollars(fresh)} → {_dollars(reuse)}",
        remark=f"{sign}{_dollars(saved)}" if saved else "",
    )


def _dollars(of_one: float) -> str:
    return usd(THOUSAND * of_one).replace("$", "")
