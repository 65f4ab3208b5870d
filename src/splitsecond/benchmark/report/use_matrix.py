"""The matrix of targets and uses of a run, for the terminal and for HTML."""

from msgspec import Struct

from splitsecond.benchmark.findings.findings import Recommendation, Run, TargetRating

KEEPS: dict[str, tuple[str, str]] = {"yes": ("yes", "green"), "unsure": ("perhaps", "yellow"), "no": ("no", "red")}
TITLE = "Which target for which use"
FIRST = "★ marks the first of a use, by its own figure. "
UP_TO = "{} a verdict is the heaviest load up to which it holds. "
MORE = "The command splitsecond recommend RUN USE shows the figures and what would change a verdict."


class MatrixCell(Struct, frozen=True, kw_only=True):
    """Verdict on one target for one use: its word, its style on a terminal, and the load up to which it holds."""

    text: str
    look: str
    up_to: str = ""


def use_matrix(run: Run) -> dict[str, list[MatrixCell]]:
    """Return a cell for each use (in the order of `run.uses`) of each target of the run that has ratings."""
    order = dict.fromkeys(c.target for c in run.conditions)
    ratings = [{rating.target: rating for rating in use.candidates} for use in run.uses]
    return {
        target: [_cell(use, rated[target]) for use, rated in zip(run.uses, ratings, strict=True)]
        for target in order
        if ratings and target in ratings[0]
    }


def note(run: Run, *, place: str = "Below") -> str:
    """Return what the marks of the matrix mean. `place`: where the load of a verdict is."""
    several_loads = any(cell.up_to for cells in use_matrix(run).values() for cell in cells)
    return (FIRST if any(map(_has_first, run.uses)) else "") + (UP_TO.format(place) if several_loads else "") + MORE


def use_lines(run: Run) -> dict[str, str]:
    """Return the matrix as a line for each use, without the targets that miss it, such as "★ yes a/x (c=8)"."""
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
    """Return whether there are several targets, so that one can be the first."""
    return len(use.candidates) > 1


def short_load(load: str) -> str:
    """Shorten the words of a load: "concurrency 8" becomes "c=8"."""
    return load.replace("concurrency ", "c=").replace(" requests/s", "/s")
