"""Whether there is a PostgreSQL server to keep a log in, and patience with the machine.

A machine without one leaves `in_postgres` out, except in CI, where a missing one must show.
"""

import os
from collections.abc import Iterator

import pytest
from tests.store.server import programs

from splitsecond.log.store import writer

collect_ignore = [] if programs() or "CI" in os.environ else ["in_postgres"]


@pytest.fixture(scope="session", autouse=True)
def _patience() -> Iterator[None]:
    """A disk that others keep busy may take seconds for what a log writes when it is closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "CLOSE_S", 60.0)
        yield
