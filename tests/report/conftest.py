"""Runs that the tests of reports share, and the check for a browser.

A machine without a browser skips `in_chromium`, except in CI, where a missing browser must fail.
"""

import os
from collections.abc import Sequence

import pytest
from tests.report.browser import browser
from tests.report.invented import invented_run

from splitsecond.benchmark.rows.records import Run
from splitsecond.core.observation import Observation

collect_ignore = [] if browser() or "CI" in os.environ else ["in_chromium"]


@pytest.fixture(scope="session")
def invented() -> tuple[Run, Sequence[Observation]]:
    """Five targets at three concurrencies; one row is INVALID, one has errors. Tests must not
    change it."""
    return invented_run(in_rounds=True)


@pytest.fixture(scope="session")
def nothing_succeeded() -> tuple[Run, Sequence[Observation]]:
    """Two targets for which every request failed."""
    return invented_run(PROVIDERS_THAT_FAIL, concurrencies=(1,), requests=3, failing=True)


PROVIDERS_THAT_FAIL = ("groq/llama-3.1-70b-versatile", "replicate/meta-llama-3-70b")
