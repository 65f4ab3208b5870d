"""A stream is assembled to the same bytes with and without fast paths, in one piece or in two."""

from typing import Any

import msgspec
import pytest
from tests.cases import each_case
from tests.wire.test_text_events import SlowChunks, outcome

from splitsecond.core.wire.openai.client_side import ChunkAssembly
from splitsecond.core.wire.openai.plain_stream import plain_answer

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
DONE = b"data: [DONE]\n\n"


def chunk(
    delta: dict[str, Any] | None = None, reason: str | None = None, **fields: Any
) -> dict[str, Any]:
    choices = (
        []
        if delta is None
        else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
    )
    return {**HEAD, "choices": choices, **fields}


def stream(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(each) for each in chunks) + DONE


def check(body: bytes) -> None:
    """Check that each way to assemble `body` gives the same."""
    expected = outcome(SlowChunks, [body])
    assert outcome(ChunkAssembly, [body]) == expected
    assert outcome(ChunkAssembly, [body[:-5], body[-5:]]) == expected


ROLE = chunk({"role": "assistant", "content": ""})
TEXTS = [
    chunk({"content": text})
    for text in ("Zwei ", "“Wörter”\n", 'and a "quote" \\', "\u2028\U0001f600")
]
FINISH = chunk({}, "stop")
USAGE = chunk(
    usage={
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "ratio": 0.5,
        "d": {"x": None},
    }
)

PLAIN = {
    "no usage": [ROLE, *TEXTS, FINISH],
    "usage": [ROLE, *TEXTS, FINISH, USAGE],
    "usage in the finish": [ROLE, *TEXTS, chunk({}, "stop", usage={"total_tokens": 5})],
    "text in "
    "both": [chunk({"role": "assistant", "content": "a"}), chunk({"content": "b"}, "length")],
    "null fields": [
        chunk({"role": "assistant", "content": None, "refusal": None}, usage=None,
        service_tier=None),
        *(chunk({"content": text}, usage=None, service_tier=None) for text in "abc"),
        chunk({}, "stop", usage=None, service_tier=None),
        chunk(usage={"total_tokens": 1}, service_tier=None),
    ],
    "OpenAI's own fields": [
        {**each, "service_tier": "default", "system_fingerprint": "fp_1", "obfuscation": "x" * n}
        for n, each in enumerate([chunk({"role": "assistant", "content": "", "refusal": None}),
        *TEXTS, FINISH, USAGE])
    ],
    "choices before "
    "the rest": [{"choices": each["choices"], **HEAD} for each in (ROLE, *TEXTS, FINISH)],
    "one chunk": [chunk({"role": "assistant", "content": "all"}, "stop")],
}  # fmt: skip


OTHERS = {
    "another "
    "choice": [ROLE, *TEXTS, {**HEAD, "choices": [{"index": 1, "delta": {"content": "b"}}]},
    FINISH],
    "an unknown field": [ROLE, *TEXTS, {**FINISH, "citations": ["https://a.example"]}],
    "an unknown field in "
    "the delta": [chunk({"role": "assistant", "reasoning_content": "hm"}), *TEXTS, FINISH],
    "a tool "
    "call": [ROLE, chunk({"tool_calls": [{"index": 0, "function": {"name": "f"}}]}),
    chunk({}, "tool_calls")],
    "another id": [ROLE, *TEXTS, {**FINISH, "id": "other"}],
    "no finish reason": [ROLE, *TEXTS],
    "no text": [ROLE, FINISH],
    "logprobs": [ROLE, {**HEAD, "choices": [
    {**TEXTS[0]["choices"][0], "logprobs": {"content": []}}]}, FINISH],
    "empty usage": [ROLE, *TEXTS, chunk({}, "stop", usage={})],
    "a word in "
    "the usage": [ROLE, *TEXTS, chunk({}, "stop", usage={"total_tokens": 1, "cost": "cheap"})],
}  # fmt: skip


@each_case("name", PLAIN)
def test_plain_streams(name: str) -> None:
    assert plain_answer(stream(*PLAIN[name])) is not None
    check(stream(*PLAIN[name]))


@each_case("name", OTHERS)
def test_other_streams(name: str) -> None:
    assert plain_answer(stream(*OTHERS[name])) is None
    check(stream(*OTHERS[name]))


@each_case(
    "body",
    [
        b": ping\n\n" + stream(ROLE, *TEXTS, FINISH),
        stream(ROLE, *TEXTS, FINISH).replace(b"\n\n", b"\r\n\r\n"),
        stream(ROLE, *TEXTS, FINISH).replace(b"data: ", b"data:"),
        stream(ROLE, *TEXTS, FINISH).replace(b'"Zwei ', b'"Zwei\n\ndata: '),
        stream(ROLE, *TEXTS, FINISH).removesuffix(DONE),
        b"data: {" + DONE,
        DONE,
        b"",
    ],
)
def test_other_bytes(body: bytes) -> None:
    assert plain_answer(body) is None
    check(body)


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"])
def test_line_end_inside_an_event(end: bytes) -> None:
    event = b"data: " + msgspec.json.encode(TEXTS[0])
    for place in [place for place in range(len(event)) if event[place : place + 1] in b",:{}[]"][
        1:
    ]:
        body = stream(ROLE, *TEXTS, FINISH).replace(event, event[:place] + end + event[place:])
        assert plain_answer(body) is None
        check(body)


def test_comments_after_the_end_mark_are_ignored() -> None:
    body = stream(ROLE, *TEXTS, FINISH)
    assert outcome(ChunkAssembly, [body, b": bye\n\n"]) == outcome(SlowChunks, [body])
