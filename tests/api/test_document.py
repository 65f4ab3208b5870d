"""The code of docs/python.md and README runs, in one namespace, like the cells of a notebook.

Its simulated providers are replaced by quicker ones, and the benchmark of README is shorter.
Nothing else is changed.
"""

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.quick import with_quick_profiles

from splitsecond.routing.construction.user_policies import REGISTERED

pytestmark = pytest.mark.system

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"


async def run_cells(cells: list[str]) -> dict[str, Any]:
    """Run each cell as a notebook does, with `await` at the top level. Return the names that they
    defined."""
    names: dict[str, Any] = {"__name__": "cells"}
    for cell in cells:
        code = compile(cell, str(DOCUMENT), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result
    return names


@pytest.mark.system
def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = with_quick_profiles(DOCUMENT.read_text("utf-8"), tmp_path)
    cells = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(cells) == 14
    try:
        names = asyncio.run(run_cells(cells))
    finally:
        REGISTERED.pop("small_first", None)
    assert names["page"].read_text().startswith("<!doctype html>")
    assert (names["done"].result.answered, len(list(names["done"].responses()))) == (20, 20)
    assert len(names["frame"]) == 2 * 2 * 8
    assert names["found"].capacity.holds is not None
    assert len(list(tmp_path.glob("runs/*/run.json"))) == 4
    assert len(list(tmp_path.glob("watch/*/run.json"))) == 1
    assert names["imported"].data["result"]["written"] == 1
    assert names["speeds"].data["speeds"][0]["name"] == "groq/m"


@pytest.mark.system
def test_the_code_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = with_quick_profiles((DOCUMENT.parents[1] / "README.md").read_text("utf-8"), tmp_path)
    cells = re.findall(
        r"```python\n(.*?)```",
        text.replace("requests=50", "requests=5, output_tokens=16"),
        re.DOTALL,
    )
    names = asyncio.run(run_cells(cells))
    assert len(names["run"]) == 4
    assert re.search(r"\n.*says.* \d+(\.\d+)?\n$", capsys.readouterr().out)
