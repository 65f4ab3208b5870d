"""Assembly of events that only add to a text: the same result as with each event decoded and
merged."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.power import repeated

from splitsecond.core.errors import ProviderFault
from splitsecond.core.wire.anthropic.client_side import MessageAssembly
from splitsecond.core.wire.assembly import Added, Assembly
from splitsecond.core.wire.openai.client_side import ChunkAssembly
from splitsecond.core.wire.text_events import TextEvents

TEXTS = (
    "Hello",
    " world",
    'a "quote"',
    "line\nbreak",
    "\\",
    "é",
    "😀",
    "",
    " ",
    "\t",
    "}",
    "data: x",
    "null",
)


class SlowChunks(ChunkAssembly):
    """Merges every event."""

    def merge(self, chunk: dict[str, Any], name: str) -> Added:
        super().merge(chunk, name)
        return []


class SlowMessage(MessageAssembly):
    """Merges every event."""

    def merge(self, chunk: dict[str, Any], name: str) -> Added:
        super().merge(chunk, name)
        return []


def chunk(random: Random, delta: Any, head: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        **head,
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }
    rare = random.random()
    if rare < 0.05:
        fields["choices"][0]["index"] = random.choice([1, 2, "x", None])
    elif rare < 0.1:
        fields["model"] = random.choice(["m", "other"])
    elif rare < 0.13:
        fields["citations"] = [random.random()]
    elif rare < 0.16:
        fields["usage"] = {
            "completion_tokens": random.randrange(9),
            "details": {"text": "t", "n": [1]},
        }
    elif rare < 0.18:
        fields["choices"].append({"index": 1, "delta": {"content": "second"}})
    elif rare < 0.2:
        fields["choices"][0]["logprobs"] = {"content": [{"token": "t", "logprob": -1.5}]}
    elif rare < 0.21:
        fields["obfuscation"] = random.choice(TEXTS)
    elif rare < 0.22:
        fields["choices"][0]["text"] = random.choice(TEXTS)
    return fields


def chunk_delta(random: Random) -> dict[str, Any]:
    text = random.choice(TEXTS)
    kind = random.random()
    if kind < 0.6:
        return {"content": text}
    if kind < 0.7:
        return {"content": None, "reasoning_content": text}
    if kind < 0.75:
        return {"role": "assistant", "content": text}
    if kind < 0.8:
        return {"refusal": text}
    if kind < 0.85:
        call = {
            "index": random.randrange(2),
            "id": "call",
            "function": {"name": "f", "arguments": text},
        }
        return {"tool_calls": [call]}
    if kind < 0.9:
        return {"content": text, "unknown": {"deep": [text, {"a": 1}], "text": text}}
    return random.choice([{}, {"content": ["a"]}, {"content": text, "extra": text}, {"content": 5}])


def chat(random: Random) -> list[tuple[str, str]]:
    """A stream of chunks, mostly with the next piece of a text."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    if random.random() < 0.2:
        head["system_fingerprint"] = random.choice(["Hello", "fp"])  # the same bytes as a text
    deltas = [chunk_delta(random) for _ in range(3)]
    events = []
    for _ in range(40):
        if random.random() < 0.7:  # stays in one mode
            delta = {
                name: random.choice(TEXTS) if isinstance(v, str) else v
                for name, v in deltas[0].items()
            }
        else:
            delta = chunk_delta(random)
        events.append(("", encoded(random, chunk(random, delta, head))))
    return events


def message(random: Random) -> list[tuple[str, str]]:
    """A stream of Messages."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}}
    ]
    for index in range(3):
        events.append(
            {
                "type": "content_block_start",
                "index": index,
                "content_block": {"type": "text", "text": "s"},
            }
        )
        name = random.choice(["text", "thinking", "partial_json", "signature"])
        for _ in range(12):
            delta: dict[str, Any] = {"type": f"{name}_delta", name: random.choice(TEXTS)}
            rare = random.random()
            if rare < 0.1:
                delta["citation"] = {"cited": "x"}
            elif rare < 0.2:
                delta["other"] = random.choice([None, 1, "joined", ["list"]])
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 3},
        }
    )
    return [(event["type"], encoded(random, event)) for event in events]


def encoded(random: Random, fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=random.random() < 0.1, separators=(",", ":"))


def framed(random: Random, events: list[tuple[str, str]]) -> bytes:
    """The events as bytes, some in unusual ways."""
    end = "\r\n" if random.random() < 0.1 else "\n"
    data = ""
    for name, event in events:
        rare = random.random()
        data += f"event: {name}{end}" if name else ""
        if rare < 0.02:
            data += f": comment{end}{end}"
        elif rare < 0.04:
            data += f"id: 7{end}"
        elif rare < 0.06:
            event = event.replace('"', "'", 1)  # no JSON
        elif rare < 0.08:
            event = event.replace("Hello", "\\ud83d")
        data += f"data: {event}{end}{end}" if rare < 0.95 else f"data:{event}{end}{end}"
    return (data + f"data: [DONE]{end}{end}").encode()


def outcome(make: Callable[[], Assembly], pieces: list[bytes]) -> Any:
    assembly = make()
    try:
        for piece in pieces:
            assembly.feed(piece)
        return assembly.answer()
    except ProviderFault as fault:
        return fault.message


@repeated(few=50, full=150)
@pytest.mark.parametrize(
    ("make", "fast", "slow"),
    [(chat, ChunkAssembly, SlowChunks), (message, MessageAssembly, SlowMessage)],
)
def test_any_stream_gives_the_same_response(
    make: Callable[[Random], list[tuple[str, str]]],
    fast: type[Assembly],
    slow: type[Assembly],
    repeats: int,
) -> None:
    answers = set()
    for seed in range(repeats):
        random = Random(seed)
        data = framed(random, make(random))
        expected = outcome(slow, [data])
        answers.add(type(expected))
        assert outcome(fast, [data]) == expected, data
        cuts = sorted(random.sample(range(len(data)), 5))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert outcome(fast, pieces) == expected, pieces
    assert answers == {bytes, str}  # whole answers, and faults


@repeated(few=100, full=1_000_000)
@pytest.mark.parametrize(("make", "fast"), [(chat, ChunkAssembly), (message, MessageAssembly)])
def test_stream_split_anywhere_gives_the_same_response(
    make: Callable[[Random], list[tuple[str, str]]], fast: type[Assembly], repeats: int
) -> None:
    for seed in range(3):
        random = Random(seed)
        data = framed(random, make(random)[:12])
        expected = outcome(fast, [data])
        assert outcome(fast, [bytes([byte]) for byte in data]) == expected
        for cut in random.sample(range(len(data)), min(repeats, len(data))):
            assert outcome(fast, [data[:cut], data[cut:]]) == expected, cut


@pytest.mark.parametrize(("make", "type_"), [(chat, ChunkAssembly), (message, MessageAssembly)])
def test_text_events_are_not_merged_one_by_one(
    make: Any, type_: type[Assembly], monkeypatch: pytest.MonkeyPatch
) -> None:
    merged: list[dict[str, Any]] = []
    merge = type_.merge

    def recorded(self: Any, event: dict[str, Any], name: str) -> Added:
        merged.append(event)
        return merge(self, event, name)

    monkeypatch.setattr(type_, "merge", recorded)
    if make is chat:
        event = (
            '{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":%s},'
            '"finish_reason":null}]}'
        )
        data = "".join(f"data: {event % json.dumps(f'w{n}')}\n\n" for n in range(100))
    else:
        event = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}'
        data = "".join(
            f"event: content_block_delta\ndata: {event % json.dumps(f'w{n}')}\n\n"
            for n in range(100)
        )
    whole = outcome(type_, [data.encode()])
    assert len(merged) == 3  # the first two, and one that probes what was learned
    assert "".join(f"w{n}" for n in range(100)).encode() in whole


def test_event_of_several_lines_is_no_template() -> None:
    events = TextEvents()
    assert not events.learn(b'{"a":\n"text"}', "", "text", lambda data: json.loads(data)["a"])
    assert events.learn(b'{"a":"text"}', "", "text", lambda data: json.loads(data)["a"])
    assert events.read(b'data: {"a":"x"}\n\ndata: {"a":"\\""}\n\ndata: {"b"', 0) == (["x", '"'], 35)
    assert events.read(b'data: {"a":"x","b":"y"}\n\n', 0) == ([], 0)


def test_template_without_matches_is_dropped() -> None:
    events = TextEvents()
    assert events.learn(b'{"a":"text"}', "", "text", lambda data: json.loads(data)["a"])
    for _ in range(100):
        assert events.read(b'data: {"a":"x","b":"y"}\n\n', 0) == ([], 0)
    assert not events.current
    assert not events.useful
