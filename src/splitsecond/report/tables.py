"""What sections of the HTML report are made of: a heading, a table that scrolls in itself, a target with its mark,
a place for a plot."""

from collections.abc import Callable, Sequence

from splitsecond.analysis.findings import ConditionFindings, Run
from splitsecond.analysis.wording import counted_as
from splitsecond.report import rows
from splitsecond.report.markup import Markup, joined, tag
from splitsecond.report.picture import Picture
from splitsecond.report.rows import MISSING
from splitsecond.report.theme import LIGHT, SHAPES

Column = tuple[str, Callable[[ConditionFindings], str | Markup]]

STATEMENTS_SHOWN = 8
"""So many sentences still leave the first table in sight."""

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


def plot(picture: Picture) -> Markup:
    """The place that the page's script draws a picture into, of the height that it will have."""
    place = tag(
        "div",
        tag("noscript", "Drawing this plot needs JavaScript."),
        id=f"plot-{picture.name}",
        class_="plot",
        role="img",
        aria_label=picture.description,
        style=f"height:{picture.height}px",
    )
    return tag("figure", tag("figcaption", picture.title), place)


def statement_list(statements: Sequence[str]) -> Markup:
    """Findings in sentences: the first few in sight, the others a click away; nothing where there are none."""
    said = [tag("li", statement) for statement in statements]
    parts = [tag("ul", *said[:STATEMENTS_SHOWN], class_="verdict")] if said else []
    if more := said[STATEMENTS_SHOWN:]:
        summary = tag("summary", f"{counted_as(len(more), 'more finding', 'more findings')}")
        parts.append(tag("details", summary, tag("ul", *more, class_="verdict")))
    return joined(parts)


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
    return mark(at % len(LIGHT.targets), SHAPES[at % len(SHAPES)])


def mark(colour: int, shape: str) -> Markup:
    """A mark as plots have it, by the place of its colour among those of targets."""
    path = tag("path", d=SHAPE_PATHS[shape])
    look = f"mark target-{colour}"
    return tag("svg", path, class_=look, viewBox="0 0 12 12", aria_hidden="true")
