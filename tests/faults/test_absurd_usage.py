"""Providers that report absurd token counts: every answer arrives, and the client is charged our
own estimate."""

import itertools
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case, sampled_cases
from tests.faults.test_strange_bytes import Says
from tests.faults.world import CLIENT_KEY, World, play
from tests.gateway.limits import conservative_input_tokens
from tests.gateway.visitor import Visitor, visits
from tests.wire.counted_answers import BODIES, INPUT, OUTPUT

from splitsecond.core.service import Call
from splitsecond.core.serving.request_cycle import RequestCycle

ABSURD = [
    b"1000000000000000",
    b"-1",
    b"12.5",
    b'"a dozen"',
    b"true",
    b"{}",
    b"1" + b"0" * 400,
    b"1e400",
]
MESSAGES = [{"role": "user", "content": "hi"}]
ESTIMATED_INPUT = conservative_input_tokens(Call(id="c", body={"messages": MESSAGES}))
MAX_INPUT = 10 * ESTIMATED_INPUT
"""A generous bound of the estimate: other API formats have a few more bytes."""

CHAT = {"model": "fast", "messages": MESSAGES}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
CLIENTS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "openai": ("/v1/chat/completions", "/v1/chat/completions", CHAT),
    "anthropic": ("/v1/messages", "/v1/messages", {**CHAT, "max_tokens": 50}),
    "responses": (
        "/v1/responses",
        "/v1/responses",
        {"model": "fast", "input": "hi", "store": False},
    ),
    "gemini": (
        "/v1beta/models/fast:generateContent",
        "/v1beta/models/fast:streamGenerateContent",
        CONTENTS,
    ),
    "ollama": ("/api/chat", "/api/chat", CHAT),
}
"""The API formats of clients: the path of a whole answer, that of a stream, and a request."""
TARGETS = ["openai", "anthropic", "responses", "gemini", "ollama", "cohere"]


def served_as(api_format: str, usd_per_day: float = 5, price: float = 1) -> Any:
    """Return the edit of a configuration with target "a" in this format, and a limit of the
    client's key."""

    def edit(text: str) -> str:
        text = text.replace(
            "key: env:CLIENT_KEY}", f"key: env:CLIENT_KEY, usd_per_day: {usd_per_day}}}"
        )
        text = text.replace(
            "{input_usd: 1, output_usd: 1}", f"{{input_usd: {price}, output_usd: {price}}}"
        )
        return text.replace("api_key: env:KEY_A,", f"api_key: env:KEY_A, api_format: {api_format},")

    return edit


def says(api_format: str, kind: str, odd: bytes, number: int = OUTPUT) -> Says:
    """Return a provider whose answers have `odd` in the place of one of their counts, and 1 in that
    of the other."""
    body = BODIES[f"{api_format}-{kind}"].replace(str(number).encode(), odd)
    body = body.replace(str(INPUT + OUTPUT - number).encode(), b"1")
    streamed = b"application/x-ndjson" if api_format == "ollama" else b"text/event-stream"
    return Says([body], streamed if kind == "stream" else b"application/json", ends=True)


async def ask(world: World, client: str = "openai", *, stream: bool) -> Visitor:
    whole_path, stream_path, body = CLIENTS[client]
    fields = body if client == "gemini" else {**body, "stream": stream}
    headers = {"authorization": f"Bearer {CLIENT_KEY}"}
    return await visits(world.worker.gateway).asks(
        fields, path=stream_path if stream else whole_path, headers=headers
    )


def logged(folder: Path) -> list[tuple[Any, ...]]:
    columns = "input_tokens, output_tokens, cached_tokens, reasoning_tokens, token_source"
    with sqlite3.connect(folder / "log.db") as database:
        return database.execute(f"SELECT {columns} FROM attempts").fetchall()


class SaysInTurn:
    """A provider that answers as the next of its `answers` does."""

    def __init__(self, answers: Iterable[Says]) -> None:
        self._answers = iter(answers)

    async def __call__(self, cycle: RequestCycle) -> None:
        await next(self._answers)(cycle)


@sampled_cases(3)
@each_case("target", TARGETS)
@each_case("client", CLIENTS)
def test_every_format_delivers_and_charges_the_estimate(
    client: str, target: str, tmp_path: Path
) -> None:
    cases = list(
        itertools.product(
            (False, True), ("stream", "whole"), ((INPUT, ABSURD[0]), (OUTPUT, ABSURD[-1]))
        )
    )
    provider = SaysInTurn(says(target, kind, odd, number) for _, kind, (number, odd) in cases)
    answers: list[Visitor] = []

    async def story(world: World) -> None:
        limits = world.worker._limits
        for stream, _, _ in cases:
            before_usd = limits.spent_usd("web")
            answers.append(await ask(world, client, stream=stream))
            await world.settled()
            assert 0 < limits.spent_usd("web") - before_usd <= (MAX_INPUT + 1) * 1e-6
            assert limits.reserved_usd("web") == 0

    play('"a/m"', tmp_path, story, a=provider, edit=served_as(target))
    for answer, (stream, _, (_, odd)) in zip(answers, cases, strict=True):
        assert (answer.status, b"Yes" in answer.body) == (200, True), answer.body
        assert b'"error":{' not in answer.body
        if not stream:
            assert answer.headers["x-splitsecond-estimated"] == "usage"
            assert b":-" not in answer.body
            assert odd not in answer.body
    attempts = logged(tmp_path)
    assert len(attempts) == len(cases)
    for input_tokens, output_tokens, cached, reasoning, source in attempts:
        assert 0 < input_tokens <= MAX_INPUT
        assert (output_tokens, cached or 0, reasoning or 0, source) == (1, 0, 0, "estimate")


@sampled_cases(4)
@each_case("odd", ABSURD)
@each_case("kind", ["stream", "whole"])
@each_case("stream", [False, True])
def test_absurd_usage_is_charged_as_estimated(
    stream: bool, kind: str, odd: bytes, tmp_path: Path
) -> None:
    """A token costs 5 cents here, so that a few calls use up 5 USD."""
    statuses: list[int] = []

    async def story(world: World) -> None:
        for _ in range(30):
            statuses.append((await ask(world, stream=stream)).status)
            await world.settled()
        spent_usd = world.worker._limits.spent_usd("web")
        estimate_usd = statuses.count(200) * (ESTIMATED_INPUT + 1) * 0.05
        assert spent_usd == pytest.approx(estimate_usd)
        assert spent_usd < 5 + (MAX_INPUT + 1) * 0.05

    play(
        '"a/m"',
        tmp_path,
        story,
        a=says("openai", kind, odd),
        edit=served_as("openai", price=50_000),
    )
    admitted = statuses.count(200)
    assert 1 < admitted < 30
    assert statuses == [200] * admitted + [429] * (30 - admitted)


def test_a_possible_report_is_charged_as_it_is(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        answer = await ask(world, stream=False)
        assert json.loads(answer.body)["usage"]["completion_tokens"] == 12
        assert "x-splitsecond-estimated" not in answer.headers
        await world.settled()
        assert world.worker._limits.spent_usd("web") == pytest.approx(13e-6)

    play('"a/m"', tmp_path, story, a=says("openai", "whole", b"12"), edit=served_as("openai"))
    assert logged(tmp_path) == [(1, 12, None, None, "usage")]
