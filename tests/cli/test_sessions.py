"""The options of sessions: what is refused, and what they become."""

import pytest

from splitsecond.benchmark.runs.settings import BenchSettings
from splitsecond.cli.commands.bench import BenchOptions
from splitsecond.core.errors import CallerFault


def test_tool_time_is_limited_to_ten_seconds_by_default() -> None:
    limits = [
        BenchOptions(sessions="agent", **options).settings(BenchSettings).longest_wait
        for options in ({}, {"longest_wait": "2m"}, {"no_waits": True})
    ]
    assert limits == [10.0, 120.0, 0.0]
    with pytest.raises(CallerFault, match="--no-waits"):
        BenchOptions(longest_wait="3s", no_waits=True).settings(BenchSettings)


def test_a_rate_of_sessions_needs_sessions() -> None:
    def rates(**options: str) -> list[float | None]:
        settings = BenchOptions(**options).settings(BenchSettings)
        settings.check()
        return [load.rate for load in settings.loads]

    assert rates(sessions="agent", session_rate="0.1,0.2") == [0.1, 0.2]
    assert rates(rate="5") == [5]
    with pytest.raises(CallerFault, match="sessions"):
        rates(session_rate="0.1")
    with pytest.raises(CallerFault, match="session_rate"):
        rates(sessions="agent", rate="5")


def test_a_run_of_sessions_records_no_length_of_prompts() -> None:
    assert BenchOptions().recorded(input_tokens=512).settings["input_tokens"] == 512
    recorded = BenchOptions(sessions="agent").recorded(input_tokens=512).settings
    assert recorded["sessions"] == "agent"
    assert "input_tokens" not in recorded
