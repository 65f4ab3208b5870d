"""The options of bench, watch or capacity in a file: `splitsecond bench plan.toml`. Each run writes
such a file into its folder."""

import json
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from splitsecond.core.errors import CallerFault, content_faults, file_faults
from splitsecond.core.validation import nearest

Options = TypeVar("Options", bound=Any)
PLAN = "plan.toml"
LEFT_OUT = ("out", "json", "csv", "markdown", "header", "verbose", "accept")
"""Options that say where results go, headers, which may contain a key, and `watch --accept`, which
measures nothing."""
FIELDS = {
    "for": "use",
    "check": "check_file",
    "policies": "policy_file",
    "from": "first",
    "to": "last",
}
"""The fields of options with another name than the option."""
KEYS = {name: key for key, name in FIELDS.items()}
HINT = (
    "Its keys are the options of the command, such as concurrency or requests, and targets; "
    "`splitsecond bench --help-all`, `watch --help` and `capacity --help` list them."
)


def is_plan(name: str) -> bool:
    """Return whether a target's name is that of a plan file: profiles of the simulator begin with
    ``sim/``."""
    return name.endswith(".toml") and "://" not in name and not name.startswith("sim/")


def planned(options: Options) -> Options:
    """Return the options with those of a plan file, if the only target is the name of one. Raises
    as `with_plan` does."""
    named = options.named_targets
    return with_plan(options, Path(named[0])) if len(named) == 1 and is_plan(named[0]) else options


def with_plan(options: Options, path: Path) -> Options:
    """Return the options with those of a file; what the command line says itself comes first.

    Raises `CallerFault` for a file that cannot be read, and for an unknown option or a wrong value
    in it.
    """
    with (
        file_faults(f"cannot read {path}", kind="bad_plan"),
        content_faults(str(path), kind="bad_plan", hint=HINT),
    ):
        found = msgspec.toml.decode(path.read_text("utf-8"))
    known = {each.name: each for each in fields(options)}
    types = get_type_hints(type(options))
    measured = "targets" if "targets" in known else "target"
    changes: dict[str, Any] = {measured: _default(known[measured])}
    for key, value in found.items():
        name = FIELDS.get(key, key.replace("-", "_"))
        if name not in known or name in LEFT_OUT:
            hint = f"{nearest(name, known)} {HINT}".lstrip()
            raise CallerFault(f"{path}: {key} is no option of a plan", kind="bad_plan", hint=hint)
        if name == measured or getattr(options, name) == _default(known[name]):
            changes[name] = _read(f"{path}: {key}", value, types[name])
    return replace(options, **changes)


def plan_text(options: Any, command: str) -> str:
    """Return the file that repeats `command` with these options: those that are not the default."""
    lines = [
        f"{KEYS.get(each.name, each.name.replace('_', '-'))} = {_written(value)}"
        for each in fields(options)
        if each.name not in LEFT_OUT
        and (value := getattr(options, each.name)) != _default(each)
        and value is not None
    ]
    return "\n".join([f"# Repeat with: splitsecond {command} plan.toml", *sorted(lines), ""])


def _default(field: Field[Any]) -> Any:
    return None if field.default is MISSING else field.default


def _read(place: str, value: Any, kind: Any) -> Any:
    if kind is str and isinstance(value, list):
        value = ",".join(map(str, value))
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if kind == list[str] | None and isinstance(value, str):
        value = [value]
    try:
        return msgspec.convert(value, kind, dec_hook=_path, strict=True)
    except msgspec.ValidationError as error:
        raise CallerFault(f"{place}: {error}", kind="bad_plan", hint=HINT) from None


def _path(kind: type, value: Any) -> Path:
    if kind is not Path or not isinstance(value, str):
        raise NotImplementedError
    return Path(value)


def _written(value: Any) -> str:
    """Return a value in TOML, whose strings, numbers and lists are those of JSON."""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
