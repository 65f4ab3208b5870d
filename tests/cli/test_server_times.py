"""`bench` shows what a provider says of its own time beside what we measured of it, and the two
agree."""

from pathlib import Path

import pytest
from tests.cli.conftest import Split
from tests.quick import QUICK

from splitsecond.simulator.process import run_simulator

pytestmark = pytest.mark.system

FEW = (
    "-c", 2, "-n", 6, "--input-tokens", 64, "--output-tokens", 20, "--no-html", "--json", "-",
    "--verbose",
)  # fmt: skip
GAPS = 19


@pytest.mark.parametrize(("form", "api_format"), [("groq", "openai"), ("", "ollama")])
def test_server_times_are_shown_beside_measured_ones(
    split: Split, tmp_path: Path, form: str, api_format: str
) -> None:
    (tmp_path / "says.toml").write_text(f'server_timings = "{form}"\n{QUICK}')
    with run_simulator(str(tmp_path / "says.toml")) as (simulated,):
        base_url = simulated.origin if api_format == "ollama" else simulated.base_url
        ended = split(
            "bench",
            "--base-url",
            base_url,
            "--model",
            simulated.model,
            "--api-format",
            api_format,
            *FEW,
        )
    assert ended.code == 0
    (row,) = ended.json["conditions"]
    said = row["server_ms"]
    wait, prompt, output = (
        ("queue", "prompt", "completion") if form else ("load", "prompt_eval", "eval")
    )
    assert said[wait] == 0
    assert said[prompt] > 17, "as the profile has it; a machine that is busy may take longer"
    assert said["total"] > 17 + GAPS / 425 * 1000
    assert said["total"] > said[output] > 0
    assert row["ttft_ms"]["p50"] > said[prompt] - 1
    assert row["e2e_ms"]["p50"] > said["total"] - 1
    assert "the server's own times, p50 in ms:" in ended.words
    assert f" {wait} 0, " in ended.words
