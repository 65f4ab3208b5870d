"""Targets of another API format than their call: their requests, and the bytes of their answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case
from tests.upstream.scripted_client import ScriptedClient, ScriptedExchange

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.events import Broken, Done, Event, Finish, Token
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Notes, Spoken
from splitsecond.core.transport.exchange import Request
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.attempt import Attempt
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import API_FORMATS, connect
from splitsecond.core.wire import anthropic, cohere, openai, responses
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.client_format import CLIENT_FORMATS
from splitsecond.core.wire.translation import MAX_MESSAGES
from splitsecond.testing.virtual_time import run_virtual

GEMINI_WORD = b'data: {"candidates":[{"content":{"parts":[{"text":"one"}]},"index":0}]}\r\n\r\n'
GEMINI_END = (
    b'data: {"candidates":[{"content":{"parts":[]},"finishReason":"STOP","index":0}]}\r\n\r\n'
)
GEMINI_IMAGE = (
    b"data: "
    b'{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]},'
    b'"index":0}]}\r\n\r\n'
)
CLIENTS: dict[Spoken, Any] = {"openai": openai, "anthropic": anthropic, "responses": responses}
BODIES: dict[Spoken, dict[str, Any]] = {
    "openai": {"messages": [{"role": "user", "content": "hi"}]},
    "anthropic": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    "responses": {"input": "hi"},
}
Act = Callable[["asyncio.Task[Attempt]", ScriptedExchange], Awaitable[None]]


def play(
    act: Act,
    client: Spoken,
    api_format: str = "gemini",
    *,
    watched: bool = False,
    raw: bool = True,
    **asked: Any,
) -> tuple[Request, list[Observation]]:
    seen: list[Observation] = []
    headers = asked.pop("headers", {})
    quirks = asked.pop("quirks", {})
    call = Call(
        id="c", body=BODIES[client], api_format=client, start_ns=clock.now_ns(), watched=watched
    )
    for name, value in asked.items():
        call = Call(
            **{**{each: getattr(call, each) for each in call.__struct_fields__}, name: value}
        )
    scripted = ScriptedClient()

    async def main() -> None:
        spec = TargetSpec(
            name="x/m",
            base_url="http://x.test/v1",
            model="m",
            api_format=api_format,
            headers=headers,
            quirks=quirks,
        )
        target = connect(spec, seen.append, environment={}, client=scripted.as_client(), raw=raw)
        calling = asyncio.get_running_loop().create_task(target(call))
        exchange = await scripted.exchange()
        exchange.head()
        await act(calling, exchange)

    run_virtual(main())
    ((_, request),) = scripted.sent
    return request, seen


def test_a_required_call_at_ollama_is_a_call_for_the_client() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(b'{"message":{"content":"{\\"city\\":"},"done":false}\n')
        reply = await calling
        exchange.body(
            b'{"message":{"content":"\\"Bern\\"}"},"done":false}\n{"done":true,"done_reason":"stop"}\n'
        )
        exchange.end()
        events = said("openai", await read_all(reply))
        calls = [event for event in events if isinstance(event, Token) and event.kind == "tool"]
        assert "".join(event.arguments for event in calls) == '{"city":"Bern"}'
        assert calls[0].tool is not None
        assert (calls[0].tool.name, bool(calls[0].tool.id)) == ("weather", True)
        assert [event.reason for event in events if isinstance(event, Finish)] == ["tool_calls"]

    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    body = {**BODIES["openai"], "tools": [tool], "tool_choice": "required"}
    play(act, "openai", "ollama", body=body)


@pytest.mark.parametrize("client", ["openai", "responses"])
def test_chat_without_a_limit_gets_the_catalogues_maximum(client: Spoken) -> None:
    spec = TargetSpec(
        name="x/m",
        base_url="http://x.test/v1",
        model="m",
        api_format="anthropic",
        output_tokens=64_000,
    )
    call, scripted = Call(id="c", body=BODIES[client], api_format=client), ScriptedClient()

    async def main() -> None:
        target = connect(spec, lambda seen: None, environment={}, client=scripted.as_client())
        calling = asyncio.get_running_loop().create_task(target(call))
        await scripted.exchange()
        calling.cancel()

    run_virtual(main())
    ((_, sent),) = scripted.sent
    assert json.loads(sent.body)["max_tokens"] == 64_000
    assert call.notes.added == {"x/m": "max_tokens=64000"}


def said(client: Spoken, data: bytes) -> list[Event]:
    decoder = CLIENTS[client].decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


async def read_all(reply: Attempt) -> bytes:
    data = b""
    while part := await reply.read():
        data += part
    return data


@each_case("client", CLIENTS)
@each_case("watched", [True, False])
def test_a_stream_that_ends_with_its_body(client: Spoken, watched: bool) -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(GEMINI_WORD)
        reply = await calling
        first = await reply.read()
        assert [event for event in said(client, first) if isinstance(event, Token)] == [
            Token(1, "one")
        ]
        exchange.body(GEMINI_WORD + GEMINI_END)
        exchange.end()
        events = said(client, first + await read_all(reply))
        assert [event.text for event in events if isinstance(event, Token)] == ["one", "one"]
        assert isinstance(events[-1], Done)
        known = [event for event in reply.arrived() if isinstance(event, Token | Finish | Done)]
        assert [type(event) for event in known] == ([Token, Token, Finish, Done] if watched else [])
        await reply.aclose()

    _, (seen,) = play(act, client, watched=watched)
    assert seen.ok
    assert seen.events == 4


@pytest.mark.parametrize("client", CLIENTS)
def test_a_json_answer_becomes_a_stream(client: Spoken) -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(b'{"candidates":[{"content":{"parts":[{"text":"all"}]},')
        exchange.body(b'"finishReason":"STOP","index":0}]}')
        exchange.end()
        events = said(client, await read_all(await calling))
        assert [event.text for event in events if isinstance(event, Token)] == ["all"]
        assert isinstance(events[-1], Done)

    _, (seen,) = play(act, client, quirks={"stream_whole": False}, stream=False)
    assert seen.ok


@pytest.mark.parametrize("client", CLIENTS)
def test_content_before_a_break_is_written_without_an_end(client: Spoken) -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(GEMINI_WORD + b'data: {"error":{"message":"no"}}\r\n\r\n')
        reply = await calling
        events = said(client, await reply.read())
        assert [event.text for event in events if isinstance(event, Token)] == ["one"]
        assert isinstance(events[-1], Broken)
        with pytest.raises(ProviderFault, match="no"):
            await reply.read()
        await reply.aclose()

    assert play(act, client)[1][0].outcome == "failed"


def test_content_the_client_format_cannot_express_breaks_it() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(GEMINI_WORD)
        reply = await calling
        assert await reply.read()
        exchange.body(GEMINI_IMAGE)
        with pytest.raises(CallerFault, match="holds image") as broken:
            await reply.read()
        assert broken.value.target == "x/m"
        assert exchange.closed_ns is not None

    assert play(act, "anthropic")[1][0].outcome == "failed"


def test_the_same_format_passes_byte_for_byte() -> None:
    writer = anthropic.StreamWriter("chat", "m", id="msg_1", created=1)
    odd = b'event: new\ndata: {"type":"new","x":1.50}\n\n'
    sent = writer.opening() + writer.token("a") + odd + writer.finish("stop") + writer.done()

    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(sent)
        exchange.end()
        assert await read_all(await calling) == sent

    hints = {"betas": "one-2025-01-01"}
    request, _ = play(act, "anthropic", "anthropic", hints=hints)
    assert request.path == "/v1/messages"
    assert json.loads(request.body) == {**BODIES["anthropic"], "model": "m", "stream": True}
    assert ("anthropic-beta", "one-2025-01-01") in request.fresh
    assert ("anthropic-version", "2023-06-01") in request.headers
    newer, _ = play(act, "anthropic", "anthropic", hints={"version": "2026-10-21"})
    assert [
        value for name, value in (*newer.headers, *newer.fresh) if name == "anthropic-version"
    ] == ["2026-10-21"]
    request, _ = play(
        act, "anthropic", "anthropic", hints=hints, headers={"Anthropic-Beta": "ours"}
    )
    assert ("anthropic-beta", "ours") in request.headers
    assert [name for name, _ in request.fresh] == ["x-client-request-id"]
    request, _ = play(act, "anthropic", "anthropic", hints=hints, quirks={"on_vertex": True})
    body = json.loads(request.body)
    assert (body["anthropic_beta"], "model" in body, request.path) == (
        ["one-2025-01-01"],
        False,
        "/v1/models/m:streamRawPredict",
    )


@pytest.mark.parametrize("takes", [True, False])
def test_reasoning_goes_to_providers_that_take_it_back(takes: bool) -> None:
    thought = [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Yes?"},
    ]
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": thought},
        {"role": "user", "content": "?"},
    ]

    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.text("a")
        exchange.finish()
        exchange.end()
        await read_all(await calling)

    body = {"messages": turns, "max_tokens": 5}
    request, _ = play(act, "anthropic", "openai", body=body, quirks={"takes_thoughts": takes})
    said_before = json.loads(request.body)["messages"][1]
    assert said_before == {"role": "assistant", "content": "Yes?"} | (
        {"reasoning_content": "Hm."} if takes else {}
    )


def test_measured_call_is_not_transcoded() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(GEMINI_WORD + GEMINI_END)
        exchange.end()
        reply = await calling
        with pytest.raises(RuntimeError, match="raw"):
            await reply.read()
        await reply.finished()

    _, (seen,) = play(act, "openai", raw=False)
    assert seen.ok


BEGUN = {
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once"}],
    "max_tokens": 5,
}


@pytest.mark.parametrize(
    ("prefill", "last"),
    [(True, {}), ("plain", {}), ("prefix", {"prefix": True}), ("partial", {"partial": True})],
)
def test_a_prefilled_answer_goes_to_a_target_that_continues_it(
    prefill: Any, last: dict[str, Any]
) -> None:
    call = Call(id="c", body=BEGUN, api_format="anthropic")
    encoded = transcoding.request(call, "openai", openai.encode, "m", Quirks(), prefill=prefill)
    assert json.loads(encoded.body)["messages"][1] == {
        "role": "assistant",
        "content": "Once",
        **last,
    }


@each_case("api_format", ["openai", "gemini", "responses", "cohere", "ollama"])
@each_case("prefill", [None, False])
def test_prefill_is_refused_for_a_target_that_cannot_continue_it(
    api_format: str, prefill: bool | None
) -> None:
    call = Call(id="c", body=BEGUN, api_format="anthropic")
    with pytest.raises(
        CallerFault, match=r"messages\[1\], the beginning of the answer, cannot.*a user's message"
    ) as no:
        transcoding.request(
            call, api_format, API_FORMATS[api_format].encode, "m", Quirks(), prefill=prefill
        )
    assert no.value.kind == "not_translatable"


def test_last_assistant_message_is_a_prefill_only_for_anthropic() -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once"}]
    for client, field in (("openai", "messages"), ("responses", "input")):
        call = Call(id="c", body={field: said}, api_format=client)  # type: ignore[arg-type]
        encoded = transcoding.request(call, "ollama", API_FORMATS["ollama"].encode, "m", Quirks())
        assert json.loads(encoded.body)["messages"] == said
    passed = transcoding.request(
        Call(id="c", body=BEGUN, api_format="anthropic"),
        "anthropic",
        anthropic.encode,
        "m",
        Quirks(),
    )
    assert json.loads(passed.body)["messages"] == BEGUN["messages"]


@each_case("parts", [False, True], ids=["messages", "parts"])
@each_case("client", CLIENTS)
def test_a_conversation_of_too_many_messages_is_not_translated(client: Spoken, parts: bool) -> None:
    """Translation of a million messages would block the worker for seconds."""
    form = CLIENT_FORMATS[client]
    many = b'{"type": "text", "text": "x{"},' * (MAX_MESSAGES + 1) if parts else b""
    one = (
        b'{"role": "user", "content": [%b]}' % many[:-1]
        if parts
        else b'{"role": "user", "content": "{"}'
    )
    raw = Raw(b"[" + b",".join([one] * (1 if parts else MAX_MESSAGES + 1)) + b"]")
    call = Call(id="r", body={"model": Raw(b'"m"'), form.messages_field: raw}, api_format=client)
    with pytest.raises(CallerFault, match=r"2.,... entries and parts; the maximum") as caught:
        transcoding.request(call, "cohere", cohere.encode, "m", Quirks())
    assert caught.value.status == 413


@each_case("counted", [True, False])
def test_a_stream_of_messages_begins_with_an_estimate(counted: bool) -> None:
    counts = (
        b',"usageMetadata":{"promptTokenCount":21,"candidatesTokenCount":2}' if counted else b""
    )
    asked = Call(
        id="c",
        body={"messages": [{"role": "user", "content": "four " * 100}]},
        api_format="anthropic",
    )

    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(GEMINI_WORD)
        reply = await calling
        exchange.body(GEMINI_END.replace(b"}\r\n", counts + b"}\r\n"))
        exchange.end()
        text = (await read_all(reply)).decode()
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        begun = next(
            event["message"]["usage"] for event in events if event["type"] == "message_start"
        )
        ended = next(event["usage"] for event in events if event["type"] == "message_delta")
        assert (begun["input_tokens"], begun["output_tokens"]) == (132, 0)
        assert ended["input_tokens"] == (21 if counted else 132)
        assert notes.estimated == ["x/m"]

    notes = Notes()
    play(act, "anthropic", body=asked.body, stream=True, notes=notes)
