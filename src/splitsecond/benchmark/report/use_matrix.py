from collections.abc import Iterator, Sequence

from msgspec import Struct

from splitsecond.benchmark.findings.recommendation import MIN_REQUESTS, asked_for
from splitsecond.benchmark.rows.records import Recommendation, Run, TargetRating
from splitsecond.core.grouping import grouped
from splitsecond.core.wording import counted_as, listed
from splitsecond.log.statistics.summary import advised

KEEPS: dict[str, tuple[str, str]] = {
    "yes": ("yes", "green"),
    "unsure": ("cannot tell", "yellow"),
    "no": ("no", "red"),
}
TITLE = "Which target for which use"
FIRST = "★ marks the first of a use, by its own figure, where it is clear. "
AHEAD = "★ marks the target that was clearly ahead in a use, by its own figure. "
LOADS = "Below a verdict is its load; below a no, ≤ is the heaviest load within the limit. "
LOADS_AFTER = "≤ is the heaviest load within the limit. "
TOO_FEW = "No verdicts on uses: {} too few. Verdicts begin at {}; a p95 has an interval with -n {}."
MORE = (
    "The command splitsecond recommend RUN USE shows the figures and what would change a verdict."
)


class MatrixCell(Struct, frozen=True, kw_only=True):
    text: str
    look: str
    load: str = ""

    @property
    def mark(self) -> str:
        return "★ " if self.text.startswith("★") else ""

    @property
    def word(self) -> str:
        return self.text.removeprefix("★ ")


class MatrixRow(Struct, frozen=True, kw_only=True):
    """The verdicts on one target, on one workload where a run has several; a cell for each use."""

    target: str
    workload: str
    cells: list[MatrixCell]

    @property
    def name(self) -> str:
        return f"{self.target} on {self.workload}" if self.workload else self.target


def use_names(run: Run) -> list[str]:
    return list(dict.fromkeys(use.use for use in run.uses))


def use_matrix(run: Run) -> list[MatrixRow]:
    """Return the verdicts on each target; none where every row has too few requests for a
    recommendation."""
    if _most_requests(run) < MIN_REQUESTS:
        return []
    rated = {
        (rating.target, use.workload, use.use): (use, rating)
        for use in run.uses
        for rating in use.candidates
    }
    names = use_names(run)
    return [
        MatrixRow(
            target=target,
            workload=workload,
            cells=[_cell(*rated[target, workload, name]) for name in names],
        )
        for target, workload in dict.fromkeys((c.target, c.workload) for c in run.conditions)
        if names and (target, workload, names[0]) in rated
    ]


def note(run: Run, *, beside: bool = False) -> str:
    """Return what the marks mean. `beside`: loads stand beside verdicts, not below them."""
    matrix = use_matrix(run)
    if not matrix:
        if all(row.inputs for row in run.conditions):
            return ""  # uses are about text
        most = _most_requests(run)
        return (
            TOO_FEW.format(
                counted_as(most, "request per row is", "requests per row are"),
                MIN_REQUESTS,
                advised(0.95),
            )
            if 0 < most < MIN_REQUESTS
            else ""
        )
    several_loads = any(cell.load for row in matrix for cell in row.cells)
    loads = LOADS_AFTER if beside else LOADS
    first = FIRST if run.spread is None or run.spread.claims else AHEAD
    return (
        (first if any(map(_has_first, run.uses)) else "") + (loads if several_loads else "") + MORE
    )


def use_lines(run: Run) -> dict[str, str]:
    """Return, by use, workload and load, the targets of each verdict, and up to which load the
    others meet the limit."""
    if not use_matrix(run):
        return {}
    lines = {}
    for use in run.uses:
        loads = {short_load(rating.load) for rating in use.candidates if rating.keeps != "no"}
        shared = loads.pop() if len(loads) == 1 else ""
        words = {word: _targets(use, keeps, shared) for keeps, (word, _) in KEEPS.items()}
        verdicts = [f"{word} {listed(targets)}" for word, targets in words.items() if targets]
        label = asked_for(use)
        lines[f"{label} at {shared}" if shared else label] = "; ".join(verdicts) or "no target"
    return lines


def heading(run: Run) -> str:
    """Return at which loads, and on which workloads, the verdicts of `target_lines` hold."""
    by_workload = grouped(run.uses, lambda use: use.workload)
    places = grouped(by_workload, lambda workload: _loads(by_workload[workload]))
    where = [
        f"{loads} on {listed(workloads)}" if all(workloads) else loads
        for loads, workloads in places.items()
    ]
    return f"Uses at {'; '.join(where)}, ★ is the first of a use"


def _loads(uses: Sequence[Recommendation]) -> str:
    loads = grouped(
        (use for use in uses if use.candidates), lambda use: short_load(use.candidates[0].load)
    )
    usual = max(loads, key=lambda load: len(loads[load]), default="")
    others = [
        f"{listed([use.use for use in own])} {load}" for load, own in loads.items() if load != usual
    ]
    return f"{usual} ({listed(others)})" if others else usual


def target_lines(run: Run) -> dict[str, str]:
    """Return the uses of each verdict, by target. A use whose verdict is not the same on every
    workload is followed by the workloads."""
    names = use_names(run)
    return {
        target: "; ".join(verdicts(names, own))
        for target, own in grouped(use_matrix(run), lambda row: row.target).items()
    }


def verdicts(names: Sequence[str], own: Sequence[MatrixRow]) -> Iterator[str]:
    """Yield the uses of each verdict on a target, whose rows are `own`: one for each workload."""
    for word, _ in KEEPS.values():
        uses = []
        for at, name in enumerate(names):
            on: dict[str, list[str]] = {}
            for row in own:
                if row.cells[at].word == word:
                    on.setdefault(row.cells[at].mark, []).append(row.workload)
            uses += [
                f"{mark}{name}" + (f" ({', '.join(only)})" if len(only) < len(own) else "")
                for mark, only in on.items()
            ]
        if uses:
            yield f"{word} {', '.join(uses)}"


def _targets(use: Recommendation, keeps: str, shared: str) -> list[str]:
    marked = []
    for rating in use.candidates:
        cell = _cell(use, rating)
        if rating.keeps == keeps and (cell.load or keeps != "no"):
            load = f" ({cell.load})" if cell.load not in ("", shared) else ""
            marked.append(f"{cell.mark}{rating.target}{load}")
    return marked


def _most_requests(run: Run) -> int:
    return max((rating.requests for use in run.uses for rating in use.candidates), default=0)


def _cell(use: Recommendation, rating: TargetRating) -> MatrixCell:
    word, look = KEEPS[rating.keeps]
    load = ""
    if len(rating.rows) > 1:
        lighter = f"≤ {short_load(rating.up_to)}" if rating.up_to else ""
        load = lighter if rating.keeps == "no" else short_load(rating.load)
    return MatrixCell(
        text=f"★ {word}" if _has_first(use) and rating.target == use.fastest else word,
        look=look,
        load=load,
    )


def _has_first(use: Recommendation) -> bool:
    return len(use.candidates) > 1 and bool(use.fastest) and use.is_clear


def short_load(load: str) -> str:
    return (
        load.replace("concurrency ", "c=").replace(" requests/s", "/s").replace(" sessions/s", "/s")
    )
