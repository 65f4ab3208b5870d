from collections.abc import Mapping

from msgspec import Struct

from splitsecond.benchmark.report import rows
from splitsecond.benchmark.rows.records import Capacity, CapacityStep, ConditionFindings, Run
from splitsecond.benchmark.rows.slo import limited
from splitsecond.core.pages import figure_cells
from splitsecond.core.pages.figure_cells import FigureCell, Remark, number

HEADINGS = (
    "within limits",
    "TTFT p50",
    "TTFT p95",
    "TPS p50",
    "system tokens/s",
    "good requests/s",
)
VERDICTS: Mapping[str, str] = {
    "holds": "holds",
    "promising": "likely",
    "undecided": "undecided",
    "fails": "fails",
    "breaks": "broke",
    "invalid": "INVALID",
}
BAD = ("fails", "breaks", "invalid")


class StepRow(Struct, frozen=True, kw_only=True):
    """One step of a search: a cell for each of `HEADINGS` and of `limit_headings`; `verdict` is a
    key of `VERDICTS`.

    `heaviest`: this is the heaviest load within the limits: the capacity.
    """

    load: str
    cells: list[FigureCell]
    verdict: str
    heaviest: bool


def limit_headings(capacity: Capacity) -> list[str]:
    return [
        f"{limited(name, open_loop=capacity.open_loop).label} p95"
        for name in _other_limits(capacity)
    ]


def _other_limits(capacity: Capacity) -> list[str]:
    return [name for name in capacity.limits if name != "ttft"]


def step_rows(run: Run, capacity: Capacity) -> list[StepRow]:
    by_name = {condition.condition: condition for condition in run.conditions}
    return [
        StepRow(
            load=rows.load_words(by_name[step.condition]),
            cells=_cells(capacity, step, by_name[step.condition]),
            verdict=step.verdict,
            heaviest=step.load == capacity.holds,
        )
        for step in sorted(capacity.steps, key=lambda step: step.load)
    ]


def _cells(capacity: Capacity, step: CapacityStep, row: ConditionFindings) -> list[FigureCell]:
    low, high = (100 * bound for bound in step.share_ci98)
    ttft = rows.ttft(row)
    others = [
        getattr(row, limited(name, open_loop=capacity.open_loop).name)
        for name in _other_limits(capacity)
    ]
    # The table of all figures has the intervals; this one has the interval that decides.
    figures = [
        figure_cells.cell(summary, p)
        for summary, p in ((ttft, "p50"), (ttft, "p95"), (row.tps, "p50"))
    ]
    limits = [figure_cells.cell(summary, "p95") for summary in others]
    return [
        FigureCell(figure=f"{step.met:,} of {step.sent:,}", interval=f"{low:.1f}–{high:.1f}%"),
        *(FigureCell(figure=cell.figure, needs=cell.needs) for cell in figures),
        FigureCell(figure=number(row.output_tokens_per_s)),
        FigureCell(figure=number(row.goodput.per_s if row.goodput else None)),
        *(FigureCell(figure=cell.figure, needs=cell.needs) for cell in limits),
    ]


def remarks(run: Run) -> list[Remark]:
    loads_by_remark: dict[tuple[str, str], list[str]] = {}
    levels = rows.levels(run)
    for level in levels:
        for remark in rows.remarks(level):
            if remark.kind != "server":
                loads_by_remark.setdefault((remark.kind, remark.text), []).append(
                    rows.load_words(level.conditions[0])
                )
    return [
        Remark(kind=kind, who="" if len(loads) == len(levels) else ", ".join(loads), text=text)
        for (kind, text), loads in loads_by_remark.items()
    ]
