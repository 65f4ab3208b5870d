"""`bench URL` without options: what a pilot decides for fast and slow servers."""

from typing import Any

import pytest
from tests.cases import each_case

from splitsecond.cli.commands.bench import BenchOptions
from splitsecond.cli.pilot import Pilot, decided, needs_pilot

URL = "http://127.0.0.1:8000/v1"


@each_case(
    ("asked", "wanted"),
    [
        ({"targets": [URL]}, True),
        ({"targets": ["mine=" + URL], "out": "runs/x", "max_cost": 1.0}, True),
        ({"base_url": [URL], "model": "m"}, True),
        ({"targets": [URL, URL + "/b"]}, False),
        ({"targets": [URL, "a/x"]}, False),
        ({"targets": ["groq/x"]}, False),
        ({"targets": [URL], "requests": 50}, False),
        ({"targets": [URL], "output_tokens": 512}, False),
        ({"targets": [URL], "use": "voice"}, False),
        ({"targets": [URL], "cache": "reuse"}, False),
    ],
)
def test_only_a_single_url_without_options_needs_a_pilot(
    asked: dict[str, Any], wanted: bool
) -> None:
    assert needs_pilot(BenchOptions(**asked)) == wanted


@pytest.mark.parametrize(
    ("pilot", "tokens", "prompt", "loads"),
    [
        (Pilot(ttft_s=0.05, token_s=0.002, crowding=1.2), 512, "512", "1,8"),
        (Pilot(ttft_s=0.05, token_s=0.011, crowding=1.4), 128, "512", "1,8"),
        (Pilot(ttft_s=0.9, token_s=0.08, crowding=7.5), 16, "512", "1,2"),
        (Pilot(ttft_s=9.0, token_s=0.5, crowding=7.9), 16, "128", "1,2"),
        (Pilot(ttft_s=0.3, token_s=0.0, crowding=1.0), 512, "512", "1,8"),
    ],
)
def test_lengths_and_loads_follow_the_speed(
    pilot: Pilot, tokens: int, prompt: str, loads: str
) -> None:
    options, words = decided(BenchOptions(targets=[URL]), pilot)
    assert (options.output_tokens, options.input_tokens, options.concurrency) == (
        tokens,
        prompt,
        loads,
    )
    assert options.duration == "80s"
    assert f"responses of {tokens} tokens" in words
