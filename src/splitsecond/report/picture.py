"""What a plot is to a page: a Vega-Lite specification without colours, and the words around it."""

from typing import Any

from msgspec import Struct


class Picture(Struct, frozen=True, kw_only=True):
    """One plot. `section` is where in the report it belongs, `description` says in words what a reader would see.

    `legend` is what its colours stand for: "targets", "stages", "steps". `height` is in pixels.
    """

    name: str
    section: str
    title: str
    description: str
    height: int
    legend: str
    spec: dict[str, Any]
