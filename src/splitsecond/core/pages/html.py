"""Rendering of a report as one HTML file that needs no network, no server and no other file.

A content security policy lets the page run its own script and load nothing, so an offline copy is
complete, and text from a provider cannot call out. Templates escape every text; without JavaScript,
the page lacks only its buttons.

This module imports Jinja2: import it inside the function that writes a report, so that `--help`
stays fast.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256

import jinja2
import msgspec
from msgspec import Struct

from splitsecond.core.pages.chart import Legends, Plot
from splitsecond.core.pages.figure_cells import FigureCell
from splitsecond.core.pages.theme import page_colours
from splitsecond.core.wording import counted_as


class TableCell(Struct, frozen=True, kw_only=True):
    """A table cell with `notes`, lines of small print. `target`: the text is the name of a target,
    which gets its mark.

    `look`: "weak" for a figure from too few requests, "bad" for a failure, "strong" for bold.
    """

    text: str
    notes: Sequence[str] = ()
    look: str = ""
    target: bool = False
    invalid: bool = False


def figure_cell(cell: FigureCell) -> TableCell:
    notes = [cell.interval] if cell.interval else []
    return TableCell(text=cell.figure, notes=notes, look="weak" if cell.needs else "")


Row = Sequence[str | TableCell]

FILTERED = """\
filterRows(document.getElementById("filters"),
  JSON.parse(document.getElementById("data").textContent).rows,
  [...document.querySelectorAll(".chart .row")], [...document.querySelectorAll("#rows tbody tr")]);
"""


class HtmlTable(Struct, frozen=True, kw_only=True):
    """A table. The first cell of a row is its heading; with `prose`, the last column holds
    sentences.

    `export`: whether it has buttons for CSV and Markdown.
    """

    caption: str
    head: Sequence[str]
    body: Sequence[Row]
    prose: bool = False
    export: bool = False


class Tile(Struct, frozen=True, kw_only=True):
    """One number of a headline. `target`: the name of the target that it belongs to, or ""; `note`:
    small print."""

    label: str
    value: str
    unit: str = ""
    target: str = ""
    note: str = ""


class Badge(Struct, frozen=True, kw_only=True):
    """Judgement on a whole page in a few words. `look`: "good", "warn" or "bad"."""

    text: str
    look: str


class Headline(Struct, frozen=True, kw_only=True):
    """What a page says first: a sentence, further ones in smaller print, and a few numbers."""

    sentence: str = ""
    further: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
    badge: Badge | None = None


def render(
    template: str,
    plots: Sequence[Plot],
    legends: Legends,
    *,
    headline: Headline | None = None,
    filtered: Sequence[Mapping[str, str]] = (),
    **context: object,
) -> str:
    """Render a page.

    `legends` has the entries of each kind of legend that the plots name. `filtered` has the
    properties of each row of a table that the page can filter (`templates/filters.js`). `context`
    is what the template uses.
    """
    by_section: dict[str, list[Plot]] = {}
    for plot in plots:
        by_section.setdefault(plot.section, []).append(plot)
    style = page_style()
    script = template_source("page.js") + (
        template_source("filters.js") + FILTERED if filtered else ""
    )
    return (
        _environment()
        .get_template(template)
        .render(
            plots=by_section,
            legends={kind: list(entries.values()) for kind, entries in legends.items()},
            marks=legends.get("targets", {}),
            headline=headline or Headline(),
            style=style,
            script=script,
            policy=f"default-src 'none'; script-src '{csp_hash(script)}'; style-src "
            f"'{csp_hash(style)}'",
            # Without "<", nothing in the data can end the script element.
            data=msgspec.json.encode({"rows": filtered}).decode().replace("<", "\\u003c"),
            **context,
        )
    )


def page_style() -> str:
    return page_colours() + "".join(map(template_source, ("chart.css", "filters.css", "page.css")))


def contents(body: str) -> list[tuple[str, str]]:
    headings = []
    for section in body.split('<section id="')[1:]:
        tag, _, inside = section.partition(">")
        if inside.startswith("<h2>"):
            headings.append(
                (tag.partition('"')[0], inside.removeprefix("<h2>").partition("</h2>")[0])
            )
    return headings


def _by_legend(plots: Sequence[Plot]) -> list[tuple[str, list[Plot]]]:
    groups: dict[str, list[Plot]] = {}
    for plot in plots:
        groups.setdefault(plot.legend, []).append(plot)
    return list(groups.items())


def csp_hash(text: str) -> str:
    """Return the hash by which a content security policy names a script or a style sheet."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("splitsecond.core.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["counted_as"] = counted_as
    environment.filters["contents"] = contents
    environment.filters["by_legend"] = _by_legend
    return environment


def template_source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
