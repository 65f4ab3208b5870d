"""Rankings at Cohere, for clients of OpenAI's paths."""

import json
from typing import Any

import pytest
from tests.wire.conformance import check_decoder, events_of, fault_of

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Done, Quiet, Token, Usage
from splitsecond.core.service import Call
from splitsecond.core.upstream.transcoding import transcoder
from splitsecond.core.wire import cohere
from splitsecond.core.wire.api_format import Quirks

RESULTS = '[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.1}]'
BODY = f'{{"results":{RESULTS},"meta":{{"billed_units":{{"search_units":1}}}}}}'.encode()


def call(**fields: Any) -> Call:
    return Call(id="c", operation="rerank", body={"query": "q", "documents": ["a"], **fields})


def test_request_has_the_documents_as_texts() -> None:
    asked = call(documents=["a", {"text": "b"}], top_n=1, return_documents=True)
    request = cohere.encode(asked, "m", Quirks())
    assert (request.path, request.streamed) == ("/rerank", False)
    assert json.loads(request.body) == {
        "model": "m",
        "query": "q",
        "documents": ["a", "b"],
        "top_n": 1,
    }


@pytest.mark.parametrize("documents", [[], [{"image": "b"}], "a"])
def test_documents_that_are_no_texts_are_refused(documents: Any) -> None:
    with pytest.raises(CallerFault, match="Cohere"):
        cohere.encode(call(documents=documents), "m", Quirks())


def test_results_pass_unchanged_to_the_client() -> None:
    check_decoder(lambda: cohere.decoder("rerank"), [BODY], whole=True, places=1)
    events = events_of(lambda: cohere.decoder("rerank"), [BODY])
    assert events == [
        Token(0, "", "result"),
        Quiet(0, "results", RESULTS),
        Usage(0, None, 0),
        Done(0, False),
    ]
    answer = json.loads(transcoder(call(), "m").encode(events))
    assert answer == {"model": "m", "results": json.loads(RESULTS)}


@pytest.mark.parametrize("body", [b'{"results":[]}', b'{"message":"no"}', b"{"])
def test_body_without_results_gives_a_fault(body: bytes) -> None:
    assert fault_of(events_of(lambda: cohere.decoder("rerank"), [body]))
