"""Embeddings: the request, and its answer, which begins where the first vector does."""

import json
from typing import Any

import msgspec
import pytest
from tests.cases import each_case
from tests.wire.conformance import (
    check_any_bytes,
    check_decoder,
    events_of,
    fault_of,
    repeated_at_places,
)

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Done, Token, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, responses
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.openai import embeddings
from splitsecond.core.wire.streaming import Decoder


def make() -> Decoder:
    return openai.decoder("embeddings")


def answer(*vectors: Any, **fields: Any) -> bytes:
    data = [
        {"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    return json.dumps(
        {"object": "list", "data": data, "model": "m", "usage": usage, **fields}
    ).encode()


WHOLE = [
    answer([0.1, -2e-05]),
    answer([0.5], [1.5], [2.5]),
    answer("AACAPwAAAEA="),
    answer([0.5]).replace(b": ", b" :\n "),
    b" \n" + answer([float("nan")]),
]


@repeated_at_places
@pytest.mark.parametrize("body", WHOLE)
def test_decoder_handles_any_split_cut_or_wrong_byte(body: bytes, repeats: int) -> None:
    check_decoder(make, [body], whole=True, places=repeats)
    assert events_of(make, [body]) == [Token(0, "", "embedding"), Usage(0, 8, 0), Done(0, False)]


def test_any_bytes() -> None:
    check_any_bytes(make)


def test_first_vector_is_the_first_token_and_the_body_ends_it() -> None:
    decoder = make()
    body = answer([0.5], [1.5])
    begin = body.index(b"0.5")
    assert decoder.feed(body[: begin - 1], 1) == []
    assert decoder.feed(body[begin - 1 : begin + 1], 2) == [Token(2, "", "embedding")]
    assert decoder.feed(body[begin + 1 :], 3) == []
    assert decoder.close(4) == [Usage(4, 8, 0), Done(4, False)]


@each_case(
    "body, kind, phase",
    [
        (answer(), "empty_answer", "first token"),
        (b'{"object":"list"}', "malformed", "first token"),
        (b'{"error":{"message":"no such model"}}', "in_band_error", "first token"),
        (b"<html>", "truncated", "first token"),
        (b"", "truncated", "first token"),
        (answer([0.5])[:-5], "truncated", "between tokens"),
        (b'{"data":[{"embedding":[1]}],}', "malformed", "between tokens"),
        (answer([0.5], error={"message": "no"}), "in_band_error", "between tokens"),
    ],
)
def test_invalid_embeddings_give_a_fault(body: bytes, kind: str, phase: str) -> None:
    fault = fault_of(events_of(make, [body]))
    assert (fault.kind, fault.phase) == (kind, phase)


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings.ItemsDecoder, "max_json_bytes", 100)
    assert "longer than 100" in fault_of(events_of(make, [answer([0.5] * 20)])).message


def test_request_passes_unchanged_except_for_the_model() -> None:
    fields = {
        "model": "r",
        "input": msgspec.Raw(b'["a",  "b"]'),
        "dimensions": 256,
        "stream": msgspec.Raw(b"false"),
    }
    call = Call(id="c", operation="embeddings", body=fields, stream=False)
    encoded = openai.encode(
        call, "text-embedding", Quirks(max_tokens_field="max_completion_tokens")
    )
    assert encoded.path == "/embeddings"
    assert not encoded.streamed
    assert dict(encoded.headers)["accept"] == "application/json"
    assert encoded.body == b'{"model":"text-embedding","input":["a",  "b"],"dimensions":256}'


@pytest.mark.parametrize("api_format", [anthropic, responses])
def test_other_api_formats_refuse_embeddings(api_format: Any) -> None:
    call = Call(id="c", operation="embeddings", body={"model": "r", "input": "a"}, stream=False)
    with pytest.raises(CallerFault, match="embeddings"):
        api_format.encode(call, "m", Quirks())


RESULTS = [
    b'{"results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.1}],"usage":{"total_tokens":8}}',
    b'{"id":"m","model":"m","results":[{"flagged":false,"categories":{}}],"usage":{"prompt_tokens":8}}',
]


@repeated_at_places
@pytest.mark.parametrize("operation", ["rerank", "moderations"])
@pytest.mark.parametrize("body", RESULTS)
def test_first_result_is_the_first_token(operation: Any, body: bytes, repeats: int) -> None:
    check_decoder(lambda: openai.decoder(operation), [body], whole=True, places=repeats)
    assert events_of(lambda: openai.decoder(operation), [body]) == [
        Token(0, "", "result"),
        Usage(0, 8, 0),
        Done(0, False),
    ]
    early = openai.decoder(operation)
    assert early.feed(body[: body.index(b"[") + 2], 5) == [Token(5, "", "result")]


@pytest.mark.parametrize(
    "body", [b'{"results":[]}', b'{"data":[{"index":0}]}', b'{"error":{"message":"no"}}', b"{"]
)
def test_body_without_results_gives_a_fault(body: bytes) -> None:
    assert fault_of(events_of(lambda: openai.decoder("rerank"), [body]))


@pytest.mark.parametrize("operation", ["rerank", "moderations"])
def test_rankings_and_moderations_need_a_format_with_them(operation: Any) -> None:
    call = Call(
        id="c",
        operation=operation,
        body={"query": "q", "documents": ["a"], "stream": True, "odd": 1},
    )
    request = openai.encode(call, "m", Quirks())
    assert (request.path, request.streamed) == (f"/{operation}", False)
    assert json.loads(request.body) == {"query": "q", "documents": ["a"], "odd": 1, "model": "m"}
    others = (anthropic, gemini, ollama)
    for api_format in (*others, cohere) if operation == "moderations" else others:
        with pytest.raises(CallerFault, match=operation):
            api_format.encode(call, "m", Quirks())
