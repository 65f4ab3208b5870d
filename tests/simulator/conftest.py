"""The simulated providers that the tests with official clients share, made once for each file of tests."""

from collections.abc import Iterator

import pytest
from tests.simulator.on_loopback import Providers, providers

from splitsecond.simulator.process import Running


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Providers]:
    with providers(tmp_path_factory.mktemp("profiles")) as found:
        yield found


@pytest.fixture(scope="module")
def quick(both: Providers) -> Running:
    return both.quick


@pytest.fixture(scope="module")
def thinker(both: Providers) -> Running:
    return both.thinker
