"""Odd but valid JSON from clients and providers: every answer has a status and a body of ours, and
nothing of us fails.

Each example takes a request of one client format, or an answer of one target format
(`odd_json_seeds.json`), replaces or removes some of its values, and sends it through the whole
gateway.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case, sampled_cases
from tests.examples import examples
from tests.faults.world import CLIENT_KEY, World, play
from tests.gateway.visitor import Visitor, visits

from splitsecond.core import internal_errors
from splitsecond.core.serving.request_cycle import RequestCycle

SEEDS: dict[str, Any] = json.loads(Path(__file__).with_name("odd_json_seeds.json").read_text())
REQUESTS: list[tuple[str, Any]] = SEEDS["requests"]
TARGETS = ("openai", "anthropic", "responses", "gemini", "ollama", "cohere")
CONFIG = (
    "keys: [{name: web, key: env:CLIENT_KEY, usd_per_day: 100000, requests_per_minute: "
    "100000}]\nproviders:\n"
    + (
        "".join(
            f"  {name}: {{base_url: 'http://127.0.0.1:{port}/v1', api_format: {name}, api_key: "
            f"env:KEY_A, "
            "price: {input_usd: 1, output_usd: 1}}\n"
            for port, name in enumerate(TARGETS, 1)
        )
    )
)


def configured(text: str) -> str:
    """Return the configuration of a world with other keys and providers."""
    return CONFIG + text[text.index("routes:") :]


RAW = {
    "1e400": "1e400",
    "a thousand digits": "9" * 1000,
    "minus a thousand digits": "-" + "9" * 1000,
    "nested 60 deep": "[" * 60 + "]" * 60,
    "nested 900 deep": '{"a":' * 900 + "1" + "}" * 900,
    "nested 4000 deep": "[" * 4000 + "]" * 4000,
}
"""JSON that `json.dumps` does not write, by the string that stands for it."""
ODD: list[Any] = [
    *RAW, None, True, False, 0, -1, 1, 5, 2**63, -(2**64), 0.5, -0.5, 1e308, "", "a", "\ud800",
    "\x00", "ü" * 300,
    "data:,", "data:image/"
    "png;base64,aa==", "https://x/a.png", "[DONE]", "{", "{}", '{"a": 1}', "[1]", "null", [], {},
    [[]], [{}], [None], ["a"], [1], {"a": None}, {"type": None}, {"type": "text"}, {"type": 5},
    {"role": "user"},
    {"role": "tool", "content": 5}, {"type": "tool_use"}, {"type": "function", "function": {}},
]  # fmt: skip
KEYS = ["type", "id", "content", "index", "\ud800", "", "n", "error", "usage"]
FAMILY = {200, 400, 401, 403, 404, 408, 413, 415, 422, 429, 502, 503, 504, 529}
Choose = Callable[[Sequence[Any]], Any]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in `value` with each of its keys."""
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in list(entries):
        yield value, key
        yield from places(inner)


def odd(value: Any, choose: Choose) -> Any:
    """Return `value` with up to three odd values in it, or without some of its fields."""
    value = deepcopy(value)
    for _ in range(choose([0, 1, 1, 1, 2, 3])):
        found = list(places(value))
        if not found:
            break
        container, key = choose(found)
        match choose(["replace", "replace", "replace", "remove", "repeat", "add"]):
            case "replace":
                container[key] = deepcopy(choose(ODD))
            case "remove":
                del container[key]
            case "add" if isinstance(container, dict):
                container[choose(KEYS)] = deepcopy(choose(ODD))
            case _ if isinstance(container, list):
                container.append(deepcopy(choose([container[key], choose(ODD)])))
    return value


def encoded(value: Any) -> bytes:
    text = json.dumps(value)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode()


class Odd:
    """A provider that answers with a stream or a whole answer, as it is asked, or with an error."""

    def __init__(
        self, api_format: str, stream: list[Any], whole: Any, error: tuple[int, Any] | None = None
    ) -> None:
        self.api_format = api_format
        self.stream = stream
        self.whole = whole
        self.error = error

    async def __call__(self, cycle: RequestCycle) -> None:
        body = await cycle.body(1 << 24)
        streams = b'"stream":true' in body.replace(b" ", b"") or "stream" in cycle.path
        if self.error is not None:
            await cycle.answer(self.error[0], encoded(self.error[1]))
        elif not streams:
            await cycle.answer(200, encoded(self.whole))
        else:
            cycle.begin_stream([])
            for event in self.stream:
                await cycle.send(self._event(event))
            await cycle.send(b"", last=True)

    def _event(self, event: Any) -> bytes:
        data = b"[DONE]" if event == "[DONE]" else encoded(event)
        if self.api_format == "ollama":
            return data + b"\n"
        name = event.get("type") if isinstance(event, dict) else None
        return (
            (b"event: %b\n" % name.encode() if isinstance(name, str) and name in KINDS else b"")
            + b"data: "
            + data
            + b"\n\n"
        )


KINDS = {
    event["type"]
    for name in ("anthropic", "responses", "cohere")
    for event in SEEDS["streams"][name]
}


async def ask(world: World, path: str, body: Any) -> Visitor:
    """Send a request, and check that the answer is one of ours, in the format of `path`."""
    client = visits(world.worker.gateway)
    await client.asks(encoded(body), path=path, headers={"authorization": f"Bearer {CLIENT_KEY}"})
    assert dict(internal_errors.counts) == {}
    assert client.status in FAMILY
    assert client.answer.complete
    kind = client.headers["content-type"]
    if kind == "application/json":
        found = json.loads(client.body)
        if client.status != 200:
            assert "error" in found
            assert not path.startswith("/v1/messages") or found["type"] == "error"
    elif kind == "application/x-ndjson":
        assert all(isinstance(json.loads(line), dict) for line in client.body.splitlines())
    else:
        for event in client.body.replace(b"\r\n", b"\n").split(b"\n\n"):
            data = b"\n".join(line[6:] for line in event.split(b"\n") if line.startswith(b"data: "))
            assert data in (b"", b"[DONE]") or json.loads(data) is not Ellipsis
    return client


def played(provider: Odd, path: str, body: Any) -> Visitor:
    found: list[Visitor] = []

    async def story(world: World) -> None:
        found.append(await ask(world, path, body))
        await world.settled()

    with tempfile.TemporaryDirectory() as folder:
        providers: dict[str, Any] = dict.fromkeys(TARGETS, provider)
        play(f'"{provider.api_format}/m"', Path(folder), story, edit=configured, **providers)
    return found[0]


def usual(api_format: str) -> Odd:
    return Odd(api_format, SEEDS["streams"][api_format], SEEDS["wholes"][api_format])


def odd_answers(api_format: str, choose: Choose) -> Odd:
    error = choose([*[None] * 20, *SEEDS["errors"]])
    return Odd(
        api_format,
        odd(SEEDS["streams"][api_format], choose),
        odd(SEEDS["wholes"][api_format], choose),
        None if error is None else (error[0], odd(error[1], choose)),
    )


def plain(path: str) -> dict[str, Any]:
    """Return a simple request that every target accepts."""
    chat = {"model": "fast", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    contents = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    others: dict[str, dict[str, Any]] = {
        "/v1/completions": {"model": "fast", "prompt": "hi"},
        "/v1/embeddings": {"model": "fast", "input": "hi"},
        "/v1/rerank": {"model": "fast", "query": "hi", "documents": ["a"]},
        "/v1/moderations": {"model": "fast", "input": "hi"},
        "/v1/responses": {"model": "fast", "input": "hi", "store": False},
        "/v1/responses/input_tokens": {"model": "fast", "input": "hi"},
        "/api/generate": {"model": "fast", "prompt": "hi"},
    }
    return others.get(path, contents if path.startswith("/v1beta") else chat)


@examples(60)
@given(st.sampled_from(REQUESTS), st.sampled_from(TARGETS), st.data())
def test_an_odd_request_is_answered_in_the_clients_format(
    request: tuple[str, Any], api_format: str, data: st.DataObject
) -> None:
    path, body = request
    played(usual(api_format), path, odd(body, lambda among: data.draw(st.sampled_from(among))))


@examples(60)
@given(st.sampled_from(REQUESTS), st.booleans(), st.sampled_from(TARGETS), st.data())
def test_an_odd_answer_is_passed_on_in_the_clients_format(
    request: tuple[str, Any], stream: bool, api_format: str, data: st.DataObject
) -> None:
    path, _ = request
    answers = odd_answers(api_format, lambda among: data.draw(st.sampled_from(among)))
    played(answers, path, plain(path) | {"stream": stream})


STREAM, WHOLE = SEEDS["streams"]["openai"], SEEDS["wholes"]["openai"]


@sampled_cases(3)
@each_case("arguments", ["[1]", "{", '"x"', "nul", '{"a":1}{}'])
@each_case("path", ["/v1beta/models/fast:generateContent", "/api/chat", "/api/generate"])
def test_tool_arguments_that_are_no_object_are_a_provider_fault(path: str, arguments: str) -> None:
    call = {
        "index": 0,
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
    }
    chunk = STREAM[0] | {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    whole = WHOLE | {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    provider = Odd("openai", [*STREAM[:2], chunk, *STREAM[3:]], whole)
    assert played(provider, path, plain(path) | {"stream": False}).status == 502
    path = path.replace("generate", "streamGenerate") if path.startswith("/v1beta") else path
    client = played(provider, path, plain(path) | {"stream": True})
    assert client.status == 200
    assert b"not the JSON of an object" in client.body


@sampled_cases(3)
@each_case("created", [2**63, 10**15, -1, -(10**15), 0.5, 1e308])
def test_invalid_creation_time_is_ignored(created: float) -> None:
    provider = Odd("openai", STREAM, WHOLE | {"created": created})
    assert played(provider, "/api/chat", plain("/api/chat") | {"stream": False}).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_whose_format_has_one_choice_gets_the_first(stream: bool) -> None:
    def second(event: Any) -> Any:
        return event | {"choices": [choice | {"index": 1} for choice in event["choices"]]}

    doubled = [copy for event in STREAM[:-3] for copy in (event, second(event))]
    whole = WHOLE | {"choices": WHOLE["choices"] + second(WHOLE)["choices"]}
    client = played(
        Odd("openai", doubled + STREAM[-3:], whole),
        "/api/chat",
        plain("/api/chat") | {"stream": stream},
    )
    assert client.status == 200
    assert client.body.count(b'"name":"f"') == client.body.count(b'"content":"hi"') == 1


@pytest.mark.parametrize("api_format", ["anthropic", "responses"])
def test_a_count_of_tokens_that_is_no_object_is_estimated(api_format: str) -> None:
    path = (
        "/v1/messages/count_tokens" if api_format == "anthropic" else "/v1/responses/input_tokens"
    )
    client = played(Odd(api_format, [], [1, 2]), path, plain(path))
    assert (client.status, client.headers["x-splitsecond-estimated"]) == (200, "input_tokens")


@pytest.mark.parametrize(
    "place",
    [
        "splitsecond.core.wire.openai.encode",
        "splitsecond.core.wire.openai.decode.OpenAIDecoder.feed",
    ],
)
def test_internal_error_at_one_target_leads_to_the_next(
    place: str, tmp_path: Path, error_counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object, **settings: object) -> None:
        raise ZeroDivisionError

    async def story(world: World) -> None:
        monkeypatch.setattr(place, fails)
        client = visits(world.worker.gateway)
        await client.asks(
            plain("/v1/messages"),
            path="/v1/messages",
            headers={"authorization": f"Bearer {CLIENT_KEY}"},
        )
        assert (client.status, client.headers["x-splitsecond-target"]) == (200, "anthropic/m")
        await world.settled()

    providers: dict[str, Any] = {name: usual(name) for name in TARGETS}
    play('fallback("openai/m", "anthropic/m")', tmp_path, story, edit=configured, **providers)
    assert error_counts["request"] >= 1
