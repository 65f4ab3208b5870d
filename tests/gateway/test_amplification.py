"""A long text of a client is copied a few times at most: not once for each event, tool or
result."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from tests.gateway.test_embeddings import Answering
from tests.gateway.visitor import OneRoute, serving, visits
from tests.upstream.scripted_client import ScriptedExchange

from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Origin, Receiver, Request
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import API_FORMATS, connect
from splitsecond.testing.virtual_time import run_virtual

LONG = b"L" * 2_000
MAX_COPIES = 3
TIMES = 8
"""How many results, tools and calls there are in a request and its answer."""
LONGEST_NAME = 1000
"""Longer names of functions are unknown to providers."""
CALL_ID = "call_1"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where"}},
    "required": ["city"],
}
FUNCTION = {"name": "weather", "description": "Weather", "parameters": SCHEMA}
CALLED = {"function": {"name": "weather", "arguments": '{"city":"Bern"}'}}
RESULT = {"role": "tool", "tool_call_id": CALL_ID, "content": "Snow."}
USE = {"type": "tool_use", "id": CALL_ID, "name": "weather", "input": {"city": "Bern"}}
USED = {"type": "tool_result", "tool_use_id": CALL_ID, "content": "Snow."}
ITEM = {
    "type": "function_call",
    "call_id": CALL_ID,
    "name": "weather",
    "arguments": "{}",
    "namespace": "home",
}
OUTPUT = {"type": "function_call_output", "call_id": CALL_ID, "output": "Snow."}
RESPONSE = {"functionResponse": {"id": CALL_ID, "name": "weather", "response": {"result": "Snow."}}}
CALLING = {"functionCall": {"id": CALL_ID, "name": "weather", "args": {}}}
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [{"id": CALL_ID, "type": "function", **CALLED}],
            },
            *[RESULT] * TIMES,
            {"role": "user", "content": [{"type": "text", "text": "And now?"}], "name": "ann"},
        ],
        "tools": [
            {"type": "function", "function": FUNCTION | {"name": f"f{n}"}} for n in range(TIMES)
        ],
        "user": "ann",
        "metadata": {"team": "a"},
        "own": {"field": "value"},
    },
    "/v1/messages": {
        "system": "Be brief.",
        "messages": [
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]},
            {"role": "user", "content": [*[USED] * TIMES, {"type": "text", "text": "And now?"}]},
        ],
        "tools": [
            {"name": f"f{n}", "description": "Weather", "input_schema": SCHEMA}
            for n in range(TIMES)
        ],
        "metadata": {"user_id": "ann"},
        "max_tokens": 50,
        "own": {"field": "value"},
    },
    "/v1/responses": {
        "instructions": "Be brief.",
        "input": [
            ITEM,
            *[OUTPUT] * TIMES,
            {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
        ],
        "tools": [
            {"type": "function", **FUNCTION},
            {"type": "custom", "name": "run", "description": "Run"},
            {
                "type": "namespace",
                "name": "home",
                "tools": [{"type": "function", **FUNCTION, "name": f"f{n}"} for n in range(TIMES)],
            },
        ],
        "metadata": {"team": "a"},
        "user": "ann",
        "prompt_cache_key": "key",
        "stream_id": "lane",
        "own": {"field": "value"},
    },
    "/v1beta/models/fast:streamGenerateContent": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "model", "parts": [{"text": "I look."}, CALLING]},
            {"role": "user", "parts": [*[RESPONSE] * TIMES, {"text": "And now?"}]},
        ],
        "tools": [{"functionDeclarations": [FUNCTION | {"name": f"f{n}"} for n in range(TIMES)]}],
        "generationConfig": {"own": "value"},
        "labels": {"team": "a"},
    },
    "/api/chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            *[
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [{"function": {"name": "weather"}}],
                },
                {"role": "tool", "tool_name": "weather", "content": "Snow."},
            ]
            * TIMES,
            {"role": "user", "content": "And now?"},
        ],
        "tools": [
            {"type": "function", "function": FUNCTION | {"name": f"f{n}"}} for n in range(TIMES)
        ],
        "options": {"own": "value"},
        "keep_alive": "5m",
    },
}
"""A request for each API format of clients, by path."""


class Calling(Answering):
    """A provider of the API format `api_format` that calls every function of a request many
    times."""

    def __init__(self, api_format: str) -> None:
        super().__init__()
        self._api_format = api_format

    async def send(
        self, origin: Origin, request: Request, receiver: Receiver, *, connect_deadline_ns: int
    ) -> ScriptedExchange:
        names = list(function_names(msgspec.json.decode(request.body).get("tools")))
        api_format: Any = API_FORMATS[self._api_format]
        writer = api_format.StreamWriter("chat", "m", id="x", created=1)
        parts = [writer.opening(), *(writer.token("Hi. ") for _ in range(TIMES))]
        for number, name in enumerate(names * TIMES if self._api_format != "replicate" else []):
            parts += [
                writer.tool_call(name, f"call_{number}"),
                writer.token('{"input":"a"}', "tool"),
            ]
        self.parts = (b"".join([*parts, writer.finish("stop"), writer.done()]),)
        return await super().send(
            origin, request, receiver, connect_deadline_ns=connect_deadline_ns
        )


def function_names(tools: Any) -> Iterator[str]:
    """Yield the names of functions, whatever the format."""
    match tools:
        case {"name": str(name)}:
            if len(name) <= LONGEST_NAME:
                yield name
        case dict():
            for each in tools.values():
                yield from function_names(each)
        case list():
            for each in tools:
                yield from function_names(each)


def words(value: Any) -> Iterator[str]:
    """Yield the names of fields and the texts in `value`."""
    match value:
        case str():
            yield value
        case dict():
            yield from value
            for each in value.values():
                yield from words(each)
        case list():
            for each in value:
                yield from words(each)


def lengthened(value: Any, word: str) -> Any:
    """Return `value` with a long text wherever `word` is a field's name or a text."""
    match value:
        case str():
            return LONG.decode() if value == word else value
        case dict():
            return {lengthened(name, word): lengthened(each, word) for name, each in value.items()}
        case list():
            return [lengthened(each, word) for each in value]
    return value


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    "api_format", [api_format for api_format in API_FORMATS if api_format != "replicate"]
)
@pytest.mark.parametrize("path", REQUESTS)
def test_text_of_a_client_is_copied_a_few_times_at_most(path: str, api_format: str) -> None:
    async def main() -> None:
        spec = TargetSpec(
            name="fake/model", base_url="http://x.test/v1", model="m", api_format=api_format
        )
        transport = Calling(api_format)
        target = connect(
            spec, lambda attempt: None, environment={}, client=cast(Client, transport), raw=True
        )
        routes: Any = OneRoute(target)
        gateway = serving(routes)
        statuses = set()
        for word in dict.fromkeys(words(REQUESTS[path])):
            transport.sent.clear()
            body = msgspec.json.encode(
                lengthened(REQUESTS[path], word) | {"model": "fast", "stream": True}
            )
            client = await visits(gateway).asks(body, path=path)
            statuses.add(client.status)
            for copies in (client.transport.written, *(request.body for request in transport.sent)):
                assert copies.count(LONG) <= max(MAX_COPIES, body.count(LONG)), word
        assert 200 in statuses

    run_virtual(main())
