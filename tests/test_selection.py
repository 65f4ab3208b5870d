"""The two selections of tests: together they are the whole suite, and the fast one starts no
process."""

import asyncio
import re
import socket
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_make_runs_every_test_and_all_examples() -> None:
    commands = re.findall(
        r"^\t.*\$\(PYTEST\)(.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    assert [command.strip() for command in commands] == [
        "-m 'not system' --assert=plain || { $(BIN)/pytest -q -m 'not system' --last-failed "
        "--last-failed-no-failures=none; false; }",
        "-m 'hypothesis and not system'",
        "$(SEVERAL) -m system",
        "-m 'hypothesis and not system' --hypothesis-seed=$(SEED)",
    ]


def test_ci_runs_both_selections() -> None:
    run = (ROOT / ".ci/run").read_text("utf-8")
    assert re.search(r"^make test test-all$", run, re.MULTILINE)
    assert re.search(r"^timeout 90 make fuzz ", run, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^test-all: test examples system$", makefile, re.MULTILINE)


def test_a_fast_test_starts_no_process(refusals: list[str]) -> None:
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        subprocess.run(["true"])
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        asyncio.run(asyncio.create_subprocess_exec("true"))
    assert len(refusals) == 2
    refusals.clear()


def test_a_fast_test_connects_to_no_other_machine(refusals: list[str]) -> None:
    with (
        socket.socket() as other,
        pytest.raises(pytest.fail.Exception, match=r"connects to 192\.0\.2\.1"),
    ):
        other.connect(("192.0.2.1", 80))
    assert len(refusals) == 1
    refusals.clear()


@pytest.mark.system
def test_a_system_test_may_start_one() -> None:
    subprocess.run(["true"], check=True)


def test_a_test_without_the_fixture_has_no_marker(request: pytest.FixtureRequest) -> None:
    assert not request.node.get_closest_marker("system")


def test_a_test_with_the_fixture_has_the_marker(
    system: None, request: pytest.FixtureRequest
) -> None:
    assert request.node.get_closest_marker("system")
