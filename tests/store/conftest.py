"""Whether there is a PostgreSQL server to keep a log in, patience with the machine, and short
periods.

A machine without one leaves `in_postgres` out, except in CI, where a missing one must show.
"""

import os
from collections.abc import Iterator

import pytest
from tests.store.server import programs

from splitsecond.gateway.hub import process as hub
from splitsecond.log.store import writer

collect_ignore = [] if programs() or "CI" in os.environ else ["in_postgres"]


@pytest.fixture(scope="session", autouse=True)
def _patience() -> Iterator[None]:
    """A disk that others keep busy may take seconds for what a log writes when it is closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "CLOSE_S", 60.0)
        yield


@pytest.fixture(autouse=True)
def _short_periods() -> Iterator[None]:
    """Records gather, and what is settled is reported, more often: most tests of a log wait for
    it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "GATHER_S", 0.02)
        patch.setattr(hub, "TICK_S", 0.01)
        yield
