"""Answers carried on for clients of Anthropic's Messages and of Responses: one message, one row of
parts, one end."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.policies.branches import play
from tests.policies.resumed import CUT, Received, Stream, chunked, receive
from tests.policies.test_delivered import pieces

from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.events import Done, Event, Finish, Token, ToolPart, Usage
from splitsecond.core.service import Call, Service, Spoken
from splitsecond.core.upstream.transcoding import continuation_encoder, transcoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_states import TargetStates

API_FORMATS: list[Spoken] = ["anthropic", "responses"]
BOTH = 'resume("a", "b")'
BODIES: dict[str, dict[str, Any]] = {
    "anthropic": {"messages": [{"role": "user", "content": "Tell me."}], "max_tokens": 100},
    "responses": {"input": "Tell me."},
}
Part = tuple[str, str, str]
"""Its kind, the name of the tool that is called, and its text."""


def asked(api_format: Spoken, identity: str = "req-1", **fields: Any) -> Call:
    return Call(id=identity, api_format=api_format, body=BODIES[api_format] | fields)


def tokens(parts: Sequence[Part], data: st.DataObject | None = None) -> list[Event]:
    """The parts in tokens, of any lengths where `data` says them."""
    events: list[Event] = []
    calls = 0
    for kind, name, text in parts:
        cut = [text] if data is None else pieces(text, data)
        if kind == "tool":
            events.append(Token(0, name, "tool", tool=ToolPart(calls, f"id_{calls}", name)))
            events += [Token(0, piece, "tool", tool=ToolPart(calls)) for piece in cut]
            calls += 1
        else:
            events += [
                Token(0, piece, "reasoning" if kind == "reasoning" else "text") for piece in cut
            ]
    return events


def stream(api_format: Spoken, name: str, said: Sequence[Event], reason: str = "stop") -> bytes:
    end: list[Event] = [Finish(0, reason), Usage(0, 11, 22), Done(0, marker=True)]
    return transcoder(asked(api_format, name), name).encode([*said, *end])


def begun(data: bytes, *, newline: bytes = b"\n") -> int:
    """How many bytes of it have come when there is a reply: those up to the end of the first
    token's event."""
    first = min(
        at
        for mark in (b"_delta", b".delta", b"tool_use", b"function_call")
        if (at := data.find(mark)) > 0
    )
    return data.index(newline * 2, first) + 2 * len(newline)


class Read:
    """What a client makes of a stream, strictly: `parts` as far as they came, `over` where the
    answer ended."""

    def __init__(self, api_format: Spoken, data: bytes) -> None:
        self.parts: list[list[str]] = []
        self.ids: set[str] = set()
        self.signatures: list[str] = []
        self.over = False
        self.reason = ""
        self.output_tokens = 0
        self._open = False
        self._count = 0
        for block in filter(None, data.replace(b"\r\n", b"\n").split(b"\n\n")):
            line = next(line for line in block.split(b"\n") if line.startswith(b"data: "))
            event = json.loads(line.removeprefix(b"data: "))
            assert not self.over
            (self._message if api_format == "anthropic" else self._response)(event)
            self._count += 1

    def _message(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "message_start":
                assert self._count == 0
                self.ids.add(event["message"]["id"])
            case "content_block_start":
                assert not self._open
                assert event["index"] == len(self.parts)
                block = event["content_block"]
                kinds = {
                    "thinking": "reasoning",
                    "tool_use": "tool",
                    "redacted_thinking": "hidden",
                    "text": "text",
                }
                kind = kinds[block["type"]]
                self.parts.append([kind, block.get("name", ""), ""])
                self._open = True
            case "content_block_delta" if "signature" in event["delta"]:
                assert self.parts[-1][0] == "reasoning"
                self.signatures.append(event["delta"]["signature"])
            case "content_block_delta":
                assert self._open
                assert event["index"] == len(self.parts) - 1
                delta = event["delta"]
                kind = {
                    "text_delta": "text",
                    "thinking_delta": "reasoning",
                    "input_json_delta": "tool",
                }[delta["type"]]
                assert kind == self.parts[-1][0]
                self.parts[-1][2] += next(
                    delta[name] for name in ("text", "thinking", "partial_json") if name in delta
                )
            case "content_block_stop":
                assert self._open
                assert event["index"] == len(self.parts) - 1
                self._open = False
            case "message_delta":
                assert not self.reason
                self.reason = event["delta"]["stop_reason"]
                self.output_tokens = event["usage"]["output_tokens"]
            case "message_stop":
                assert not self._open
                assert self.reason
                self.over = True

    def _response(self, event: dict[str, Any]) -> None:
        assert event["sequence_number"] == self._count
        kind = event["type"]
        if "output_index" in event:
            assert event["output_index"] == len(self.parts) - (kind != "response.output_item.added")
        match kind:
            case "response.created":
                assert self._count == 0
                self.ids.add(event["response"]["id"])
            case "response.output_item.added":
                assert not self._open
                item = event["item"]
                kinds = {"function_call": "tool", "reasoning": "reasoning", "message": "text"}
                self.parts.append([kinds[item["type"]], item.get("name", ""), ""])
                self.item, self._open = item["id"], True
            case "response.output_item.done":
                assert self._open
                assert self.parts[-1] == self._part(event["item"])
                assert event["item"]["id"] == self.item
                self._open = False
            case "response.completed" | "response.incomplete":
                assert not self._open
                assert [self._part(item) for item in event["response"]["output"]] == self.parts
                self.ids.add(event["response"]["id"])
                self.over = True
                self.reason = event["response"]["status"]
                self.output_tokens = event["response"]["usage"]["output_tokens"]
            case _ if kind.endswith(".delta"):
                assert self._open
                assert event["item_id"] == self.item
                self.parts[-1][2] += event["delta"]
            case _ if kind.endswith("text.done"):
                assert event["text"] == self.parts[-1][2]
            case _ if kind.endswith("arguments.done"):
                assert event["arguments"] == self.parts[-1][2]

    @staticmethod
    def _part(item: dict[str, Any]) -> list[str]:
        match item:
            case {"type": "function_call"}:
                return ["tool", item["name"], item["arguments"]]
            case {"type": "reasoning"}:
                return ["reasoning", "", "".join(part["text"] for part in item["summary"])]
        return ["text", "", "".join(part["text"] for part in item["content"])]

    def _said(self) -> list[list[str]]:
        """The parts with content: the broken response may have begun a part that the other one
        lacks."""
        return [part for part in self.parts if part[2] or part[0] in ("tool", "hidden")]

    def is_whole(self, parts: Sequence[Part]) -> bool:
        return self.over and self._said() == [list(part) for part in parts]

    def begins(self, parts: Sequence[Part]) -> bool:
        """Whether it is a beginning of `parts`, and has no end."""
        if self.over or len(said := self._said()) > len(parts):
            return False
        pairs = zip(said, parts, strict=False)
        *before, last = [(list(whole), part) for part, whole in pairs] or [([], [])]
        return all(whole == part for whole, part in before) and (
            not last[1] or (last[0][:2] == last[1][:2] and last[0][2].startswith(last[1][2]))
        )


def carried(call: Call, *targets: Stream, policy: str = 'resume("a", "b", "c")') -> Received:
    """What the client of `call` hears of a policy over `targets`."""
    by_name: dict[str, Service] = {target.target: target for target in targets}
    received = Received()

    async def main() -> None:
        nonlocal received
        service = build(
            parse(policy), by_name.__getitem__, TargetStates(), make_encoder=continuation_encoder
        )
        received = await receive(service, call)

    play(main)
    return received


TEXTS = st.text(min_size=1, max_size=8) | st.text("ab", min_size=1, max_size=8)
ANSWERS = st.lists(
    st.tuples(st.sampled_from(["text", "reasoning"]), st.just(""), TEXTS)
    | st.tuples(st.just("tool"), st.sampled_from(["f", "go"]), TEXTS),
    min_size=1,
    max_size=4,
).map(
    lambda parts: [
        part
        for n, part in enumerate(parts)
        if part[0] == "tool" or n == 0 or part[0] != parts[n - 1][0]
    ]
)


@pytest.mark.parametrize("api_format", API_FORMATS)
@given(parts=ANSWERS, data=st.data())
def test_resumed_response_is_whole_wherever_it_broke(
    api_format: Spoken, parts: list[Part], data: st.DataObject
) -> None:
    """The stream is cut at any byte. One of two targets continues it, in any tokens; the other may
    break too."""
    newline = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    first = stream(api_format, "a", tokens(parts, data)).replace(b"\n", newline)
    cut = data.draw(st.integers(begun(first, newline=newline), first.rindex(b"event: ")))
    again = stream(api_format, "b", tokens(parts, data), "length")
    until = data.draw(st.none() | st.integers(1, len(again)))
    last = stream(api_format, "c", tokens(parts, data), "length")
    received = carried(
        asked(api_format),
        Stream("a", chunked(first[:cut], data), CUT),
        Stream("b", chunked(again[:until], data), CUT if until else None),
        Stream("c", chunked(last, data)),
    )
    assert received.fault is None
    read = Read(api_format, received.data)
    assert read.is_whole(parts)
    assert len(read.ids) == 1
    assert read.output_tokens == 22


@pytest.mark.parametrize("api_format", API_FORMATS)
@given(parts=ANSWERS, others=st.tuples(ANSWERS, ANSWERS), data=st.data())
def test_response_is_whole_or_a_beginning_and_an_error(
    api_format: Spoken,
    parts: list[Part],
    others: tuple[list[Part], list[Part]],
    data: st.DataObject,
) -> None:
    first = stream(api_format, "a", tokens(parts, data))
    cut = data.draw(st.integers(begun(first), len(first)))
    targets = [Stream("a", chunked(first[:cut], data), CUT)]
    for name, other in zip("bc", others, strict=True):
        sent = stream(api_format, name, tokens(other, data))
        until = data.draw(st.none() | st.integers(1, len(sent)))
        targets.append(Stream(name, chunked(sent[:until], data), CUT if until else None))
    received = carried(asked(api_format), *targets)
    read = Read(api_format, received.data)
    if received.fault is None:
        assert any(read.is_whole(answer) for answer in (parts, *others))
        assert len(read.ids) == 1
    else:
        assert received.fault is CUT
        assert any(read.begins(answer) for answer in (parts, *others))


WHOLE: list[Part] = [
    ("reasoning", "", "Hm."),
    ("text", "", "Once upon"),
    ("hidden", "", ""),
    ("tool", "f", '{"a":1}'),
]


def signed(name: str, *, until: str = "") -> bytes:
    """An answer as Anthropic itself gives it, with a thought that `name` signed, and one that is
    hidden.

    It is cut before the event with `until` in it.
    """
    deltas: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
        (
            "thinking",
            {"thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": "Hm."}],
        ),
        (
            "text",
            {"text": ""},
            [{"type": "text_delta", "text": "Once "}, {"type": "text_delta", "text": "upon"}],
        ),
        ("redacted_thinking", {"data": "aGlkZGVu"}, []),
        (
            "tool_use",
            {"id": "t", "name": "f", "input": {}},
            [{"type": "input_json_delta", "partial_json": '{"a":1}'}],
        ),
    ]
    deltas[0][2].append({"type": "signature_delta", "signature": name})
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": name, "usage": {"input_tokens": 3}}}
    ]
    for index, (kind, block, said) in enumerate(deltas):
        events.append(
            {
                "type": "content_block_start",
                "index": index,
                "content_block": {"type": kind, **block},
            }
        )
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in said
        ]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 9},
        }
    )
    events.append({"type": "message_stop"})
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    kept = next((at for at, line in enumerate(lines) if until and until in line), len(lines))
    return "".join(lines[:kept]).encode()


@pytest.mark.parametrize(
    "until", ['"tool_use"', "partial_json", '"index": 3}', "message_delta", "message_stop"]
)
def test_delivered_reasoning_keeps_its_signature(until: str) -> None:
    received = carried(
        asked("anthropic"),
        Stream("a", [signed("a", until=until)], CUT),
        Stream("b", [signed("b")]),
        policy=BOTH,
    )
    read = Read("anthropic", received.data)
    assert received.fault is None
    assert read.is_whole(WHOLE)
    assert (read.signatures, read.reason, read.output_tokens) == (["a"], "tool_use", 9)


@pytest.mark.parametrize("until", ["signature_delta", '"Once "', '"upon"', '"redacted_thinking"'])
def test_signed_or_hidden_reasoning_is_not_resumed(until: str) -> None:
    received = carried(
        asked("anthropic"),
        Stream("a", [signed("a", until=until)], CUT),
        Stream("b", [signed("b")]),
        policy=BOTH,
    )
    read = Read("anthropic", received.data)
    assert received.fault is CUT
    assert read.begins(WHOLE)
    assert "b" not in read.signatures
    assert b"hidden" not in received.data


@pytest.mark.parametrize("until", ["signature_delta", '"index": 0}', '"Once "'])
def test_unsigned_continuation_does_not_extend_signed_reasoning(until: str) -> None:
    """Delivered reasoning stays as it is, also without a signature; signed reasoning does not
    grow."""
    for thought, is_whole in (("Hm.", True), ("Hm. Well.", until == "signature_delta")):
        again: list[Part] = [
            ("reasoning", "", thought),
            ("text", "", "Once"),
            ("text", "", " more"),
        ]
        first = Stream("a", [signed("a", until=until)], CUT)
        received = carried(
            asked("anthropic"),
            first,
            Stream("b", [stream("anthropic", "b", tokens(again))]),
            policy=BOTH,
        )
        read = Read("anthropic", received.data)
        assert (received.fault is None) == is_whole
        assert read.is_whole([again[0], ("text", "", "Once more")]) == is_whole


@each_case(
    ("api_format", "fields"),
    [
        (
            "anthropic",
            {"tools": [{"name": "f"}, {"type": "web_search_20250305", "name": "web_search"}]},
        ),
        ("responses", {"tools": [{"type": "function", "name": "f"}, {"type": "web_search"}]}),
        ("responses", {"tools": [{"type": "custom", "name": "f"}]}),
        ("responses", {"tools": "all"}),
        ("responses", {"include": ["message.output_text.logprobs"]}),
        ("responses", {"top_logprobs": 2}),
    ],
)
def test_response_with_provider_specific_fields_is_not_resumed(
    api_format: Spoken, fields: dict[str, Any]
) -> None:
    first = stream(api_format, "a", tokens(WHOLE[1:2]))
    cut = Stream("a", [first[: begun(first)]], CUT)
    received = carried(asked(api_format, **fields), cut, Stream("b", [first]), policy=BOTH)
    assert received.fault is CUT
    assert received.data == first[: begun(first)]


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_client_tool_calls_are_resumed(api_format: Spoken) -> None:
    tools = (
        [{"name": "f"}, {"type": "custom", "name": "g"}]
        if api_format == "anthropic"
        else [{"type": "function"}]
    )
    first = stream(api_format, "a", tokens(WHOLE[-1:]))
    cut = Stream("a", [first[: begun(first)]], CUT)
    raw = msgspec.Raw(msgspec.json.encode(tools))
    received = carried(asked(api_format, tools=raw), cut, Stream("b", [first]), policy=BOTH)
    assert Read(api_format, received.data).is_whole(WHOLE[-1:])


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_broken_whole_response_is_requested_again(api_format: Spoken) -> None:
    first, again = (
        stream(api_format, "a", tokens(WHOLE[1:2])),
        stream(api_format, "b", tokens([("text", "", "Else")])),
    )
    whole = msgspec.structs.replace(asked(api_format), stream=False)
    received = carried(
        whole, Stream("a", [first[: begun(first)]], CUT), Stream("b", [again]), policy=BOTH
    )
    assert received.data == again


def responses_stream(name: str) -> list[bytes]:
    """A response of some servers: visible reasoning in two parts, and a message of two parts."""
    items: list[tuple[dict[str, Any], str, str, list[str]]] = [
        ({"type": "reasoning"}, "summary", "summary_text", ["Hm.", "Well."]),
        ({"type": "reasoning"}, "content", "reasoning_text", ["So."]),
        ({"type": "message", "role": "assistant"}, "content", "output_text", ["Once ", "upon"]),
    ]
    names = {
        "summary_text": "reasoning_summary_text",
        "reasoning_text": "reasoning_text",
        "output_text": "output_text",
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": name, "status": "in_progress"}}
    ]
    output = []
    for index, (item, field, kind, texts) in enumerate(items):
        item = {"id": f"{name}{index}", **item}
        events.append(
            {
                "type": "response.output_item.added",
                "item": {**item, field: []},
                "output_index": index,
            }
        )
        around = (
            "response.reasoning_summary_part" if field == "summary" else "response.content_part"
        )
        for number, text in enumerate(texts):
            at = {"item_id": item["id"], "output_index": index, f"{field}_index": number}
            deltas = f"response.{names[kind]}"
            events += [
                {"type": f"{around}.added", "part": {"type": kind, "text": ""}, **at},
                {"type": f"{deltas}.delta", "delta": text[:1], **at},
                {"type": f"{deltas}.delta", "delta": text[1:], **at},
                {"type": f"{deltas}.done", "text": text, **at},
                {"type": f"{around}.done", "part": {"type": kind, "text": text}, **at},
            ]
        output.append(
            {**item, field: [{"type": kind, "text": text} for text in texts], "status": "completed"}
        )
        events.append(
            {"type": "response.output_item.done", "item": output[-1], "output_index": index}
        )
    last = {
        "id": name,
        "status": "completed",
        "output": output,
        "usage": {"input_tokens": 1, "output_tokens": 9},
    }
    events.append({"type": "response.completed", "response": last})
    return [
        f"event: {event['type']}\ndata: "
        f"{json.dumps({**event, 'sequence_number': number})}\n\n".encode()
        for number, event in enumerate(events)
    ]


@each_case("cut", range(4, len(responses_stream("a"))))
def test_items_of_responses_are_resumed_wherever_they_broke(cut: int) -> None:
    first, again = responses_stream("a"), responses_stream("b")
    received = carried(
        asked("responses"),
        Stream("a", first[:cut], CUT),
        Stream("b", [b"".join(again)]),
        policy=BOTH,
    )
    said = [
        json.loads(event.split(b"\ndata: ")[1]) for event in received.data.split(b"\n\n") if event
    ]
    assert [event["sequence_number"] for event in said] == list(range(len(said)))
    delivered = "".join(event["delta"] for event in said if event["type"].endswith(".delta"))
    whole = "Hm.Well.So.Once upon"
    assert whole.startswith(delivered)
    if received.fault is None:
        assert delivered == whole
        response = said[-1]["response"]
        assert (response["id"], response["status"]) == ("a", "completed")
        texts = [
            part["text"]
            for item in response["output"]
            for part in item.get("summary", item.get("content"))
        ]
        assert "".join(texts) == whole
    # a part that has ended does not go on, and nobody knows that another of its kind was to come
    else:
        assert received.fault is CUT
        assert first[cut - 1].split(b"\n")[0].endswith(b".done")


SMALL = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.just("text")
    | st.just("message")
)
FLAT = SMALL | st.lists(SMALL, max_size=2)
JSON = FLAT | st.dictionaries(
    st.sampled_from(["type", "index", "text", "content", "summary", "id"]), FLAT, max_size=3
)
EVENTS = {
    "anthropic": [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
    ],
    "responses": [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
    ],
}
FIELDS = [
    "index",
    "output_index",
    "content_index",
    "sequence_number",
    "item",
    "part",
    "delta",
    "content_block",
]


@pytest.mark.parametrize("api_format", API_FORMATS)
@given(data=st.data())
def test_continuation_after_any_events_works_or_is_refused(
    api_format: Spoken, data: st.DataObject
) -> None:
    telling = continuation_encoder(asked(api_format))
    assert telling is not None
    for kind in data.draw(st.lists(st.sampled_from(EVENTS[api_format]), max_size=6)):
        event = {
            "type": kind,
            **data.draw(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4)),
        }
        telling.decode(telling.cut(b"data: " + msgspec.json.encode(event) + b"\n\n"), 0)
    events: list[Event] = [Token(0, "a"), Finish(0, "stop"), Usage(0, 1, 2), Done(0, marker=True)]
    with suppress(CallerFault, ProviderFault):
        assert b"".join(map(telling.encode, events)).endswith(b"\n\n")
