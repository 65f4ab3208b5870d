"""Values that are converted without Pydantic are those that Typer's own converter returns."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from tests.cases import each_case

from splitsecond.cli.plain_values import PlainValues

app = typer.Typer()


@app.command()
def _take(
    text: str = "",
    count: Annotated[int | None, typer.Option(min=0, max=9)] = None,
    share: Annotated[float, typer.Option(min=0.5)] = 1,
    file: Path | None = None,
    there: Annotated[Path | None, typer.Option(exists=True)] = None,
    names: list[str] | None = None,
    sizes: list[int] | None = None,
) -> None: ...


COMMAND: Any = typer.main.get_command(app)
VALUES: dict[str, list[Any]] = {
    "text": ["", "a b", "ü", "-1"],
    "count": [None, 3, "3", "0", "9", "10", "-1", "3.0", "3.5", " 3", "03", "1_0", "a", "٣", True],
    "share": [1, "2", "0.5", "0.4", ".5", "1e3", "nan", "inf", "-1", "a"],
    "file": [None, "a/../b//c", ".", "-", Path("x"), "/no/such/file", "link"],
    "there": [None, ".", "nowhere"],
    "names": [None, [], ["a"], ("a", "b")],
    "sizes": [None, ["1", "2"], ["1", "b"]],
}


def _result(parameter: Any, value: Any) -> object:
    """Return what a parameter's converter makes of a value, with its type, or its message."""
    context = typer.Context(COMMAND)
    try:
        found = parameter.process_value(context, value)
    except typer.BadParameter as wrong:
        return wrong.format_message()
    return (type(found), repr(found))


@each_case("name, value", [(name, value) for name, values in VALUES.items() for value in values])
def test_a_value_is_the_one_of_typer(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("nowhere")
    (parameter,) = (each for each in COMMAND.params if each.name == name)
    parameter._runtime_param = None
    expected = _result(parameter, value)
    parameter._runtime_param = None
    PlainValues.use(parameter)
    assert _result(parameter, value) == expected
