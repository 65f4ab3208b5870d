"""The declaration of an option of a run: the annotation of a field of its settings.

The field has the name, the type and the default; `Option` has the rest. The command line
(`cli.run_options`), plan files, the documentation of the Python API (`api.keywords`) and the
reference are derived from it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

PANELS = ("", "Targets", "Limits", "Load", "Requests", "Cost", "Results")
"""The panels of help, in order; "" has the arguments."""


class Form(Struct, frozen=True):
    """The form of a value on the command line, where it is not that of Python.

    `read` makes the value of the text, for the option of this name, or raises `CallerFault`;
    `write` makes the text of a default. With `several`, the option can be repeated, and `read` gets
    the list of its texts.
    """

    read: Callable[[Any, str], Any]
    write: Callable[[Any], str] = str
    several: bool = False


class Option(Struct, frozen=True):
    """What an option has besides its name, type and default.

    `metavar` names its value in help, with the unit: "S" and "TIME" are seconds in Python, "USD" US
    dollars. `default` describes the default in words; the command line then knows whether the
    option was set. `flags` and `name` are those of the command line, by default made of the field's
    name. `python` is the help in Python, if it differs.
    """

    panel: str
    metavar: str
    help: str
    default: str = ""
    flags: Sequence[str] = ()
    name: str = ""
    form: Form | None = None
    python: str = ""


of_targets, of_limits, of_load, of_requests, of_cost, of_results = (
    partial(Option, panel) for panel in PANELS[1:]
)


def in_python(text: str) -> Option:
    """Declare an option of the Python API, which the command line has in another form."""
    return Option("", "", text)


class Declared(NamedTuple):
    """A field that is an option, with its type and default."""

    field: str
    type: Any
    default: Any
    option: Option


def options_of(settings: type[Struct]) -> dict[str, Declared]:
    """Return the options that settings declare, by field: those of a subclass before those of its
    bases."""
    by_name = {each.name: each for each in fields(settings)}
    options: dict[str, Declared] = {}
    for kind in settings.__mro__:
        for name in vars(kind).get("__annotations__", {}):
            field = by_name.get(name)
            for option in getattr(field and field.type, "__metadata__", ()):
                if field is not None and isinstance(option, Option):
                    factory = field.default_factory
                    default = field.default if factory is NODEFAULT else factory()
                    declared = Declared(name, field.type.__origin__, default, option)
                    options.setdefault(name, declared)
    return options


def flags_of(declared: Declared) -> Sequence[str]:
    """Return the names of an option on the command line, the long one last."""
    name = declared.option.name or declared.field
    return declared.option.flags or (f"--{name.replace('_', '-')}",)
