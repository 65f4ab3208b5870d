"""Relay and assembly of chunks: whole events, unchanged bytes, without the usage chunk, in any
split."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.core.errors import ProviderFault
from splitsecond.core.service import Call
from splitsecond.core.wire.openai.client_side import ChunkAssembly, ChunkRelay, chunks
from splitsecond.core.wire.responses.client_side import ResponseAssembly

CALL = Call(id="c", body={})
ROLE = b'data: {"id":"a","choices":[{"index":0,"delta":{"role":"assistant"}}],"usage":null}\n\n'
PING = b": PROCESSING\n\n"
WORD = b'data: {"id":"a","choices":[{"index":0,"delta":{"content":"\\"choices\\":[]"}}]}\n\n'
STOP = b'data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
FILTER = b'data: {"id":"a","choices":[],"prompt_filter_results":[]}\n\n'
USAGE = b'data: {"id":"a","choices": [ ],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"
BEFORE = FILTER + ROLE + PING + WORD + STOP


def relayed(data: bytes, cuts: list[int], *, usage: bool = False) -> bytes:
    relay = ChunkRelay(CALL, "a/x", usage=usage)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[a:b] for a, b in pairwise(places)]
    return b"".join(map(relay.feed, pieces)) + relay.rest()


cuts = st.lists(st.integers(0, 700))


@given(cuts, st.booleans(), st.booleans())
def test_only_usage_is_removed_in_any_split(cuts: list[int], wanted: bool, crlf: bool) -> None:
    data, expected = BEFORE + USAGE + DONE, BEFORE + (USAGE if wanted else b"") + DONE
    if crlf:
        data, expected = data.replace(b"\n", b"\r\n"), expected.replace(b"\n", b"\r\n")
    assert relayed(data, cuts, usage=wanted) == expected


@given(st.lists(st.sampled_from([FILTER, ROLE, PING, WORD, STOP, USAGE])), cuts)
def test_usage_chunks_are_removed_anywhere(events: list[bytes], cuts: list[int]) -> None:
    expected = b"".join(event for event in events if event != USAGE)
    assert relayed(b"".join(events) + DONE, cuts) == expected + DONE


@given(cuts)
def test_a_missing_end_mark_is_added(cuts: list[int]) -> None:
    assert relayed(BEFORE, cuts) == BEFORE + DONE
    assert relayed(BEFORE + DONE.strip(), cuts) == BEFORE + DONE


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes_pass_in_whole_events(pieces: list[bytes]) -> None:
    relay = ChunkRelay(CALL, "a/x", usage=False)
    out = b"".join(map(relay.feed, pieces))
    if not b"".join(pieces).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        assert b"".join(pieces).startswith(out)


def test_an_unfinished_event_is_not_passed_on() -> None:
    relay = ChunkRelay(CALL, "a/x", usage=False)
    assert relay.feed(WORD + STOP[:30]) == WORD


def test_an_answer_that_is_not_streamed_becomes_a_stream() -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "tool_calls": [{"id": "c", "function": {"name": "f"}}],
    }
    whole = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    for usage in (True, False):
        data = json.dumps(whole | {"usage": {"prompt_tokens": 1}}).encode()
        first, *rest = relayed(data, [5, 9], usage=usage).strip().split(b"\n\n")
        chunk = json.loads(first.removeprefix(b"data: "))
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["choices"][0]["delta"]["content"] == "hi"
        assert chunk["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
        assert "usage" not in chunk
        assert len(rest) == (2 if usage else 1)
        assert rest[-1] == DONE.strip()


def assembled(*chunks: Any, cuts: tuple[int, ...] = (7, 50)) -> Any:
    data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + DONE
    assembly = ChunkAssembly()
    places = [0, *cuts, len(data)]
    for a, b in pairwise(places):
        assembly.feed(data[a:b])
    return json.loads(assembly.answer())


def chunk(index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    head = {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "m",
        "provider": "P",
    }
    return head | {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def test_choices_reasoning_and_unknown_fields_are_assembled() -> None:
    answer = assembled(
        chunk(0, role="assistant", content=""),
        chunk(1, role="assistant", content=None),
        chunk(0, reasoning_content="let me ", odd={"a": "b"}),
        chunk(1, content="two"),
        chunk(0, reasoning_content="see"),
        chunk(0, content="one "),
        chunk(0, content="more"),
        chunk(1, "length"),
        chunk(0, "stop"),
        {"id": "x", "choices": [], "usage": {"prompt_tokens": 1}},
    )
    first, second = answer["choices"]
    assert first["message"] == {
        "role": "assistant",
        "content": "one more",
        "reasoning_content": "let me see",
        "odd": {"a": "b"},
        "refusal": None,
    }
    assert second["message"]["content"] == "two"
    assert [first["finish_reason"], second["finish_reason"]] == ["stop", "length"]
    assert answer["object"] == "chat.completion"
    assert [answer[name] for name in ("id", "created", "model", "provider")] == ["x", 5, "m", "P"]
    assert answer["usage"] == {"prompt_tokens": 1}


def test_tool_calls_are_assembled_by_their_index() -> None:
    def call(index: int, **fields: Any) -> dict[str, Any]:
        return chunk(tool_calls=[{"index": index, **fields}])

    answer = assembled(
        call(0, id="c0", type="function", function={"name": "weather", "arguments": ""}),
        call(0, function={"arguments": '{"city":'}),
        call(1, id="c1", type="function", function={"name": "time", "arguments": "{}"}),
        call(0, id="", function={"arguments": '"Bern"}'}),
        chunk(0, "tool_calls"),
    )
    (choice,) = answer["choices"]
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {
            "id": "c0",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city":"Bern"}'},
        },
        {"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}},
    ]


def test_a_completion_and_log_probabilities_are_assembled() -> None:
    def piece(text: str) -> dict[str, Any]:
        logprobs = {"tokens": [text], "token_logprobs": [-0.5]}
        return {
            "object": "text_completion",
            "choices": [{"index": 0, "text": text, "logprobs": logprobs}],
        }

    answer = assembled(piece("a"), piece("b"))
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "text": "ab",
            "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-0.5, -0.5]},
        }
    ]


def test_an_assembled_chat_is_what_openai_sends_unstreamed() -> None:
    head: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "gpt-5-mini",
    }
    head |= {"service_tier": "default", "system_fingerprint": "fp_1"}

    def piece(delta: Any, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice], "usage": None, "obfuscation": "Xk9"}

    usage = {
        "prompt_tokens": 8,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    answer = assembled(
        piece({"role": "assistant", "content": "", "refusal": None}),
        piece({"content": "Hi"}),
        piece({"content": "!"}),
        piece({}, "stop"),
        {**head, "choices": [], "usage": usage, "obfuscation": "a"},
    )
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi!",
        "annotations": [],
        "refusal": None,
    }
    whole = {
        **{name: head[name] for name in ("id", "object", "created", "model")},
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": usage,
        **{name: head[name] for name in ("service_tier", "system_fingerprint")},
    }
    assert json.dumps(answer) == json.dumps(whole)


def test_the_response_of_the_last_event_passes_byte_for_byte() -> None:
    response = (
        b'{"id":"resp_1", "temperature":1.0,"status":"completed", "output":[ '
        b'],"odd":1e2,"long":12345678901234567890}'
    )
    events = [
        b'{"type":"response.created","response":{"id":"resp_1"}}',
        b'{"type":"response.output_text.delta","delta":"x"}',
    ]
    events.append(
        b'{"type":"response.completed","sequence_number":3, "response":' + response + b"}"
    )
    data = b"".join(b"event: x\ndata: " + event + b"\n\n" for event in events)
    for cut in range(0, len(data), 7):
        assembly = ResponseAssembly()
        assembly.feed(data[:cut])
        assembly.feed(data[cut:])
        assert assembly.answer() == response
    unfinished = ResponseAssembly()
    unfinished.feed(data[: data.index(b"event: x", 9)])
    with pytest.raises(ProviderFault, match="no event with the whole"):
        unfinished.answer()
    with pytest.raises(ProviderFault, match="is not JSON"):
        ResponseAssembly().feed(b"data: {x}\n\n")


def test_unstreamed_json_response_is_not_changed() -> None:
    assembly = ChunkAssembly()
    assembly.feed(b' \n{"choices":[ ')
    assembly.feed(b'],"usage":{"prompt_tokens":1}}')
    assert assembly.answer() == b'{"choices":[ ],"usage":{"prompt_tokens":1}}'


ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[]}',
        b'{"choices":[],"usage": null}',
        b'data: {"choices":[]}\n\n',
        b'data: {"choices":[],"usage":null}\n\n',
    ],
)
def test_usage_is_never_null(body: bytes) -> None:
    assembly = ChunkAssembly()
    assembly.feed(body)
    assert json.loads(assembly.answer())["usage"] == ZEROS
    if body.startswith(b"{"):
        assert not any(b"usage" in chunk for chunk in chunks(body, usage=True))


def test_a_json_body_without_choices_stays_as_it_came() -> None:
    for body in (b'{"data": [1]}', b'{"error": {"usage": null}}', b"{odd"):
        assembly = ChunkAssembly()
        assembly.feed(body)
        assert assembly.answer() == body


def test_an_answer_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitsecond.core.wire.assembly.MAX_ANSWER_BYTES", 100)
    with pytest.raises(ProviderFault, match="longer than 100 bytes"):
        ChunkAssembly().feed(b"x" * 101)
