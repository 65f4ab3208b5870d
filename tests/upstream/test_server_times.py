"""What a provider says of its time and of its cache, beside ours, over sockets; both against the
simulator's truth."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.simulator.on_loopback import WAIT_S

from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.transport.client import Client
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.simulator.process import RunningProvider, run_simulator

ENGINE = """
title = "One at a time"
model = "FORM"
output_tokens = 6
server_timings = "FORM"
[engine]
slots = 1
prefill_tokens_per_s = 10000
prefill_chunk_tokens = 512
step_base_ms = 4
step_per_sequence_ms = 0
[prompt_cache]
from_tokens = 16
block_tokens = 16
"""
FORMS = ("groq", "cerebras", "llama.cpp", "openai")
IN_MS = {"_time": 1000.0, "_ms": 1.0, "_duration": 1 / clock.NS_PER_MS}
NAMES: dict[str, tuple[str, ...]] = {
    "groq": ("queue_time", "prompt_time", "completion_time", "total_time"),
    "cerebras": ("queue_time", "prompt_time", "completion_time", "total_time"),
    "llama.cpp": ("", "prompt_ms", "predicted_ms", ""),
    "ollama": ("load_duration", "prompt_eval_duration", "eval_duration", "total_duration"),
}
"""What each calls the wait, the work on the prompt, the rest of the answer, and all of it."""
EARLIER_MS = 1.0
"""So much earlier the kernel's stamp of an arrival may seem to be, which is of another clock."""


@pytest.fixture(scope="module")
def simulated(
    system: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, RunningProvider]]:
    folder: Path = tmp_path_factory.mktemp("profiles")
    for form in FORMS:
        (folder / f"{form}.toml").write_text(ENGINE.replace("FORM", form))
    with run_simulator(*(str(folder / f"{form}.toml") for form in FORMS)) as found:
        yield dict(zip(FORMS, found, strict=True))


def asked(
    of: RunningProvider, api_format: str, prompt: str, at_once: int, **quirks: Any
) -> list[Observation]:
    """What was observed of so many requests at once, in the order in which they were answered."""
    seen: list[Observation] = []

    async def play() -> None:
        base_url = of.origin if api_format == "ollama" else of.base_url
        spec = TargetSpec(
            name="sim", base_url=base_url, model=of.model, api_format=api_format, quirks=quirks
        )
        client = Client(proxies={})
        target = connect(spec, seen.append, environment={}, client=client)
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 6}

        async def ask(number: int) -> None:
            call = Call(id=str(number), body=body, start_ns=clock.now_ns(), stream=not quirks)
            async with await target(call) as reply:
                await reply.finished()

        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(at_once):
                    tasks.create_task(ask(number))
        finally:
            client.close()

    asyncio.run(play())
    return sorted(seen, key=lambda observation: observation.end_ns or 0)


def truth(of: RunningProvider) -> list[dict[str, Any]]:
    """The records so far, in the order in which they were answered; they are forgotten."""
    with urllib.request.urlopen(f"{of.origin}/truth", timeout=WAIT_S) as answer:
        found = json.loads(answer.read())
    with urllib.request.urlopen(
        urllib.request.Request(f"{of.origin}/truth", method="DELETE"), timeout=WAIT_S
    ):
        return sorted(found, key=lambda record: int(record["planned_ns"][-1]))


def in_ms(said: dict[str, float], name: str) -> float:
    return said[name] * next(factor for ending, factor in IN_MS.items() if name.endswith(ending))


@pytest.mark.parametrize("form", NAMES)
def test_server_times_equal_the_truth_and_ours_are_not_less(
    simulated: dict[str, RunningProvider], form: str
) -> None:
    of = simulated["openai" if form == "ollama" else form]
    truth(of)
    seen = asked(of, "ollama" if form == "ollama" else "openai", f"{form} is asked", 3)
    for observation, record in zip(seen, truth(of), strict=True):
        left = record["actual_ns"]
        spans = [
            record["began_ns"] - record["arrived_ns"],
            left[0] - record["began_ns"],
            left[-1] - left[0],
        ]
        spans.append(left[-1] - record["arrived_ns"])
        for name, span in zip(NAMES[form], spans, strict=True):
            if name:
                assert in_ms(observation.server_timings, name) == pytest.approx(
                    span / clock.NS_PER_MS
                )
        assert observation.ttft_ns is not None
        assert observation.e2e_ns is not None
        assert (
            observation.ttft_ns / clock.NS_PER_MS
            > (spans[0] + spans[1]) / clock.NS_PER_MS - EARLIER_MS
        )
        assert observation.e2e_ns / clock.NS_PER_MS > spans[3] / clock.NS_PER_MS - EARLIER_MS
    if form != "llama.cpp":
        waits = [in_ms(observation.server_timings, NAMES[form][0]) for observation in seen]
        assert waits[0] == 0 < waits[1] < waits[2], "one at a time"


def test_openai_processing_ms_lies_below_our_e2e(simulated: dict[str, RunningProvider]) -> None:
    of = simulated["openai"]
    truth(of)
    (streamed,) = asked(of, "openai", "a stream", 1)
    (whole,) = asked(of, "openai", "no stream", 1, stream_whole=False)
    _, record = truth(of)
    assert (
        streamed.server_timings["processing_ms"]
        < (streamed.e2e_ns or 0) / clock.NS_PER_MS + EARLIER_MS
    )
    took_ms = (record["planned_ns"][-1] - record["arrived_ns"]) // clock.NS_PER_MS
    assert (
        took_ms
        <= whole.server_timings["processing_ms"]
        <= (whole.e2e_ns or 0) / clock.NS_PER_MS + EARLIER_MS
    )


@pytest.mark.parametrize("api_format", ["openai", "responses", "anthropic"])
def test_cached_tokens_are_observed(simulated: dict[str, RunningProvider], api_format: str) -> None:
    of = simulated["openai"]
    truth(of)
    prompt = f"{api_format:16}" * 16
    first, second = (asked(of, api_format, prompt, 1)[0] for _ in range(2))
    records = truth(of)
    cached = [0, 0] if api_format == "anthropic" else [0, 64]
    assert (
        [one.cached_tokens for one in (first, second)]
        == cached
        == [record["cached_tokens"] for record in records]
    )
    assert [one.input_tokens for one in (first, second)] == [75, 75]
