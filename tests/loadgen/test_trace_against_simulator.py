"""A trace against a simulated prompt cache: prompts share the recorded blocks, and nothing of
earlier runs."""

import json
from pathlib import Path

import pytest
from tests.quick import QUICK

from splitsecond import sync
from splitsecond.benchmark.runs.settings import Server
from splitsecond.benchmark.workload.traces import BLOCK_TOKENS
from splitsecond.simulator.process import run_simulator

pytestmark = pytest.mark.system

BLOCK = 16
CACHE = f"[prompt_cache]\nfrom_tokens = {BLOCK}\nblock_tokens = {BLOCK}\n"
SHARED = {(1, 2, 3): 0, (1, 2, 4): 2, (5,): 0, (1, 6): 1, (1, 2, 4, 7): 3}
"""Blocks of each prompt in turn, and how many of them an earlier prompt had."""


@pytest.mark.system
def test_a_prompt_cache_finds_the_shared_blocks(tmp_path: Path) -> None:
    (tmp_path / "cached.toml").write_text(QUICK.replace("[[table]]", f"{CACHE}\n[[table]]"))
    lines = [
        {
            "timestamp": 100 * at,
            "input_length": BLOCK_TOKENS * len(ids),
            "output_length": 2,
            "hash_ids": ids,
        }
        for at, ids in enumerate(SHARED)
    ]
    (tmp_path / "trace").write_text("\n".join(map(json.dumps, lines)))
    with run_simulator(str(tmp_path / "cached.toml")) as (found,):
        server = Server(base_url=found.base_url, name="cached")
        for number in range(2):  # the second run finds nothing of the first
            run = sync.bench(
                server, trace=tmp_path / "trace", out=tmp_path / str(number), progress=False
            )
            sent = [o for o in run.observations if o.role == "measured"]
            for o, (ids, shared) in zip(
                sorted(sent, key=lambda o: o.due_ns), SHARED.items(), strict=True
            ):
                assert o.input_tokens == pytest.approx(BLOCK_TOKENS * len(ids), rel=0.02)
                assert o.cached_tokens == pytest.approx(BLOCK_TOKENS * shared, abs=2 * BLOCK)
            (row,) = run.findings.conditions
            assert not any("although each was new" in note for note in row.notes)
