from msgspec import Struct

from splitsecond.benchmark.findings.findings import Recommendation, Run, TargetRating
from splitsecond.benchmark.findings.recommendation import MIN_REQUESTS
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
TOO_FEW = (
    "No verdicts on uses: {} per row are too few. Verdicts begin at {}; a p95 has an "
    "interval with -n {}."
)
MORE = (
    "The command splitsecond recommend RUN USE shows the figures and what would change a verdict."
)


class MatrixCell(Struct, frozen=True, kw_only=True):
    text: str
    look: str
    load: str = ""


def use_matrix(run: Run) -> dict[str, list[MatrixCell]]:
    """Return the verdicts on each target, by use; none where every row has too few requests for a
    recommendation."""
    if _most_requests(run) < MIN_REQUESTS:
        return {}
    order = dict.fromkeys(c.target for c in run.conditions)
    ratings = [{rating.target: rating for rating in use.candidates} for use in run.uses]
    return {
        target: [_cell(use, rated[target]) for use, rated in zip(run.uses, ratings, strict=True)]
        for target in order
        if ratings and target in ratings[0]
    }


def note(run: Run, *, beside: bool = False) -> str:
    """Return what the marks mean. `beside`: loads stand beside verdicts, not below them."""
    matrix = use_matrix(run)
    if not matrix:
        most = _most_requests(run)
        return (
            TOO_FEW.format(counted_as(most, "request"), MIN_REQUESTS, advised(0.95))
            if 0 < most < MIN_REQUESTS
            else ""
        )
    several_loads = any(cell.load for cells in matrix.values() for cell in cells)
    loads = LOADS_AFTER if beside else LOADS
    first = FIRST if run.spread is None or run.spread.claims else AHEAD
    return (
        (first if any(map(_has_first, run.uses)) else "") + (loads if several_loads else "") + MORE
    )


def use_lines(run: Run) -> dict[str, str]:
    """Return, by use and its load, the targets of each verdict, and up to which load the others
    meet the limit."""
    if not use_matrix(run):
        return {}
    lines = {}
    for use in run.uses:
        loads = {short_load(rating.load) for rating in use.candidates if rating.keeps != "no"}
        shared = loads.pop() if len(loads) == 1 else ""
        words = {word: _targets(use, keeps, shared) for keeps, (word, _) in KEEPS.items()}
        verdicts = [f"{word} {listed(targets)}" for word, targets in words.items() if targets]
        lines[f"{use.use} at {shared}" if shared else use.use] = "; ".join(verdicts) or "no target"
    return lines


def heading(run: Run) -> str:
    """Return at which loads, and with which workload, the verdicts of `target_lines` hold."""
    loads: dict[str, list[str]] = {}
    for use in run.uses:
        for rating in use.candidates[:1]:
            loads.setdefault(short_load(rating.load), []).append(use.use)
    usual = max(loads, key=lambda load: len(loads[load]), default="")
    others = [f"{listed(uses)} {load}" for load, uses in loads.items() if load != usual]
    workload = run.conditions[0].workload if run.conditions else ""
    several = f", workload {workload}" if workload else ""
    return (
        f"Uses at {usual}{several}{f' ({listed(others)})' if others else ''}, ★ is the first "
        f"of a use:"
    )


def target_lines(run: Run) -> dict[str, str]:
    """Return the uses of each verdict, by target."""
    lines = {}
    for target, cells in use_matrix(run).items():
        by_word: dict[str, list[str]] = {word: [] for word, _ in KEEPS.values()}
        for use, cell in zip(run.uses, cells, strict=True):
            star, _, word = cell.text.rpartition("★ ")
            by_word[word].append(f"{'★ ' if star or cell.text.startswith('★') else ''}{use.use}")
        lines[target] = "; ".join(
            f"{word} {', '.join(uses)}" for word, uses in by_word.items() if uses
        )
    return lines


def _targets(use: Recommendation, keeps: str, shared: str) -> list[str]:
    marked = []
    for rating in use.candidates:
        cell = _cell(use, rating)
        if rating.keeps == keeps and (cell.load or keeps != "no"):
            star = "★ " if cell.text.startswith("★") else ""
            marked.append(
                f"{star}{rating.target}{f' ({cell.load})' if cell.load not in ('', shared) else ''}"
            )
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
