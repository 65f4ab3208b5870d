"""Lines of processes that tests start."""

import sys
from subprocess import PIPE

import pytest
from tests.processes import Process

pytestmark = pytest.mark.system


def test_lines_are_read_one_by_one_until_the_end() -> None:
    with Process[str](
        [sys.executable, "-c", "print('one'); print('two')"], stdout=PIPE, text=True
    ) as process:
        assert [process.read_line() for _ in range(3)] == ["one\n", "two\n", ""]


def test_a_line_that_does_not_come_fails_the_test() -> None:
    with (
        Process[bytes]([sys.executable, "-c", "input()"], stdin=PIPE, stdout=PIPE) as process,
        pytest.raises(AssertionError, match="no line within"),
    ):
        process.read_line(within_s=0.01)
