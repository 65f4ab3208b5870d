"""Converts the values of options and arguments, plain ones without Pydantic.

Typer converts every value with Pydantic, which takes a fifth of a second to load. Text, numbers
within their limits and paths that can be read need none. Any other value, and so each wrong one, is
left to Typer, whose message the user sees.
"""

import os
import re
from pathlib import Path
from typing import Any, get_args, get_origin

_NUMBERS = {int: re.compile(r"-?[0-9]+"), float: re.compile(r"-?[0-9]+(\.[0-9]+)?")}
_CHECKS = ("exists", "writable", "resolve_path", "allow_dash", "path_type", "parser", "clamp")
"""Settings of a parameter that only Typer knows."""


class PlainValues:
    """The converter of a parameter, in the place of Typer's own (`RuntimeParam`)."""

    @classmethod
    def use(cls, parameter: Any) -> None:
        """Convert the values of a parameter with this class. Other versions of Typer convert values
        without Pydantic, or elsewhere, and have nothing to replace."""
        if getattr(parameter, "_runtime_param", cls) is None:
            parameter._runtime_param = cls()

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return _converted(value, param.type_descriptor)
        except ValueError:
            param._runtime_param = None  # which makes Typer create its own
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _converted(value: Any, described: Any) -> Any:
    """Return the value that Typer would return. Raises `ValueError` for one that is not plain."""
    kind, info = described.annotation, described.parameter_info
    if any(getattr(info, name) for name in _CHECKS):
        raise ValueError("Typer checks it")
    several = get_origin(kind) is list
    if value is None:
        return () if several else None
    if several:
        return [_plain(each, get_args(kind)[0], info) for each in value]
    return _plain(value, kind, info)


def _plain(value: Any, kind: Any, info: Any) -> Any:
    if kind is str and isinstance(value, str):
        return value
    if kind is Path and isinstance(value, str | Path):
        path = Path(value)
        if os.access(path, os.R_OK) or not os.path.exists(path):
            return path
    if kind in _NUMBERS and _NUMBERS[kind].fullmatch(str(value)):
        number = kind(value)
        if (info.min is None or number >= info.min) and (info.max is None or number <= info.max):
            return number
    raise ValueError("not plain")
