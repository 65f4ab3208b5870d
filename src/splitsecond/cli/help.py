"""The classes of commands with our form of help.

Typer shows the Python type of each value, doubles the brackets of arguments in the usage line, and
breaks long examples anywhere. Here a value has the name of its declaration (`metavar`), and an
example that is longer than a line continues after a backslash, so that it can be copied.
"""

import re
from collections.abc import Sequence
from types import MethodType
from typing import Any

from typer.core import TyperCommand, TyperGroup

from splitsecond.cli.plain_values import PlainValues

WORDS = re.compile(r"""(?:-\S+ (?!-))?(?:'[^']*'|"[^"]*"|\S)+""")
"""A word of a shell command with its quotes, or an option with its value."""
MARGIN = 2
HELP_ALL = "--help-all"


class Group(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments. `--dialect` is an older name of `--api-format`."""
        return super().parse_args(
            ctx, [re.sub(r"^--dialect(?==|$)", "--api-format", each) for each in args]
        )

    def get_params(self, ctx: Any) -> list[Any]:
        return [_ours(each) for each in super().get_params(ctx)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _console()
        super().format_help(ctx, formatter)


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return [_ours(each) for each in super().get_params(ctx)]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line. An optional argument is in brackets, its own or added
        ones."""
        names = [
            each.metavar if each.required or each.metavar.startswith("[") else f"[{each.metavar}]"
            for each in self.params
            if each.param_type_name == "argument" and each.metavar
        ]
        return ["[OPTIONS]", *names]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments. `--help-all` shows all options of a command whose `--help` shows the
        first ones."""
        if self._first and HELP_ALL in args:
            ctx.obj, args = HELP_ALL, ["--help"]
        return super().parse_args(ctx, args)

    @property
    def _first(self) -> Sequence[str]:
        first: Sequence[str] = getattr(self.callback, "first_options", ())
        return first

    def format_help(self, ctx: Any, formatter: Any) -> None:
        text, epilog, width = self.help or "", self.epilog, _console().width - MARGIN
        self.help = "\n\n".join(_folded(each, width) for each in text.split("\n\n"))
        options: list[Any] = [each for each in self.params if each.param_type_name == "option"]
        others = [each for each in options if each.name not in self._first]
        hidden = [
            each for each in others if self._first and ctx.obj != HELP_ALL and not each.hidden
        ]
        for each in hidden:
            each.hidden = True
        if hidden:
            self.epilog = f"{len(hidden)} more options, by group: --help-all"
        try:
            super().format_help(ctx, formatter)
        finally:
            self.help, self.epilog = text, epilog
            for each in hidden:
                each.hidden = False


def _console() -> Any:
    """Return a console like that on which Typer prints help, which is of our class from now on."""
    from typer import rich_utils

    from splitsecond.cli.console import Console

    rich_utils.Console = Console  # type: ignore[attr-defined]
    return Console()


def _ours(parameter: Any) -> Any:
    PlainValues.use(parameter)
    parameter.display_type_rich = MethodType(_name_of_value, parameter)
    return parameter


def _name_of_value(parameter: Any, ctx: object) -> str | None:
    is_option = parameter.param_type_name == "option" and not parameter.is_flag
    return parameter.metavar if is_option else None


def _folded(paragraph: str, width: int) -> str:
    if not paragraph.startswith("\b\n"):
        return paragraph
    return "\n".join(
        _folded_line(each, width) for each in paragraph.removeprefix("\b\n").splitlines()
    )


def _folded_line(command: str, width: int) -> str:
    first, *others = WORDS.findall(command)
    lines = [first]
    for each in others:
        if len(f"{lines[-1]} {each} \\") > width:
            lines.append(f"  {each}")
        else:
            lines[-1] += f" {each}"
    return " \\\n".join(lines)
