"""Sessions of a trace in WEKA's form, replayed: their figures equal those that follow from the
simulator's records."""

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from benchmarks.replayed_sessions import compared, ideals, traced
from msgspec.structs import replace

from splitsecond.benchmark.workload.session_files import read_sessions
from splitsecond.simulator.profile import load

BLOCK = 64


def conversation(random: Random, count: int, blocks: int) -> list[dict[str, Any]]:
    """Return requests whose prompts grow; some keep only a part of the prompt before."""
    rows: list[dict[str, Any]] = []
    at = 0.0
    for number in range(count):
        kept = rows[-1]["blocks"] if rows else 0
        if number and random.random() < 0.1:
            kept = round(kept * random.random())
        blocks = max(kept + random.randint(1, 12), blocks if not rows else 0)
        rows.append(
            {
                "t": at,
                "type": "n",
                "in": blocks * BLOCK + random.randrange(BLOCK),
                "out": random.randint(5, 40),
                "api_time": 1.0,
                "think_time": round(random.uniform(0, 4), 1) if number else 0.0,
                "blocks": blocks,
                "shared_prefix_blocks": kept,
            }
        )
        at += 5
    return rows


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    random, lines = Random(7), []
    for number in range(12):
        rows = conversation(random, random.randint(4, 12), random.randint(10, 60))
        for agent in range(number % 3):
            inner = conversation(random, random.randint(1, 4), 8)
            row = {
                "t": 14.9,
                "type": "subagent",
                "agent_id": f"a{agent}",
                "duration_ms": 1000,
                "requests": inner,
            }
            rows.insert(3, row)
        record = {
            "id": f"s{number}",
            "block_size": BLOCK,
            "hash_id_scope": "local",
            "requests": rows,
        }
        lines.append(msgspec.json.encode(record))
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def test_ideals_are_the_shared_blocks_of_the_trace(trace: Path) -> None:
    recorded = traced(trace)
    assert ideals(read_sessions(trace)) == {
        name: [each.shared for each in turns.values()] for name, turns in recorded.items()
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("profile", ["agent-vllm-h100", "agent-cloud"])
def test_figures_equal_those_of_the_records(trace: Path, profile: str) -> None:
    """The prompt cache holds a third of the prompts, so some turns miss it."""
    served = load(profile)
    assert served.prompt_cache is not None
    cache = replace(
        served.prompt_cache, from_tokens=BLOCK, block_tokens=BLOCK, capacity_tokens=9_000
    )
    served = replace(served, prompt_cache=cache, replicas=None)
    true, seen = compared(trace, served, concurrency=6, requests=150, rounds=5)
    assert true["misses"] > 5
    assert seen == pytest.approx(true, rel=1e-4)
