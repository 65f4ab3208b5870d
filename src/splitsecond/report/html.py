"""The report of a run as one HTML file that needs no network, no server and no other file.

`render` puts together: the page's own template, style sheet and script (`page/`), the sections (`sections`), the
pictures as data, and the JavaScript of Vega, which draws them. A content security policy forbids the page to load
anything, so an offline copy shows what the online one showed, and text from a provider cannot call out.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import msgspec

from splitsecond.analysis.findings import Run
from splitsecond.report import sections
from splitsecond.report.markup import Markup, raw
from splitsecond.report.picture import Picture
from splitsecond.report.pictures import charts
from splitsecond.report.theme import DARK, LIGHT, THEMES, Theme, vega_config
from splitsecond.timing.observation import Observation


def render(run: Run, observations: Iterable[Observation]) -> str:
    """The whole page. Takes some seconds, most of them for the JavaScript of the pictures."""
    pictures = charts(run, observations)
    return page(sections.title(run), sections.body(run, pictures), pictures)


def page(title: Markup, body: Markup, pictures: Mapping[str, Picture]) -> str:
    """A page of its own around `body`, which has a place for each of the pictures."""
    data = {
        "specs": {name: {k: v for k, v in p.spec.items() if k != "title"} for name, p in pictures.items()},
        "themes": {theme.name: _config(theme) for theme in THEMES},
    }
    return Template(_file("page.html")).substitute(
        title=title,
        style=raw(_colours() + _file("page.css")),
        body=body,
        data=_script_data(data),
        bundle=raw(_bundle() if pictures else ""),
        script=raw(_file("page.js")),
    )


def _config(theme: Theme) -> dict[str, Any]:
    """As for a picture alone, but what colours stand for is said by the page; a legend of sizes stays."""
    config = vega_config(theme)
    return config | {"legend": config["legend"] | {"disable": True}}


def _script_data(data: object) -> Markup:
    """JSON for a script element: with no "<" in it, nothing in the data can end the element."""
    return raw(msgspec.json.encode(data).decode().replace("<", "\\u003c"))


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one, of the version that the specifications are written for."""
    import vl_convert
    from altair import SCHEMA_VERSION

    wanted = ".".join(SCHEMA_VERSION.lstrip("v").split(".")[:2])
    bundle: str = vl_convert.javascript_bundle(vl_version=wanted)  # type: ignore[call-arg]  # its stub asks for a snippet, it does not
    return bundle.replace("</script", "<\\/script")


def _colours() -> str:
    """The themes as custom properties of the style sheet."""
    pairs = {
        "ground": (LIGHT.ground, DARK.ground),
        "ink": (LIGHT.ink, DARK.ink),
        "faint": (LIGHT.faint, DARK.faint),
        "line": (LIGHT.line, DARK.line),
    }
    for kind, light, dark in (("target", LIGHT.targets, DARK.targets), ("stage", LIGHT.stages, DARK.stages)):
        pairs |= {f"{kind}-{i}": pair for i, pair in enumerate(zip(light, dark, strict=True))}
    said = "".join(f"--{name}:light-dark({light},{dark});" for name, (light, dark) in pairs.items())
    marks = "".join(f".target-{i}{{fill:var(--target-{i})}}" for i in range(len(LIGHT.targets)))
    boxes = "".join(f".stage-{i}{{background:var(--stage-{i})}}" for i in range(len(LIGHT.stages)))
    return f":root{{{said}}}\n{marks}\n{boxes}\n"


def _file(name: str) -> str:
    return files("splitsecond.report").joinpath("page", name).read_text(encoding="utf-8")
