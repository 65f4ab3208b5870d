"""The pytest plugin: the fixture `splitsecond_simulator`, a simulated provider for the tests of
other programs.

pytest loads this module in every run, so it imports nothing but pytest until the fixture is used.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from splitsecond.simulator.process import RunningProvider

_INI = "splitsecond_profile"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = (
        "profile of the fixture splitsecond_simulator: a shipped one, a .toml file, or a "
        "recording (.jsonl)"
    )
    parser.addini(_INI, text, default="mock")


@pytest.fixture(scope="session")
def splitsecond_process(pytestconfig: pytest.Config) -> "Iterator[RunningProvider]":
    """Run the simulated provider in a process of its own, until the end of the session."""
    from splitsecond.simulator.process import run_simulator

    profile = str(pytestconfig.getini(_INI))
    if profile.endswith((".toml", ".jsonl")):
        profile = str(pytestconfig.rootpath / profile)
    with run_simulator(profile) as (provider,):
        yield provider


@pytest.fixture
def splitsecond_simulator(splitsecond_process: "RunningProvider") -> "RunningProvider":
    """A simulated LLM provider without requests and added replies: every API format at `base_url`
    or `origin`.

    `reply` and `fail` set what it answers, `requests` returns what it received.
    """
    splitsecond_process.reset()
    return splitsecond_process
