"""Sessions over real sockets: a run by the Python API against a simulated prompt cache."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.quick import QUICK

from splitsecond import sync
from splitsecond.benchmark.runs.settings import Server
from splitsecond.core.clock import NS_PER_MS
from splitsecond.simulator.process import run_simulator

pytestmark = pytest.mark.system

BLOCK = 16
CACHE = f"[prompt_cache]\nfrom_tokens = {BLOCK}\nblock_tokens = {BLOCK}\n"
SESSION = {
    "turns": [
        {"new_tokens": 2000, "output_tokens": 12},
        {"new_tokens": 80, "output_tokens": 12, "wait_s": 0.05},
        {
            "new_tokens": 120,
            "output_tokens": 12,
            "wait_s": 0.05,
            "agents": [{"turns": [{"new_tokens": 500, "output_tokens": 5}]}],
        },
        {"new_tokens": 60, "output_tokens": 12, "wait_s": 0.05, "keeps_tokens": 1500},
    ],
}


def test_a_run_of_sessions_finds_the_ideal_in_the_cache(tmp_path: Path) -> None:
    (tmp_path / "cached.toml").write_text(QUICK.replace("[[table]]", f"{CACHE}\n[[table]]"))
    (tmp_path / "sessions.jsonl").write_bytes(b"\n".join([msgspec.json.encode(SESSION)] * 3))
    with run_simulator(str(tmp_path / "cached.toml")) as (found,):
        server = Server(base_url=found.base_url, name="cached")
        run = sync.bench(
            server,
            sessions=tmp_path / "sessions.jsonl",
            concurrency=[1, 3],
            rounds=2,
            requests=24,
            out=tmp_path / "run",
            progress=False,
        )
    measured = [o for o in run.observations if o.role == "measured"]
    assert len(measured) == 48
    sessions = defaultdict(list)
    for o in sorted(run.observations, key=lambda o: o.start_ns):
        if o.turn is not None:
            sessions[o.turn.session, o.turn.branch].append(o)
            if o.ok and o.turn.new_tokens:
                assert o.input_tokens == pytest.approx(
                    o.turn.new_tokens + o.turn.reusable_tokens, abs=40
                )
                assert o.cached_tokens == pytest.approx(o.turn.reusable_tokens, abs=40)
    for own in sessions.values():
        for one, other in pairwise(own):
            assert one.turn is not None
            assert other.turn is not None
            assert other.turn.turn == one.turn.turn + 1
            assert (
                other.due_ns >= one.end_ns + other.turn.wait_ns - 20 * NS_PER_MS or one.turn.primes
            )
    asked = run.findings.asked
    assert asked["sessions"]["count"] == 3
    assert asked["sessions"]["distributions"]["turns"]["p50"] == 4
    text = (tmp_path / "run" / "run.json").read_text() + (
        tmp_path / "run" / "observations.jsonl"
    ).read_text()
    assert "very long and detailed story" not in text
