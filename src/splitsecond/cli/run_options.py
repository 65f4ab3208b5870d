"""The options that bench, watch and capacity share.

The options of a command are those of its settings (`benchmark.runs.settings`), and the annotated
attributes of a class here: options that the command line has in a form of its own.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

from typer.models import OptionInfo

from splitsecond.benchmark.runs.planning import Recorded
from splitsecond.benchmark.runs.settings import RunSettings, Server, SessionSettings
from splitsecond.cli import option_values
from splitsecond.cli.options import (
    ApiFormat,
    ApiKeyEnv,
    BaseUrl,
    Csv,
    Json,
    Markdown,
    Model,
    TargetNames,
    of_cost,
    of_requests,
    of_results,
    of_targets,
    option,
)
from splitsecond.cli.results import Output
from splitsecond.core.errors import CallerFault
from splitsecond.core.option import PANELS, Declared, Form, flags_of, options_of
from splitsecond.core.validation import wrong

Chosen = TypeVar("Chosen", bound="Options")
Settings = TypeVar("Settings", bound=RunSettings)


class CommandOption(NamedTuple):
    """An option of a command: `kind` and `default` are those of its value on the command line,
    `flag` is its name in errors and `key` that in a plan file. `field`: the setting with its value,
    "" for an option that the command line has in a form of its own."""

    info: Any
    kind: Any
    default: Any
    flag: str
    key: str
    field: str = ""
    form: Form | None = None


class Options:
    """The values of a command's options, as they are on the command line.

    `of`: the settings whose options a class adds. `left_out`: settings that are no options.
    """

    of: ClassVar[type[RunSettings]]
    left_out: ClassVar[Sequence[str]] = ()
    _declared: ClassVar[Mapping[str, CommandOption]]

    @classmethod
    def declared(cls) -> Mapping[str, CommandOption]:
        """Return the options by name: those of a subclass before those of its bases."""
        if "_declared" not in vars(cls):
            cls._declared = _declared(cls)
        return cls._declared

    def __init__(self, **values: Any) -> None:
        defaults = {name: each.default for name, each in self.declared().items()}
        if unknown := values.keys() - defaults:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        vars(self).update(defaults | values)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def replaced(self, **changes: Any) -> Self:
        return type(self)(**(vars(self) | changes))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _declared(kind: type[Options]) -> Mapping[str, CommandOption]:
    settings = options_of(kind.of)
    hints = get_type_hints(kind, include_extras=True)
    options: dict[str, CommandOption] = {}
    for each in kind.__mro__:
        own = vars(each)
        for name in own.get("__annotations__", {}):
            if get_origin(hints[name]) is Annotated:
                options.setdefault(name, _own(name, hints[name], getattr(kind, name)))
        for field in vars(own["of"])["__annotations__"] if "of" in own else ():
            setting = settings.get(field)
            if setting and setting.option.panel and field not in kind.left_out:
                options.setdefault(setting.option.name or field, _of_setting(setting))
    return options


def _own(name: str, hint: Any, default: Any) -> CommandOption:
    info = copy(hint.__metadata__[0])
    if info.rich_help_panel is None and isinstance(info, OptionInfo):
        info.rich_help_panel = "Results"  # of the options that other commands have, too
    names = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
    flag = names[-1] if names else f"--{name.replace('_', '-')}"
    return CommandOption(info, hint.__origin__, default, flag, flag.removeprefix("--"))


def _of_setting(setting: Declared) -> CommandOption:
    about = setting.option
    flags = flags_of(setting)
    kind, default = _on_command_line(setting)
    info = option(
        *flags,
        default=about.default,
        help=about.help,
        metavar=about.metavar or None,
        rich_help_panel=about.panel,
    )
    flag = flags[0] if about.form else flags[-1]
    key = flags[-1].removeprefix("--")
    return CommandOption(info, kind, default, flag, key, setting.field, about.form)


def _on_command_line(setting: Declared) -> tuple[Any, Any]:
    """Return the type and the default of an option's value on the command line. The default is
    None or "" if there are words for it, so that help shows them."""
    kind, default, words = setting.type, setting.default, setting.option.default
    form = setting.option.form
    if get_origin(kind) is Sequence or (form and form.several):
        return list[str] | None, None
    if form is not None:
        return str, "" if words or default in (None, {}) else form.write(default)
    if get_origin(kind) is Literal or any(
        get_origin(each) is os.PathLike for each in get_args(kind)
    ):
        kind = str
    return (kind, default) if not words or kind is str else (kind | None, None)


class RunOptions(Options):
    of = RunSettings

    base_url: BaseUrl = None
    model: Model = ""
    name: Annotated[str, of_targets(metavar="NAME", help="Name of --base-url in reports.")] = ""
    api_key_env: ApiKeyEnv = ""
    api_format: ApiFormat = ""
    price: Annotated[
        list[str] | None,
        of_cost(
            metavar="[TARGET=]IN,OUT",
            help="US dollars per million tokens in and out, if unknown or different for you.",
        ),
    ] = None
    price_per_hour: Annotated[
        list[str] | None,
        of_cost(metavar="[TARGET=]USD", help="US dollars per hour of a rented machine."),
    ] = None
    owned: Annotated[
        list[str] | None,
        of_cost(
            metavar="[TARGET=]USD,YEARS,WATTS,USD/KWH",
            help="Your own machine: price, life, power, price of electricity. Or a known one: "
            "rtx-4090,YEARS,USD/KWH.",
        ),
    ] = None
    json: Json = ""
    html: Annotated[bool, of_results(help="Write report.html.")] = True

    @property
    def named_targets(self) -> list[str]:
        return [*map(option_values.full_address, vars(self).get("targets") or [])]

    @property
    def servers(self) -> list[Server]:
        urls = [*(self.base_url or []), *(each for each in self.named_targets if "://" in each)]
        return option_values.servers(urls, self.model, self.name, self.api_key_env, self.api_format)

    def settings(self, kind: type[Settings], **parsed: Any) -> Settings:
        """Return the settings: `parsed` ones, and those of the other options. Raises
        `CallerFault`."""
        values = {
            each.field: each.form.read(value, each.flag) if each.form else value
            for name, each in self.declared().items()
            if each.field and (value := getattr(self, name)) != each.default
        }
        values |= {
            "targets": [each for each in self.named_targets if "://" not in each],
            "policies": vars(self).get("policy") or [],
            "servers": self.servers,
            "prices": option_values.prices(
                self.price or [], self.price_per_hour or [], self.owned or []
            ),
        }
        return kind(**(values | parsed))

    def recorded(self, *, input_tokens: int | str | None = None, plan: str = "") -> Recorded:
        values = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(self).items()
        }
        values["input_tokens"] = input_tokens or self.input_tokens or 512
        if values.get("sessions"):  # which say how long their prompts are
            del values["input_tokens"]
        return Recorded(
            command=["splitsecond", *sys.argv[1:]],
            settings={
                name: value
                for name, value in values.items()
                if isinstance(value, str | int | float | list)
            },
            plan=plan,
        )


class TargetOptions(RunOptions):
    targets: TargetNames = None
    policy: Annotated[
        list[str] | None,
        of_targets(
            metavar="POLICY",
            help='A policy over targets, measured like a target: \'race("a/x", "b/x")\'.',
        ),
    ] = None


class RunOutputOptions(RunOptions):
    out: Annotated[
        Path | None, of_results(metavar="FOLDER", help="The run's folder.", default="runs/ID")
    ] = None
    verbose: Annotated[
        bool,
        of_results(
            "--verbose", help="Print all figures and findings, and the error of the instrument."
        ),
    ] = False
    png: Annotated[bool, of_results("--png", help="Also write the plots as PNG files.")] = False
    csv: Csv = ""
    markdown: Markdown = ""

    @property
    def output(self) -> Output:
        return Output(
            folder=self.out,
            json=self.json,
            html=self.html,
            png=self.png,
            csv=self.csv,
            markdown=self.markdown,
            verbose=self.verbose,
        )


class SessionOptions(RunOptions):
    of = SessionSettings

    no_waits: Annotated[
        bool, of_requests("--no-waits", help="With --sessions: leave tool times out.")
    ] = False

    def settings(self, kind: type[Settings], **parsed: Any) -> Settings:
        if self.no_waits and self.longest_wait:
            raise wrong("--longest-wait", self.longest_wait, "either it or --no-waits")
        if self.no_waits:
            parsed["longest_wait"] = 0.0
        return super().settings(kind, **parsed)


def with_options(
    kind: type[Chosen], first: Sequence[str] = ()
) -> Callable[[Callable[[Chosen], None]], Callable[..., None]]:
    """Make a command of a function that takes a `kind`.

    `first`: the options that `--help` shows, and `--help-all` has all; empty: `--help` shows all.
    Within a panel of help they come first, then the options of a subclass before those of its
    bases.
    """

    def decorate(function: Callable[[Chosen], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**values: Any) -> None:
            try:
                function(kind(**values))
            except CallerFault as fault:
                _name_flags(fault, kind.declared())
                raise

        def place(item: tuple[str, CommandOption]) -> tuple[int, int]:
            name, each = item
            at = first.index(name) if name in first else len(first)
            return PANELS.index(each.info.rich_help_panel or ""), at

        parameters = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=Annotated[each.kind, each.info],
            )
            for name, each in sorted(kind.declared().items(), key=place)
        ]
        command.first_options = first  # type: ignore[attr-defined] # what `help.Command` reads
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # what `inspect.signature` reads
        return command

    return decorate


def _name_flags(fault: CallerFault, options: Mapping[str, CommandOption]) -> None:
    """Name options as the command line does, in the message of a fault of settings."""
    if fault.kind != "bad_option":
        return
    by_field = {each.field or name: each for name, each in options.items()}
    if fault.param in by_field:
        flag = by_field[fault.param].flag
        fault.message = flag + fault.message.removeprefix(fault.param)
        fault.param = flag

    def flag_of(match: re.Match[str]) -> str:
        each = by_field.get(match[1])
        return match[0] if each is None else f"{each.flag} {each.info.metavar}"

    fault.message = re.sub("`([a-z_]+)`", flag_of, fault.message)
