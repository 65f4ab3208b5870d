"""Rankings: the document that shares most words with the query is first."""

from typing import Any

import msgspec
import pytest
from tests.simulator.in_virtual_time import Client, Exchange
from tests.simulator.test_endpoints import STEADY

from splitsecond.testing.virtual_time import run_virtual

DOCUMENTS = ["two dogs", "one black cat", "a cat"]


def ranked(path: str, **fields: Any) -> Exchange:
    async def play() -> Exchange:
        body = {"model": "steady", "query": "black cat", "documents": DOCUMENTS, **fields}
        return await Client(STEADY).send(path=path, body=msgspec.json.encode(body))

    return run_virtual(play())


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked_by_shared_words(path: str) -> None:
    body = msgspec.json.decode(ranked(path).body)
    assert [(each["index"], each["relevance_score"]) for each in body["results"]] == [
        (1, 1.0),
        (2, 0.5),
        (0, 0.0),
    ]
    tokens = body.get("usage", {}).get("total_tokens")
    assert (tokens is None) == (path == "/v2/rerank")  # Cohere counts searches


def test_top_n_limits_the_results() -> None:
    assert len(msgspec.json.decode(ranked("/v1/rerank", top_n=1).body)["results"]) == 1


def test_request_without_documents_is_refused() -> None:
    assert ranked("/v1/rerank", documents=[]).status == 400
