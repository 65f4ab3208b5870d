"""A quick simulated provider for tests of whole commands: its profile, and the provider in a
process of its own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from splitsecond.simulator.process import RunningProvider, run_simulator

QUICK = """
title = "Quick"
model = "quick"
source = "a test"
measured = "2025-06"
output_tokens = 20

[[table]]
concurrency = 1
ttft_ms = { p50 = 20, p95 = 22 }
tps = { p50 = 400, p95 = 380 }
"""
SHIPPED = r"\bsim/(groq|together|generalcompute|fireworks|steady-100)\b(?!\.toml)"


def with_quick_profiles(text: str, folder: Path) -> str:
    """Return `text` with profiles of `folder`, which are quick, in place of the shipped ones that
    it names as targets.

    Responses of the shipped ones take up to a second, and documents measure dozens of them.
    """
    for name in set(re.findall(SHIPPED, text)):
        (folder / f"{name}.toml").write_text(QUICK)
    return re.sub(SHIPPED, r"sim/\1.toml", text)


@pytest.fixture(scope="session")
def quick_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the profile."""
    path = tmp_path_factory.mktemp("profile") / "quick.toml"
    path.write_text(QUICK)
    return path


@pytest.fixture(scope="session")
def simulated(system: None, quick_profile: Path) -> Iterator[RunningProvider]:
    """The running provider."""
    with run_simulator(str(quick_profile)) as (found,):
        yield found
