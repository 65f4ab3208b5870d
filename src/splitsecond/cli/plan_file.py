"""The options of bench, watch or capacity in a file: `splitsecond bench plan.toml`. Each run writes
such a file into its folder."""

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from splitsecond.cli.run_options import RunOptions
from splitsecond.core.errors import CallerFault, content_faults, file_faults
from splitsecond.core.validation import nearest

Chosen = TypeVar("Chosen", bound=RunOptions)
PLAN = "plan.toml"
LEFT_OUT = ("out", "json", "csv", "markdown", "header", "verbose", "accept")
"""Options that say where results go, headers, which may contain a key, and `watch --accept`, which
measures nothing."""
HINT = (
    "Its keys are the options of the command, such as concurrency or requests, and targets; "
    "`splitsecond bench --help-all`, `watch --help` and `capacity --help` list them."
)


def is_plan(name: str) -> bool:
    """Return whether a target's name is that of a plan file: profiles of the simulator begin with
    ``sim/``."""
    return name.endswith(".toml") and "://" not in name and not name.startswith("sim/")


def planned(options: Chosen) -> Chosen:
    """Return the options with those of a plan file, if the only target is the name of one. Raises
    as `with_plan` does."""
    targets = options.named_targets
    return (
        with_plan(options, Path(targets[0]))
        if len(targets) == 1 and is_plan(targets[0])
        else options
    )


def with_plan(options: Chosen, path: Path) -> Chosen:
    """Return the options with those of a file; what the command line says itself comes first.

    Raises `CallerFault` for a file that cannot be read, and for an unknown option or a wrong value
    in it.
    """
    with (
        file_faults(f"cannot read {path}", kind="bad_plan"),
        content_faults(str(path), kind="bad_plan", hint=HINT),
    ):
        plan = msgspec.toml.decode(path.read_text("utf-8"))
    declared = options.declared()
    names = {each.key: name for name, each in declared.items()}
    measured = "targets" if "targets" in declared else "target"
    changes: dict[str, Any] = {measured: declared[measured].default}
    for key, value in plan.items():
        name = names.get(key.replace("_", "-"), "")
        if not name or name in LEFT_OUT:
            hint = f"{nearest(key, names)} {HINT}".lstrip()
            raise CallerFault(f"{path}: {key} is no option of a plan", kind="bad_plan", hint=hint)
        if name == measured or getattr(options, name) == declared[name].default:
            changes[name] = _read(f"{path}: {key}", value, declared[name].kind)
    return options.replaced(**changes)


def plan_text(options: RunOptions, command: str) -> str:
    """Return the file that repeats `command` with these options: those that are not the default."""
    lines = [
        f"{each.key} = {_written(value)}"
        for name, each in options.declared().items()
        if name not in LEFT_OUT
        and (value := getattr(options, name)) != each.default
        and value is not None
    ]
    return "\n".join([f"# Repeat with: splitsecond {command} plan.toml", *sorted(lines), ""])


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
