"""What sections of the HTML report are made of: a heading, a table that scrolls in itself, a target with its mark."""

from collections.abc import Callable, Sequence

from splitsecond.analysis.findings import ConditionFindings, Run
from splitsecond.report import rows
from splitsecond.report.markup import Markup, tag
from splitsecond.report.rows import MISSING
from splitsecond.report.theme import LIGHT, SHAPES

Column = tuple[str, Callable[[ConditionFindings], str | Markup]]

SHAPE_PATHS = {
    "circle": "M6 1.5a4.5 4.5 0 1 0 .01 0z",
    "square": "M2 2h8v8H2z",
    "triangle-up": "M6 1.5 11 10.5H1z",
    "diamond": "M6 .5 10 6 6 11.5 2 6z",
    "cross": "M4.2 1h3.6v3.2H11v3.6H7.8V11H4.2V7.8H1V4.2h3.2z",
    "triangle-down": "M1 1.5h10L6 10.5z",
}


def section(name: str, heading: str, *content: str) -> Markup:
    """A part of the page under its own heading, which `name` links to."""
    return tag("section", tag("h2", heading), *content, id=name)


def table(caption: str, head: Sequence[str], body: Sequence[Markup], *, prose: bool = False) -> Markup:
    """A table that scrolls inside itself, so that a narrow page does not. `prose`: its last column holds words."""
    heading = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head)))
    look = {"class_": "prose"} if prose else {}
    whole = tag("table", tag("caption", caption), heading, tag("tbody", *body), **look)
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def condition_table(run: Run, heading: str, columns: Sequence[Column]) -> list[Markup]:
    """One row for each condition; nothing where no column has anything to say."""
    kept = [column for column in columns if any(column[1](c) != MISSING for c in run.conditions)]
    if not kept:
        return []
    body = [
        tag(
            "tr",
            tag("th", *named(run, c.target), scope="row"),
            tag("td", rows.load_words(c)),
            *(tag("td", of(c)) for _, of in kept),
        )
        for level in rows.levels(run)
        for c in level.conditions
    ]
    head = ["target", "load", *(name for name, _ in kept)]
    return [tag("h3", heading), table(heading, head, body)]


def weak(is_weak: bool) -> dict[str, str]:
    """The look of a cell whose figure a reader should not lean on."""
    return {"class_": "weak"} if is_weak else {}


def named(run: Run, target: str) -> list[str]:
    """A target with its mark. Where its name must be broken, it is after a slash."""
    provider, *rest = target.split("/")
    return [_swatch(run, target), provider, *(part for name in rest for part in ("/", tag("wbr"), name))]


def _swatch(run: Run, target: str) -> Markup:
    """The colour and the shape of a target, as the plots draw it."""
    at = rows.targets(run).index(target)
    path = tag("path", d=SHAPE_PATHS[SHAPES[at % len(SHAPES)]])
    look = f"mark target-{at % len(LIGHT.targets)}"
    return tag("svg", path, class_=look, viewBox="0 0 12 12", aria_hidden="true")
