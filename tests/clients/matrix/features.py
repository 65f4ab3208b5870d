"""The features that are tried with every client and target: what is asked, what is replied, and
what proves success.

`ask` is written in neutral words; the client scripts (`clients_python.py`,
`clients_javascript.mjs`) put it into the words of each client. The simulated provider knows a
feature by the model's name, and gives `reply`. A cell passes only if the client's answer has what
was replied **and** the provider received what was asked.
"""

import base64
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.clients.matrix.received import ReceivedChat

QUESTION = "What is the capital of France?"
PARIS = "Paris is the capital of France."
SYSTEM = "Be brief, and answer in English."
ODD = 'Zürich 😀 "quoted" \\ back\tslash, 東京.'
ARGUMENTS = {"city": 'Zürich "north" 😀', "days": 3}
OSLO = {"city": "Oslo", "days": 2}
REASONING = "The user wants a capital, so I name it."
SUNNY = "Take sunglasses to Bern."
TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}
OTHER_TOOL = TOOL | {"name": "trains", "description": "Trains to a city."}
TRIP = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Bern"]},
        "days": {"type": "integer", "enum": [3]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
BERN = {"city": "Bern", "days": 3}
LINK = "https://example.com/picture.png"
MAX_TOKENS = 400


def _picture() -> bytes:
    """Return a picture whose base64 has every character, `+` and `/` too."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + Random(row).randbytes(48) for row in range(16))
    head = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


PICTURE = _picture()
DOCUMENT = b"%PDF-1.4\n" + Random(1).randbytes(900) + b"\n%%EOF\n"
SOUND = (
    b"RIFF"
    + struct.pack("<I", 836)
    + b"WAVEfmt "
    + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
)
SOUND += b"data" + struct.pack("<I", 800) + Random(2).randbytes(800)


def _base64(data: bytes) -> str:
    text = base64.b64encode(data).decode()
    assert "+" in text, "the test needs base64 in which the alphabets differ"
    assert "/" in text, "the test needs base64 in which the alphabets differ"
    return text


Ask = dict[str, Any]


def _user(*parts: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "parts": [{"text": part} if isinstance(part, str) else part for part in parts],
    }


def _chat(*parts: Any, **more: Any) -> Ask:
    return {"messages": [_user(*(parts or (QUESTION,)))], "max_tokens": MAX_TOKENS, **more}


CALL = {"id": "call_abc123", "name": "weather", "arguments": ARGUMENTS}
_ASKED = [_user("How is the weather?"), {"role": "assistant", "parts": [{"call": CALL}]}]


def _after_call(**result: Any) -> Ask:
    parts = [{"result": {"id": CALL["id"], "name": "weather", **result}}]
    return {
        "messages": [*_ASKED, {"role": "tool", "parts": parts}],
        "tools": [TOOL],
        "max_tokens": MAX_TOKENS,
    }


def _has_media(data: bytes) -> Callable[[ReceivedChat], bool]:
    return lambda sent: [media.data for media in sent.media] == [data]


@dataclass(frozen=True)
class Feature:
    """A feature: its `name`, a `title` for the table, the neutral `ask`, and the simulator's
    `reply`.

    `answer` has what the client must return, in neutral words; `sent` says whether the provider
    received what was asked. A target that does not have the feature may refuse it, with one of
    `words` in the error or in `x-splitsecond-dropped`. `status` is that of an error which the
    client must report. `provider` is the prefix of the provider's name. `once`: the target plays no
    part.
    """

    name: str
    title: str
    ask: Ask
    reply: dict[str, Any] = field(default_factory=lambda: {"text": PARIS})
    answer: dict[str, Any] = field(default_factory=lambda: {"text": PARIS})
    sent: Callable[[ReceivedChat], bool] = lambda sent: True
    words: tuple[str, ...] = ()
    status: int = 0
    provider: str = "to"
    once: bool = False
    without: tuple[str, ...] = ()


def _error(status: int, title: str, *, seen: int = 0) -> Feature:
    """Return the feature that an error of the provider is seen by the client as the status
    `seen`."""
    message = f"a test of status {status}"
    return Feature(
        f"error-{status}", title, _chat(), {"error": {"status": status, "message": message}}, {},
        status=seen or status, provider="fails",
    )  # fmt: skip


_CALLS = {"calls": [["weather", ARGUMENTS]]}
_BOTH = {"calls": [["weather", ARGUMENTS], ["weather", OSLO]]}
_GIVEN_CALL = {"calls": [{"name": "weather", "arguments": ARGUMENTS}]}
_GIVEN_BOTH = {"calls": [*_GIVEN_CALL["calls"], {"name": "weather", "arguments": OSLO}]}
_THOUGHT = {"text": PARIS, "reasoning": REASONING}
_LONG = {"text": "word " * 60}


def _offered(sent: ReceivedChat) -> bool:
    return set(sent.tools) == {"weather"} and set(sent.tools["weather"]["properties"]) == {
        "city",
        "days",
    }


def _answered(sent: ReceivedChat) -> bool:
    """Whether the result came, and answers its call."""
    called = [call for turn in sent.turns for call in turn.calls]
    return called == [("weather", ARGUMENTS)] and [result.tool for result in sent.results] == [
        "weather"
    ]


def _schema(sent: ReceivedChat) -> bool:
    schemas = [sent.schema, *sent.tools.values()]
    return any(
        isinstance(each, dict) and set(each.get("properties", ())) == {"city", "days"}
        for each in schemas
    )


FEATURES = [
    Feature("text", "text", _chat(), sent=lambda sent: sent.turns[-1].text == QUESTION),
    Feature("text-streamed", "text, "
    "streamed", _chat(stream=True), answer={"text": PARIS, "parts": 2}),
    Feature("text-async", "text, asynchronous client", _chat(asynchronous=True)),
    Feature("odd-text", "emoji, quotes and other scripts", _chat(ODD), {"text": ODD}, {"text": ODD},
            lambda sent: sent.turns[-1].text == ODD),
    Feature("odd-text-streamed", "the same, "
    "streamed", _chat(ODD, stream=True), {"text": ODD}, {"text": ODD},
            lambda sent: sent.turns[-1].text == ODD),
    Feature("usage", "token counts", _chat(), answer={"text": PARIS, "usage": True}),
    Feature("usage-streamed", "token counts of a stream", _chat(stream=True, usage=True),
            answer={"text": PARIS, "usage": True}),
    Feature("system", "system "
    "prompt", _chat(system=SYSTEM), sent=lambda sent: sent.system == SYSTEM),
    Feature("turns", "several turns",
            {"messages": [_user("Hello."), {"role": "assistant", "parts": [{"text": "Hi!"}]},
            _user(QUESTION)],
             "max_tokens": MAX_TOKENS},
            sent=lambda sent: [(turn.role, turn.text) for turn in sent.turns]
            == [("user", "Hello."), ("assistant", "Hi!"), ("user", QUESTION)]),
    Feature("call", "tool call", _chat(tools=[TOOL]), _GIVEN_CALL, _CALLS, _offered),
    Feature("call-streamed", "tool call, "
    "streamed", _chat(tools=[TOOL], stream=True), _GIVEN_CALL, _CALLS, _offered),
    Feature("calls", "parallel tool calls", _chat(tools=[TOOL]), _GIVEN_BOTH, _BOTH, _offered),
    Feature("calls-streamed", "parallel tool calls, "
    "streamed", _chat(tools=[TOOL], stream=True), _GIVEN_BOTH, _BOTH,
            _offered),
    Feature("call-after-text", "text and tool call, streamed", _chat(tools=[TOOL], stream=True),
            {"text": "I look "
            "it up. ", **_GIVEN_CALL}, _CALLS | {"text": "I look it up. "}, _offered),
    Feature("result", "tool's result", _after_call(text="sunny"), {"text": SUNNY}, {"text": SUNNY},
            lambda sent: _answered(sent) and "sunny" in sent.results[0].text),
    Feature("result-picture", "picture in a "
    "tool's result", _after_call(text="a map", image=_base64(PICTURE)),
            {"text": SUNNY}, {"text": SUNNY}, lambda sent: _answered(sent)
            and _has_media(PICTURE)(sent),
            words=("image",)),
    Feature("loop", "tool loop with the client's own messages", _chat(tools=[TOOL], loop="sunny"),
            _GIVEN_CALL, {"calls": _CALLS["calls"], "text": SUNNY},
            lambda sent: _answered(sent) and "sunny" in sent.results[0].text),
    Feature("loop-streamed", "the same, streamed", _chat(tools=[TOOL], loop="sunny", stream=True),
            _GIVEN_CALL, {"calls": _CALLS["calls"], "text": SUNNY},
            lambda sent: _answered(sent) and "sunny" in sent.results[0].text),
    Feature("loop-reasoning", "tool loop with "
    "reasoning", _chat(tools=[TOOL], loop="sunny", reasoning=True),
            _GIVEN_CALL | {"reasoning": REASONING}, {"calls": _CALLS["calls"], "text": SUNNY},
            lambda sent: _answered(sent) and "sunny" in sent.results[0].text),
    Feature("choice-required", "tool call "
    "required", _chat(tools=[TOOL], choice="required"), _GIVEN_CALL, _CALLS,
            lambda sent: sent.choice in ("required", {"name": "weather"}) or _schema(sent),
            words=("tool_choice",)),
    Feature("choice-named", "one of two tools "
    "required", _chat(tools=[TOOL, OTHER_TOOL], choice={"name": "trains"}),
            {"calls": [{"name": "trains", "arguments": OSLO}]}, {"calls": [["trains", OSLO]]},
            lambda sent: sent.choice == {"name": "trains"} or set(sent.tools) == {"trains"}
            or _schema(sent),
            words=("tool_choice",)),
    Feature("choice-none", "tool calls forbidden", _chat(tools=[TOOL], choice="none"),
            sent=lambda sent: sent.choice == "none" or not sent.tools, words=("tool_choice",)),
    Feature("json", "JSON mode", _chat("Plan a trip, "
    "as JSON.", json=True), {"json": BERN}, {"json": BERN},
            lambda sent: sent.as_json or "JSON" in sent.system,
            words=("response_format", "json_object")),
    Feature("schema", "JSON schema", _chat("Plan a "
    "trip.", schema=TRIP), {}, {"json": BERN}, _schema),
    Feature("schema-streamed", "JSON schema, "
    "streamed", _chat("Plan a trip.", schema=TRIP, stream=True), {},
            {"json": BERN}, _schema),
    Feature("picture", "picture", _chat("What "
    "is it?", {"image": _base64(PICTURE)}), sent=_has_media(PICTURE),
            words=("image",)),
    Feature("picture-link", "link to a picture", _chat("What is it?", {"image_url": LINK}),
            sent=lambda sent: [media.url for media in sent.media] == [LINK],
            words=("image", "link")),
    Feature("document", "PDF", _chat("What "
    "is it?", {"pdf": _base64(DOCUMENT)}), sent=_has_media(DOCUMENT),
            words=("file", "document", "pdf")),
    Feature("sound", "sound", _chat("What "
    "is it?", {"audio": _base64(SOUND)}), sent=_has_media(SOUND),
            words=("audio",)),
    Feature("reasoning", "reasoning", _chat(reasoning=True), _THOUGHT, _THOUGHT),
    Feature("reasoning-streamed", "reasoning, "
    "streamed", _chat(reasoning=True, stream=True), _THOUGHT, _THOUGHT),
    Feature("effort", "reasoning effort", _chat(effort="high"), sent=lambda sent: bool(sent.effort),
            words=("effort", "reasoning", "think")),
    Feature("stop", "stop sequences", _chat(stop=["END", "HALT"]), {"text": f"{PARIS} END more"},
            {"text": PARIS, "finish": "stop"}, lambda sent: sent.stop == ["END", "HALT"],
            words=("stop",)),
    Feature("cut", "cut at the limit", _chat(max_tokens=20), _LONG, {"finish": "length"},
            lambda sent: sent.max_tokens == 20),
    Feature("cut-streamed", "cut at the limit, streamed", _chat(max_tokens=20, stream=True), _LONG,
            {"finish": "length"}, lambda sent: sent.max_tokens == 20),
    Feature("filtered", "stopped by a "
    "content filter", _chat(), {"text": PARIS, "finish": "content_filter"},
            {"finish": "content_filter"}, without=("ollama", "cohere")),
    Feature("sampling", "temperature and top_p", _chat(temperature=0.25, top_p=0.5),
            sent=lambda sent: (sent.temperature, sent.top_p) == (0.25, 0.5)),
    Feature("top-k", "top_k", _chat(top_k=7), sent=lambda sent: sent.top_k == 7, words=("top_k",)),
    Feature("seed", "seed", _chat(seed=1234), sent=lambda sent: sent.seed == 1234, words=("seed",)),
    Feature("penalties", "penalties", _chat(presence_penalty=0.5, frequency_penalty=0.25),
            sent=lambda sent: (sent.presence_penalty, sent.frequency_penalty) == (0.5, 0.25),
            words=("penalty",)),
    Feature("choices", "several choices", _chat(n=2), answer={"choices": [PARIS, PARIS]},
            sent=lambda sent: sent.n == 2, words=("n", "candidateCount", "choices")),
    Feature("logprobs", "log-probabilities", _chat(logprobs=2),
    answer={"text": PARIS, "logprobs": True},
            words=("logprobs", "responseLogprobs")),
    Feature("cache", "prompt cache marks", _chat(system=SYSTEM, cache=True),
            sent=lambda sent: sent.system == SYSTEM and sent.marks > 0, words=("cache_control",)),
    _error(400, "error 400"),
    _error(404, "error 404 of the provider, as 502", seen=502),
    _error(429, "error 429"),
    _error(500, "error 500"),
    Feature("broken", "a response that "
    "breaks off", _chat(stream=True), _LONG | {"fault": "cut; after=6"}, {},
            status=500),
    Feature("cancel", "cancellation", _chat(stream=True, cancel=True), {"text": "word " * 300},
    {"text": ""},
            provider="slow"),
    Feature("count", "token count", _chat(operation="count"), {}, {"count": True}),
    Feature("embeddings", "embeddings", {"operation": "embed", "texts": ["a red "
    "house", "a blue car"]}, {},
            {"vectors": 2}, words=("embed",)),
    Feature("key", "a wrong key", _chat(key="wrong"), {}, {}, status=401, once=True),
    Feature("models", "list of models", {"operation": "models"}, {}, {"models": True}, once=True),
]  # fmt: skip
BY_NAME = {feature.name: feature for feature in FEATURES}
