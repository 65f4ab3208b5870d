"""The options of sessions: what is refused, and what they become."""

import pytest

from splitsecond.cli.commands.bench import BenchOptions
from splitsecond.cli.option_values import longest_wait, session_rate
from splitsecond.core.errors import CallerFault


def test_tool_time_is_limited_to_ten_seconds_by_default() -> None:
    assert (longest_wait("", False), longest_wait("2m", False), longest_wait("", True)) == (
        10.0,
        120.0,
        0.0,
    )
    with pytest.raises(CallerFault, match="--no-waits"):
        longest_wait("3s", True)


def test_a_rate_of_sessions_needs_sessions() -> None:
    assert session_rate("agent", "", "0.1,0.2") == "0.1,0.2"
    assert session_rate("", "5", "") == "5"
    with pytest.raises(CallerFault, match="--sessions"):
        session_rate("", "", "0.1")
    with pytest.raises(CallerFault, match="--session-rate"):
        session_rate("agent", "5", "")


def test_a_run_of_sessions_records_no_length_of_prompts() -> None:
    assert BenchOptions().recorded(input_tokens=512).settings["input_tokens"] == 512
    recorded = BenchOptions(sessions="agent").recorded(input_tokens=512).settings
    assert recorded["sessions"] == "agent"
    assert "input_tokens" not in recorded
