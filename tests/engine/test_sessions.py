"""Sessions against llama.cpp's own prefix cache."""

from pathlib import Path

import msgspec
import pytest

from splitsecond import sync

pytestmark = pytest.mark.system

TURNS = [
    {"new_tokens": 300, "output_tokens": 8},
    *[{"new_tokens": 60, "output_tokens": 8, "wait_s": 0.01}] * 3,
]


def test_the_engine_finds_the_turn_before_in_its_cache(tmp_path: Path) -> None:
    (tmp_path / "sessions.jsonl").write_bytes(msgspec.json.encode({"turns": TURNS}))
    run = sync.bench(
        "engine/tiny",
        sessions=tmp_path / "sessions.jsonl",
        concurrency=1,
        requests=10,
        rounds=2,
        out=tmp_path / "run",
        progress=False,
    )
    compared = 0
    for o in run.observations:
        if o.role == "measured" and o.turn is not None and o.turn.reusable_tokens:
            assert o.cached_tokens == pytest.approx(o.turn.reusable_tokens, abs=40)
            assert o.input_tokens == pytest.approx(
                o.turn.new_tokens + o.turn.reusable_tokens, abs=40
            )
            compared += 1
    assert compared >= 5
