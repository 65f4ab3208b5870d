"""Tests with many cases in one: every case runs, and each failure names its case."""

import inspect
from pathlib import Path

import pytest
from tests.cases import each_case, sampled_cases


def test_all_combinations_run_and_failures_name_their_cases() -> None:
    seen: list[tuple[int, str, bool]] = []

    @each_case("number", [1, 2, 3])
    @each_case("text, flag", [("a", True), ("b", False)])
    def check(number: int, text: str, flag: bool, capsys: object) -> None:
        seen.append((number, text, flag))
        assert (number, text) not in ((1, "b"), (3, "a"))

    assert list(inspect.signature(check).parameters) == ["capsys"]
    with pytest.raises(BaseExceptionGroup, match="2 of 6 cases failed") as caught:
        check(capsys=None)
    assert seen == [(number, *row) for number in (1, 2, 3) for row in (("a", True), ("b", False))]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["in the case number=1, text='b', flag=False"],
        ["in the case number=3, text='a', flag=True"],
    ]


def test_a_missing_exception_fails_its_case() -> None:
    @each_case("exception", [ValueError, KeyError], ids=["value", "key"])
    def check(exception: type[Exception]) -> None:
        with pytest.raises(exception):
            raise ValueError

    with pytest.raises(BaseExceptionGroup) as caught:
        check()
    assert [error.__notes__ for error in caught.value.exceptions] == [["in the case key"]]


def test_both_parts_of_sampled_cases_make_the_whole() -> None:
    seen: list[tuple[int, int]] = []

    @sampled_cases(5)
    @each_case("column", range(10))
    @each_case("row", range(10))
    def check(row: int, column: int) -> None:
        seen.append((row, column))

    assert list(inspect.signature(check).parameters) == ["part"]
    check(part="fast")
    assert len(seen) == 20
    assert {row for row, _ in seen} == {column for _, column in seen} == set(range(10))
    check(part="rest")
    assert sorted(seen) == [(row, column) for row in range(10) for column in range(10)]


def test_marked_values_run_in_the_part_of_system_tests(tmp_path: Path) -> None:
    seen: list[tuple[int, Path]] = []

    @each_case("number", [1, pytest.param(2, marks=pytest.mark.system), 3])
    @pytest.mark.usefixtures("capsys")
    @each_case("letter", ["a", pytest.param("b", marks=pytest.mark.system)])
    def check(number: int, letter: str, tmp_path: Path) -> None:
        seen.append((number, tmp_path))

    assert [mark.name for mark in vars(check)["pytestmark"]] == ["usefixtures", "parametrize"]
    check(part="fast", tmp_path=tmp_path)
    assert seen == [(1, tmp_path / "0"), (3, tmp_path / "1")]
    seen.clear()
    (rest := tmp_path / "rest").mkdir()
    check(part="rest", tmp_path=rest)
    assert [number for number, _ in seen] == [1, 2, 2, 3]
