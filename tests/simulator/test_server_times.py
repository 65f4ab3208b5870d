"""The provider's own timings: each form reports the truth, for a single response and for one that
had to wait."""

import asyncio
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from tests.cases import each_case
from tests.simulator.in_virtual_time import Client, Exchange

from splitsecond.core import clock
from splitsecond.core.pacing import Pacer, Timer
from splitsecond.core.wire import ollama, openai
from splitsecond.core.wire.api_format import TimesForm
from splitsecond.core.wire.rate_limits import processing_times
from splitsecond.simulator.profile import (
    EngineSpec,
    Profile,
    PromptCacheSpec,
    Quantiles,
    TableRow,
    TimingsForm,
)
from splitsecond.simulator.truth import TruthRecord
from splitsecond.testing.virtual_time import run_virtual

STEADY = Profile(
    name="p",
    title="t",
    model="m",
    output_tokens=11,
    table=(TableRow(concurrency=1, ttft_ms=Quantiles(100, 100), tps=Quantiles(100, 100)),),
)
ENGINE = EngineSpec(
    slots=1,
    prefill_tokens_per_s=1000,
    prefill_chunk_tokens=512,
    step_base_ms=10,
    step_per_sequence_ms=0,
)
ONE_AT_A_TIME = replace(STEADY, table=(), engine=ENGINE)
"""A prompt of 13 tokens takes 23 ms, the 10 tokens after the first one 100 ms."""
CHAT, OLLAMA = "/v1/chat/completions", "/api/chat"
in_each_form = pytest.mark.parametrize("form", get_args(TimesForm))
streamed_or_not = pytest.mark.parametrize("stream", [True, False])


def asked(
    profile: Profile, *, path: str = CHAT, fault: str = "", at_once: int = 1, **fields: Any
) -> list[Exchange]:
    return [
        exchange
        for exchange, _ in played(profile, path=path, fault=fault, at_once=at_once, **fields)
    ]


def played(
    profile: Profile, *, path: str = CHAT, fault: str = "", at_once: int = 1, **fields: Any
) -> list[tuple[Exchange, TruthRecord]]:
    """Return the exchanges of concurrent requests, in the order in which they were answered."""

    async def play() -> list[tuple[Exchange, TruthRecord]]:
        client = Client(profile)
        headers = {"x-splitsecond-fault": fault} if fault else {}
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(client.send(path=path, headers=headers, **fields))
                for _ in range(at_once)
            ]
        return list(zip([one.result() for one in asked], client.truth(), strict=True))

    return run_virtual(play())


def said(exchange: Exchange, path: str = CHAT) -> dict[str, float]:
    """What our decoder reads of it, in milliseconds."""
    decoder = (ollama if path == OLLAMA else openai).decoder("chat")
    decoder.feed(exchange.body, 0)
    decoder.close(0)
    units = {
        "_time": ("_time", 1000.0),
        "_ms": ("_ms", 1.0),
        "_duration": ("_duration", 1 / clock.NS_PER_MS),
    }
    found: dict[str, float] = {}
    for name, value in decoder.server_timings.items():
        ending, in_ms = next((units[end] for end in units if name.endswith(end)), ("", 0.0))
        if ending and "_per_" not in name:
            found[name.removesuffix(ending)] = round(value * in_ms, 3)
    return found


NAMES = {
    "groq": ("queue", "prompt", "completion"),
    "cerebras": ("queue", "prompt", "completion"),
    "llama.cpp": ("", "prompt", "predicted"),
}
"""What each form calls the wait, the work on the prompt, and the rest of the answer."""


@in_each_form
@streamed_or_not
@each_case("counts", [True, False])
def test_each_form_reports_prompt_and_output_time(
    form: TimesForm, stream: bool, counts: bool
) -> None:
    options: dict[str, Any] = (
        {"stream_options": {"include_usage": True}} if stream and counts else {}
    )
    (exchange,) = asked(replace(STEADY, server_timings=form), stream=stream, **options)
    times = said(exchange)
    _, prompt, output = NAMES[form]
    assert (times[prompt], times[output]) == (100, 100)
    if form != "llama.cpp":
        assert (times["queue"], times["total"]) == (0, 200)


@in_each_form
@streamed_or_not
def test_several_choices_report_the_times_once(form: TimesForm, stream: bool) -> None:
    (exchange,) = asked(replace(STEADY, server_timings=form), stream=stream, n=2)
    assert said(exchange)[NAMES[form][1]] == 100
    assert exchange.body.count(b'"prompt_time"') + exchange.body.count(b'"prompt_ms"') == 1
    assert exchange.body.count(b'"finish_reason":"stop"') == 2


@in_each_form
@streamed_or_not
def test_wait_for_a_slot_is_reported_separately(form: TimesForm, stream: bool) -> None:
    first, second = asked(replace(ONE_AT_A_TIME, server_timings=form), at_once=2, stream=stream)
    wait, prompt, output = NAMES[form]
    for exchange in (first, second):
        assert said(exchange)[prompt] == 23
        assert said(exchange)[output] == 100
    if wait:
        assert (said(first)[wait], said(second)[wait]) == (0, 123)


@streamed_or_not
def test_ollama_always_reports_its_times(stream: bool) -> None:
    first, second = asked(ONE_AT_A_TIME, path=OLLAMA, at_once=2, stream=stream)
    assert said(first, OLLAMA) == {"total": 123, "load": 0, "prompt_eval": 23, "eval": 100}
    assert said(second, OLLAMA) == {"total": 246, "load": 123, "prompt_eval": 23, "eval": 100}


@streamed_or_not
def test_groqs_counts_come_with_the_tier(stream: bool) -> None:
    """LiteLLM's client for Groq fails on a whole answer without it."""
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}
    (groq,) = asked(replace(STEADY, server_timings="groq"), stream=stream, **options)
    (other,) = asked(replace(STEADY, server_timings="cerebras"), stream=stream, **options)
    assert groq.body.count(b'"service_tier":"on_demand"') == 1
    assert b"service_tier" not in other.body


def test_reported_times_equal_the_truth() -> None:
    profile = replace(ONE_AT_A_TIME, server_timings="groq")
    for exchange, record in played(profile, at_once=3, stream=True):
        times = said(exchange)
        left = record.actual_ns
        spans = [record.began_ns - record.arrived_ns, left[0] - record.began_ns]
        spans += [left[-1] - left[0], left[-1] - record.arrived_ns]
        assert [
            times[name] for name in ("queue", "prompt", "completion", "total")
        ] == pytest.approx([span / clock.NS_PER_MS for span in spans], abs=0.001)


def test_no_request_begins_before_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a busy machine makes all timers late."""
    engine = replace(ENGINE, slots=2)
    on_time = Pacer.call_at

    def late(pacer: Pacer, due_ns: int, *call: Any) -> Timer:
        return on_time(pacer, due_ns + 30 * clock.NS_PER_MS, *call)

    async def play() -> list[TruthRecord]:
        client = Client(replace(STEADY, table=(), engine=engine))
        first = asyncio.create_task(client.send())
        await asyncio.sleep(0.03)  # the first step ended 7 ms ago, and its timer is not due
        await client.send()
        await first
        return client.truth()

    monkeypatch.setattr(Pacer, "call_at", late)
    records = run_virtual(play())
    assert len(records) == 2
    assert all(record.began_ns >= record.arrived_ns for record in records)


def test_a_stall_is_a_part_of_the_answers_time() -> None:
    (exchange,) = asked(
        replace(STEADY, server_timings="cerebras"), stream=True, fault="stall; after=3; seconds=2"
    )
    assert said(exchange)["completion"] == 2100


def test_llama_cpp_reports_cached_tokens() -> None:
    async def play() -> Any:
        client = Client(
            replace(
                STEADY,
                server_timings="llama.cpp",
                prompt_cache=PromptCacheSpec(from_tokens=4, block_tokens=4),
            )
        )
        messages = [{"role": "user", "content": "x" * 40}]
        await client.send(messages=messages)
        return (await client.send(messages=messages)).json["timings"]

    timings = run_virtual(play())
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (8, 13, 11)
    assert timings["predicted_per_second"] == pytest.approx(110)
    assert timings["prompt_per_token_ms"] == pytest.approx(timings["prompt_ms"] / 13)


def test_one_token_response_reports_speed_0() -> None:
    (exchange,) = asked(replace(STEADY, server_timings="llama.cpp"), max_tokens=1)
    assert exchange.json["timings"]["predicted_per_second"] == 0


@each_case(
    "stream, fault, ms", [(True, "", 0), (False, "", 200), (True, "slow_head; seconds=0.5", 500)]
)
@each_case("path", [CHAT, "/v1/responses"])
def test_openai_header_reports_the_time_to_the_headers(
    path: str, stream: bool, fault: str, ms: int
) -> None:
    (exchange,) = asked(
        replace(STEADY, server_timings="openai"),
        path=path,
        stream=stream,
        fault=fault,
        input="hello",
        max_tokens=11,
    )
    headers = {name.decode(): value.decode() for name, value in exchange.headers.items()}
    assert processing_times(headers) == {"processing_ms": ms}


@each_case("form", [*get_args(TimesForm), "openai", ""])
@each_case("path", [CHAT, "/v1/messages", "/v2/chat"])
def test_paths_without_a_field_for_times_report_none(form: TimingsForm, path: str) -> None:
    (exchange,) = asked(replace(STEADY, server_timings=form), path=path, max_tokens=11)
    if path != CHAT or form in ("openai", ""):
        assert not [word for word in (b"time", b"timing", b"x_groq") if word in exchange.body]
    assert (b"openai-processing-ms" in exchange.headers) == (form == "openai")
