"""Every API format's path in virtual time: the same answer at the same moments, and errors in the
API format's form."""

from types import ModuleType
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.cases import each_case
from tests.simulator.in_virtual_time import Client, Exchange

from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.events import Broken, Done, Event, Finish, Token, Usage
from splitsecond.core.finish_reasons import openai_reason
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.simulator import app, profile
from splitsecond.simulator.profile import Profile
from splitsecond.simulator.truth import TruthRecord
from splitsecond.testing.virtual_time import run_virtual

STEADY = profile.parse(
    """
    title = "Steady"
    model = "steady"
    output_tokens = 6
    [[table]]
    concurrency = 1
    ttft_ms = { p50 = 100, p95 = 100.001 }
    tps = { p50 = 100, p95 = 99.999 }
    """,
    name="steady",
    where="steady",
)
MESSAGES = {"messages": [{"role": "user", "content": "hello"}]}
FUNCTION = {"name": "weather", "parameters": {"type": "object"}}
CHAT_TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}


class Played(NamedTuple):
    """An API format: the paths for a stream and a whole response, the body, and the fields that
    force a tool call."""

    api_format: ModuleType
    stream_path: str
    whole_path: str
    body: dict[str, Any]
    call: dict[str, Any]


GEMINI = "/v1beta/models/steady"
PLAYED = {
    "openai": Played(
        openai,
        "/v1/chat/completions",
        "/v1/chat/completions",
        MESSAGES | {"stream_options": {"include_usage": True}},
        {**CHAT_TOOLS, "tool_choice": "required"},
    ),
    "responses": Played(
        responses,
        "/v1/responses",
        "/v1/responses",
        {"input": "hello"},
        {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"},
    ),
    "anthropic": Played(
        anthropic,
        "/v1/messages",
        "/v1/messages",
        {**MESSAGES, "max_tokens": 6},
        {"tools": [{"name": "weather", "input_schema": {}}], "tool_choice": {"type": "any"}},
    ),
    "gemini": Played(
        gemini,
        f"{GEMINI}:streamGenerateContent?alt=sse",
        f"{GEMINI}:generateContent",
        {"contents": [{"parts": [{"text": "hello"}]}]},
        {
            "tools": [{"functionDeclarations": [FUNCTION]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        },
    ),
    "cohere": Played(
        cohere, "/v2/chat", "/v2/chat", MESSAGES, {**CHAT_TOOLS, "tool_choice": "REQUIRED"}
    ),
    "ollama": Played(ollama, "/api/chat", "/api/chat", MESSAGES, CHAT_TOOLS),
}
ENDS_WITH_WORDS = {"cohere", "responses", "ollama"}
"""ApiFormats in which reason and counts come with the last event."""

played = pytest.mark.parametrize("name", PLAYED)


def asked(
    name: str,
    *,
    on: Profile = STEADY,
    stream: bool = True,
    fault: str = "",
    path: str = "",
    **fields: Any,
) -> tuple[Exchange, list[TruthRecord]]:
    """One request in that API format, and what the simulator knows of it."""
    one = PLAYED[name]
    headers = {"x-splitsecond-fault": fault} if fault else {}
    given = path or (one.stream_path if stream else one.whole_path)

    async def play() -> tuple[Exchange, list[TruthRecord]]:
        client = Client(on)
        body = {**one.body, **fields, **({} if name == "gemini" else {"stream": stream})}
        exchange = await client.send(path=given, headers=headers, **body)
        return exchange, client.truth()

    return run_virtual(play())


def events_of(name: str, exchange: Exchange) -> list[Event]:
    """What our own decoder makes of an answer, each event at the time at which it was written."""
    decoder = PLAYED[name].api_format.decoder("chat")
    events = [event for at, data in exchange.written for event in decoder.feed(data, at)]
    return [*events, *decoder.close(0)]


def tokens_of(events: list[Event], kind: str = "text") -> list[Token]:
    return [event for event in events if isinstance(event, Token) and event.kind == kind]


@played
def test_an_answer_and_its_moments(name: str) -> None:
    exchange, (record,) = asked(name)
    events = events_of(name, exchange)
    assert (
        "".join(token.text for token in tokens_of(events)) == "A simulated provider says nothing of"
    )
    assert [token.at for token in tokens_of(events)] == list(record.actual_ns)
    assert list(record.actual_ns) == list(record.planned_ns)
    assert round((record.planned_ns[0] - record.arrived_ns) / NS_PER_MS) == 100
    (finish,) = [event for event in events if isinstance(event, Finish)]
    assert (
        openai_reason(finish.reason) == ("length" if name == "anthropic" else "stop")
        or finish.reason == "completed"
    )
    usage = [event for event in events if isinstance(event, Usage)][-1]
    assert (usage.input_tokens, usage.output_tokens) == (13, 6)
    assert isinstance(events[-1], Done)


@played
@each_case("stream", [True, False])
def test_reasoning_precedes_the_text(name: str, stream: bool) -> None:
    exchange, _ = asked(
        name, on=replace(STEADY, reasoning_tokens=2, natural_tokens=5), stream=stream
    )
    events = events_of(name, exchange)
    assert "".join(token.text for token in tokens_of(events, "reasoning")) == "A simulated"
    assert "".join(token.text for token in tokens_of(events)) == "A simulated provider"
    (finish,) = [event for event in events if isinstance(event, Finish)]
    assert openai_reason(finish.reason) == "stop" or finish.reason == "completed"


@played
@each_case("stream", [True, False])
def test_a_tool_call(name: str, stream: bool) -> None:
    exchange, (record,) = asked(name, stream=stream, **PLAYED[name].call)
    events = events_of(name, exchange)
    tokens = tokens_of(events, "tool")
    assert tokens[0].tool is not None
    assert tokens[0].tool.name == "weather"
    arguments = "".join(token.arguments for token in tokens)
    assert arguments == '{"text":"A simulated provider says nothing of"}'
    (finish,) = [event for event in events if isinstance(event, Finish)]
    assert openai_reason(finish.reason, called=True) == "tool_calls"
    assert len(record.actual_ns) == len(record.planned_ns) == 6


@played
def test_answer_has_text_after_any_number_of_reasoning_tokens(name: str) -> None:
    exchange, _ = asked(name, on=replace(STEADY, reasoning_tokens=99))
    events = events_of(name, exchange)
    assert [len(tokens_of(events, kind)) for kind in ("reasoning", "text")] == [5, 1]


@played
@each_case(
    "fault, kind", [("malformed; after=3", "malformed"), ("error_event; after=3", "in_band_error")]
)
def test_faults_between_tokens_have_the_api_formats_form(name: str, fault: str, kind: str) -> None:
    exchange, _ = asked(name, fault=fault)
    events = events_of(name, exchange)
    assert len(tokens_of(events)) == 3
    assert isinstance(events[-1], Broken)
    assert (events[-1].fault.kind, events[-1].fault.phase) == (kind, "between tokens")
    if kind == "in_band_error":
        assert "the model failed while it answered" in events[-1].fault.message


@played
def test_stream_without_its_end_marker_is_broken(name: str) -> None:
    exchange, _ = asked(name, fault="no_done")
    end = events_of(name, exchange)[-1]
    assert isinstance(end, Broken) == (name in ENDS_WITH_WORDS)


@played
@each_case("status", [400, 401, 429, 500])
def test_errors_of_the_head_have_the_api_formats_form(name: str, status: int) -> None:
    exchange, _ = asked(name, fault=str(status))
    fault = PLAYED[name].api_format.fault_from_response(exchange.status, {}, exchange.body)
    assert isinstance(fault, CallerFault if status == 400 else ProviderFault)
    assert fault.message == f"HTTP {status}: a simulated error {status}"


def test_gemini_stream_without_alt_sse_is_refused() -> None:
    exchange, _ = asked("gemini", path=f"{GEMINI}:streamGenerateContent")
    assert exchange.status == 400
    assert exchange.json["error"]["status"] == "INVALID_ARGUMENT"
    assert "?alt=sse" in exchange.json["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/v1beta/models/steady:embedText", "/v1beta/models/a/b:generateContent", "/v3/chat"]
)
def test_unknown_path_is_404(path: str) -> None:
    exchange, _ = asked("gemini", path=path)
    assert exchange.status == 404


VERTEX = "/v1/projects/p/locations/eu/publishers/anthropic/models/steady"


@pytest.mark.parametrize("path", [VERTEX, "/v1/models/steady"])
@pytest.mark.parametrize("stream", [True, False])
def test_vertex_claude_takes_model_and_streaming_from_the_path(path: str, stream: bool) -> None:
    """Its body has neither. The answer is Anthropic's."""

    async def play() -> Exchange:
        body: dict[str, Any] = {
            **MESSAGES,
            "max_tokens": 6,
            "anthropic_version": "vertex-2023-10-16",
        }
        return await Client(STEADY).send(
            path=f"{path}:{'streamRawPredict' if stream else 'rawPredict'}", **body
        )

    exchange = run_virtual(play())
    decoder = anthropic.decoder("chat")
    events = [
        event for at, data in exchange.written for event in decoder.feed(data, at)
    ] + decoder.close(0)
    assert (
        "".join(token.text for token in tokens_of(events)) == "A simulated provider says nothing of"
    )
    assert [event.output_tokens for event in events if isinstance(event, Usage)][-1] == 6
    assert isinstance(events[-1], Done)


def test_a_provider_may_always_report_the_usage() -> None:
    """Mistral does, and rejects the field that asks for it."""
    always = replace(STEADY, usage="always")
    for on, counted in ((STEADY, 0), (always, 1)):
        exchange, _ = asked("openai", on=on, stream_options=None)
        assert sum(isinstance(event, Usage) for event in events_of("openai", exchange)) == counted


def test_a_whole_answer_of_replicates_has_the_counts() -> None:
    """Its streams have none, as at Replicate."""

    async def play() -> Exchange:
        path = "/v1/models/simulated/steady/predictions"
        return await Client(STEADY).send(path=path, input={"prompt": "hello"})

    decoder = replicate.decoder("chat")
    exchange = run_virtual(play())
    events = [*decoder.feed(exchange.body, 0), *decoder.close(0)]
    assert [event.output_tokens for event in events if isinstance(event, Usage)] == [6]


def test_replicates_output_is_read_with_a_second_request() -> None:
    async def play() -> tuple[Exchange, Exchange, Exchange, list[TruthRecord]]:
        client = Client(STEADY)
        path = "/v1/models/simulated/steady/predictions"
        created = await client.send(
            path=path, headers={"host": "h:1"}, input={"prompt": "hello"}, stream=True
        )
        where = replicate.output_address(created.body)
        output = await client.send(method="GET", path=where.removeprefix("http://h:1"))
        again = await client.send(method="GET", path=where.removeprefix("http://h:1"))
        return created, output, again, client.truth()

    created, output, again, (record,) = run_virtual(play())
    assert created.status == 201
    decoder = replicate.decoder("chat")
    events = [event for at, data in output.written for event in decoder.feed(data, at)]
    assert (
        "".join(token.text for token in tokens_of(events)) == "A simulated provider says nothing of"
    )
    assert (
        [token.at for token in tokens_of(events)]
        == list(record.actual_ns)
        == list(record.planned_ns)
    )
    assert isinstance(events[-1], Done)
    assert again.status == 404


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("malformed; after=3", "malformed"), ("error_event; after=3", "in_band_error")],
)
def test_replicate_faults_apply_to_the_matching_request(fault: str, kind: str) -> None:
    async def play() -> tuple[Exchange, Exchange]:
        client = Client(STEADY)
        path, headers = "/v1/models/simulated/steady/predictions", {"x-splitsecond-fault": fault}
        created = await client.send(
            path=path, headers=headers, input={"prompt": "hello"}, stream=True
        )
        where = replicate.output_address(created.body)
        output = await client.send(method="GET", path=where.removeprefix("http://localhost"))
        refused = {"x-splitsecond-fault": "429"}
        return output, await client.send(
            path=path, headers=refused, input={"prompt": "hello"}, stream=True
        )

    output, refusal = run_virtual(play())
    decoder = replicate.decoder("chat")
    end = [*decoder.feed(output.body, 0), *decoder.close(0)][-1]
    assert isinstance(end, Broken)
    assert end.fault.kind == kind
    assert (refusal.status, refusal.json["status"]) == (429, 429)


def test_unstreamed_prediction_is_in_the_first_response() -> None:
    async def play() -> Exchange:
        path = "/v1/models/simulated/steady/predictions"
        return await Client(STEADY).send(path=path, input={"prompt": "hello", "max_tokens": 2})

    assert run_virtual(play()).json["output"] == ["A simulated"]


def test_unread_predictions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_WAITING", 1)

    async def play() -> list[int]:
        client = Client(STEADY)
        path = "/v1/models/simulated/steady/predictions"
        created = [
            await client.send(path=path, input={"prompt": "x"}, stream=True) for _ in range(2)
        ]
        paths = [
            replicate.output_address(one.body).removeprefix("http://localhost") for one in created
        ]
        return [(await client.send(method="GET", path=path)).status for path in paths]

    assert run_virtual(play()) == [404, 200]


def test_ollama_stream_has_content_type_ndjson() -> None:
    exchange, _ = asked("ollama")
    assert exchange.headers[b"content-type"] == b"application/x-ndjson"
