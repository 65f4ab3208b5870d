"""Simulated providers in a process of their own on loopback, as every test with an official client wants them."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from splitsecond.simulator.process import Running, running

QUICK = """
title = "Quick"
model = "quick-model"
output_tokens = 8
[[table]]
concurrency = 1
ttft_ms = { p50 = 20, p95 = 21 }
tps = { p50 = 500, p95 = 490 }
"""
THINKER = QUICK.replace("quick-model", "thinker") + "\n"
SAID = "A simulated provider says nothing of interest,"
WAIT_S = 20
PATIENCE = 1_000


class Providers(NamedTuple):
    """`quick` says eight words, or as many as it may; `thinker` ends by itself after two of thought and four more."""

    quick: Running
    thinker: Running


@contextmanager
def providers(folder: Path) -> Iterator[Providers]:
    """Both, as long as the context is open; `folder` is for their profiles."""
    profiles = {"quick.toml": QUICK, "thinker.toml": "reasoning_tokens = 2\nnatural_tokens = 6\n" + THINKER}
    for name, text in profiles.items():
        (folder / name).write_text(text)
    with running(*(str(folder / name) for name in profiles)) as found:
        yield Providers(*found)


def faulty(fault: str) -> dict[str, str]:
    """The header that asks for `fault`."""
    return {"x-splitsecond-fault": fault}


def records(of: Running, request_id: str) -> list[dict[str, Any]]:
    """What the provider knows of the request with that id."""
    with urllib.request.urlopen(f"{of.origin}/truth", timeout=WAIT_S) as answer:
        return [one for one in json.loads(answer.read()) if one["request_id"] == request_id]


def closed_early(of: Running, request_id: str, tokens: int) -> bool:
    """Whether the client of that request closed it before all its `tokens` were sent."""
    for _ in range(PATIENCE):  # the server learns of it as soon as the packet is through
        if found := records(of, request_id):
            return bool(found[0]["closed_by_client"]) and len(found[0]["actual_ns"]) < tokens
    return False
