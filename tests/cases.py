"""Tests of many quick cases: each test of its own takes pytest about 9 ms, for its collection,
fixtures and reports."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

Test = Callable[..., None]


class Case(Struct):
    """The values of some parameters. `is_system`: whether its tests are `system` tests. `id`: a
    short name instead of the values."""

    arguments: dict[str, Any]
    is_system: bool
    id: str = ""

    @property
    def name(self) -> str:
        return self.id or ", ".join(f"{key}={each!r:.200}" for key, each in self.arguments.items())


def each_case(
    names: str | Sequence[str],
    values: Iterable[Any],
    ids: Iterable[str] | Callable[[Any], str] | None = None,
) -> Callable[[Test], Test]:
    """Run a test for each of `values`, as `pytest.mark.parametrize` does, but as one test for
    pytest.

    Several such decorators run every combination. All cases run. The test fails with the failures
    of all cases, each with the name of its case. The cases share the fixtures of the test, but each
    has its own folder as `tmp_path`. Values with the marker `system` run in a second test, which
    has this marker.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = list(values)
    cases = [_case(keys, value) for value in values]
    if ids is not None:
        for case, name in zip(cases, map(ids, values) if callable(ids) else ids, strict=True):
            case.id = name

    def decorate(test: Test) -> Test:
        return _run_each(test, [cases, *getattr(test, "axes", [])])

    return decorate


def sampled_cases(one_in: int) -> Callable[[Test], Test]:
    """Run one in so many cases of a test with `each_case` as a fast test, and the others as a
    `system` test.

    The fast ones are spread evenly over each parameter.
    """
    return lambda test: _run_each(test, getattr(test, "axes"), one_in)  # noqa: B009 - functions have no such attribute


def _case(keys: list[str], value: Any) -> Case:
    """Return one of the values of `each_case`, which are those of `pytest.mark.parametrize`."""
    marks = value.marks if hasattr(value, "marks") else ()
    assert all(mark.name == "system" for mark in marks)
    row = value.values if hasattr(value, "marks") else tuple(value) if len(keys) > 1 else (value,)
    return Case(dict(zip(keys, row, strict=True)), bool(marks))


def _run_each(test: Test, axes: list[list[Case]], one_in: int = 1) -> Test:
    """Return the test of all cases. It has a parameter, "fast" or "rest", if some of them are
    `system` tests."""
    one_case: Test = getattr(test, "one_case", test)

    @functools.wraps(one_case)
    def every_case(*self: object, part: str = "", **fixtures: Any) -> None:
        all_cases = _combinations(axes, one_in)
        cases = [
            combination
            for combination, fast in all_cases
            if part in ("", "fast" if fast else "rest")
        ]
        failures: list[BaseException] = []
        for number, combination in enumerate(cases):
            arguments = {
                key: value for case in combination for key, value in case.arguments.items()
            }
            try:
                one_case(*self, **arguments, **_own(fixtures, number))
            except (Exception, pytest.fail.Exception) as error:
                error.add_note("in the case " + ", ".join(case.name for case in combination))
                failures.append(error)
        if failures:
            raise BaseExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)

    has_parts = one_in > 1 or any(case.is_system for cases in axes for case in cases)
    signature = inspect.signature(one_case)
    keys = {key for cases in axes for key in cases[0].arguments}
    parameters = [each for name, each in signature.parameters.items() if name not in keys]
    if has_parts:
        parameters.append(inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY))
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.args[:1] != ("part",)]
    vars(every_case).update(
        one_case=one_case,
        axes=axes,
        pytestmark=marks,
        __signature__=signature.replace(parameters=parameters),
    )
    parts = ["fast", pytest.param("rest", marks=pytest.mark.system)]
    return pytest.mark.parametrize("part", parts)(every_case) if has_parts else every_case


def _combinations(axes: list[list[Case]], one_in: int) -> Iterator[tuple[tuple[Case, ...], bool]]:
    """Yield every combination, and whether it is a fast test."""
    for indexes in itertools.product(*(range(len(cases)) for cases in axes)):
        combination = tuple(cases[index] for cases, index in zip(axes, indexes, strict=True))
        yield (
            combination,
            sum(indexes) % one_in == 0 and not any(case.is_system for case in combination),
        )


def _own(fixtures: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the fixtures of one case."""
    if "tmp_path" not in fixtures:
        return fixtures
    folder: Path = fixtures["tmp_path"] / str(number)
    folder.mkdir()
    return fixtures | {"tmp_path": folder}
