"""Simulated providers in a separate process on the loopback, for the tests with official
clients."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.waiting import until

from splitsecond.simulator.process import RunningProvider, run_simulator

QUICK = """
title = "Quick"
model = "quick-model"
output_tokens = 8
[[table]]
concurrency = 1
ttft_ms = { p50 = 20, p95 = 21 }
tps = { p50 = 500, p95 = 490 }
[[replies]]
prompt = "So?"
text = "A simulated provider says nothing of interest, and no more of it"
"""
SLOW = QUICK.replace("p50 = 500, p95 = 490", "p50 = 25, p95 = 24")
THINKER = QUICK.replace("quick-model", "thinker") + "\n"
SAID = "A simulated provider says nothing of interest,"
SAID_TO_SO = f"{SAID} and"
WAIT_S = 180


class Providers(NamedTuple):
    """`quick` sends eight words, or up to its limit; `thinker` ends by itself after two of
    reasoning and four more. All answer "So?" with plain words, whatever tools or structured output
    the request names.

    `slow` is like `quick`, with 40 ms between its words: its first word and a later fault are
    separate reads.
    """

    quick: RunningProvider
    thinker: RunningProvider
    slow: RunningProvider


@contextmanager
def providers(folder: Path) -> Iterator[Providers]:
    """Run all while the context is open; `folder` is for their profiles."""
    profiles = {
        "quick.toml": QUICK,
        "thinker.toml": "reasoning_tokens = 2\nnatural_tokens = 6\n" + THINKER,
    }
    profiles["slow.toml"] = SLOW
    for name, text in profiles.items():
        (folder / name).write_text(text)
    with run_simulator(*(str(folder / name) for name in profiles)) as found:
        yield Providers(*found)


def faulty(fault: str) -> dict[str, str]:
    """Return the header that selects `fault`."""
    return {"x-splitsecond-fault": fault}


def records(of: RunningProvider, request_id: str) -> list[dict[str, Any]]:
    """Return the provider's records of the request with this id."""
    with urllib.request.urlopen(f"{of.origin}/truth", timeout=WAIT_S) as answer:
        return [one for one in json.loads(answer.read()) if one["request_id"] == request_id]


def closed_early(of: RunningProvider, request_id: str, tokens: int) -> bool:
    """Return whether the client closed the request before all its `tokens` were sent."""
    found = until(lambda: records(of, request_id), "the server has no record of the request")
    return bool(found[0]["closed_by_client"]) and len(found[0]["actual_ns"]) < tokens
