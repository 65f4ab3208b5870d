"""One engine for all tests of this folder, with room for answers that are longer than any test
waits for."""

from collections.abc import Iterator

import pytest

from splitsecond.simulator.llama_cpp import EngineProcess


@pytest.fixture(scope="session")
def engine(system: None) -> Iterator[EngineProcess]:
    with EngineProcess(slots=8, context=16384) as engine:
        yield engine
