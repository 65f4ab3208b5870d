"""Runs that the tests of reports share, and whether there is a browser to look at them with.

A machine without a browser leaves `in_chromium` out, except in CI, where a missing one must show.
"""

import os
from collections.abc import Sequence

import pytest
from tests.report.browser import browser
from tests.report.invented import invented_run

from splitsecond.analysis.findings import Run
from splitsecond.timing.observation import Observation

collect_ignore = [] if browser() or "CI" in os.environ else ["in_chromium"]


@pytest.fixture(scope="session")
def invented() -> tuple[Run, Sequence[Observation]]:
    """Five targets at three concurrencies, one row INVALID, one with errors. Not to be changed by a test."""
    return invented_run()


@pytest.fixture(scope="session")
def nothing_succeeded() -> tuple[Run, Sequence[Observation]]:
    """Two targets of which every request failed."""
    return invented_run(PROVIDERS_THAT_FAIL, concurrencies=(1,), requests=3, failing=True)


PROVIDERS_THAT_FAIL = ("groq/llama-3.1-70b-versatile", "replicate/meta-llama-3-70b")
