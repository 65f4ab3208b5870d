"""The simulated providers that the tests with official clients share, made once for each file of
tests."""

from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest
from tests.simulator.on_loopback import Providers, providers

from splitsecond.simulator.process import RunningProvider


@pytest.fixture(scope="module")
def both(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Providers]:
    with providers(tmp_path_factory.mktemp("profiles")) as found:
        yield found


@pytest.fixture(scope="module")
def quick(both: Providers) -> RunningProvider:
    return both.quick


@pytest.fixture(scope="module")
def thinker(both: Providers) -> RunningProvider:
    return both.thinker


@pytest.fixture(scope="session")
def plugin_options() -> list[str]:
    """The options that load our plugin in a pytest run of its own, unless the installed package
    does that."""
    installed = entry_points(group="pytest11", name="splitsecond")
    return [] if installed else ["-p", "splitsecond.testing.pytest_plugin"]
