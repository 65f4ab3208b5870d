from msgspec import Struct

from splitsecond.benchmark.findings.findings import Recommendation, Run, TargetRating

KEEPS: dict[str, tuple[str, str]] = {"yes": ("yes", "green"), "unsure": ("perhaps", "yellow"), "no": ("no", "red")}
TITLE = "Which target for which use"
FIRST = "★ marks the first of a use, by its own figure. "
AHEAD = "★ marks the target that was ahead in a use, by its own figure. "
UP_TO = "{} a verdict is the heaviest load up to which it holds. "
MORE = "The command splitsecond recommend RUN USE shows the figures and what would change a verdict."


class MatrixCell(Struct, frozen=True, kw_only=True):
    text: str
    look: str
    up_to: str = ""


def use_matrix(run: Run) -> dict[str, list[MatrixCell]]:
    order = dict.fromkeys(c.target for c in run.conditions)
    ratings = [{rating.target: rating for rating in use.candidates} for use in run.uses]
    return {
        target: [_cell(use, rated[target]) for use, rated in zip(run.uses, ratings, strict=True)]
        for target in order
        if ratings and target in ratings[0]
    }


def note(run: Run, *, place: str = "Below") -> str:
    several_loads = any(cell.up_to for cells in use_matrix(run).values() for cell in cells)
    first = FIRST if run.spread is None or run.spread.claims else AHEAD
    return (first if any(map(_has_first, run.uses)) else "") + (UP_TO.format(place) if several_loads else "") + MORE


def use_lines(run: Run) -> dict[str, str]:
    matrix = use_matrix(run)
    lines = {}
    for at, use in enumerate(run.uses):
        cells = [(target, cells[at]) for target, cells in matrix.items() if cells[at].text != "no"]
        fits = [f"{cell.text} {target}{f' ({cell.up_to})' if cell.up_to else ''}" for target, cell in cells]
        lines[use.use] = ", ".join(fits) or "no target"
    return lines


def _cell(use: Recommendation, rating: TargetRating) -> MatrixCell:
    word, look = KEEPS[rating.keeps]
    several = len(rating.rows) > 1
    return MatrixCell(
        text=f"★ {word}" if rating.target == use.fastest and _has_first(use) else word,
        look=look,
        up_to=short_load(rating.up_to) if several else "",
    )


def _has_first(use: Recommendation) -> bool:
    return len(use.candidates) > 1


def short_load(load: str) -> str:
    return load.replace("concurrency ", "c=").replace(" requests/s", "/s").replace(" sessions/s", "/s")
