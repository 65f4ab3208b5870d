"""Embeddings in every API format that has them: the same unit vector for the same text, near those
that share words."""

import base64
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from tests.cases import each_case
from tests.simulator.in_virtual_time import Client, Exchange
from tests.simulator.test_endpoints import STEADY

from splitsecond.core.clock import NS_PER_MS
from splitsecond.simulator.content.embeddings import embed
from splitsecond.simulator.content.replies import ReplyRule, RuleError
from splitsecond.simulator.profile import Profile
from splitsecond.simulator.truth import TruthRecord
from splitsecond.testing.virtual_time import run_virtual

SMALL = replace(STEADY, embedding_dimensions=4)
GEMINI = "/v1beta/models/steady"
TEXTS = ["one cat", "two dogs"]
PARTS = [{"content": {"parts": [{"text": each}]}} for each in TEXTS]
PATHS: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/embeddings": ({"input": TEXTS}, "data"),
    "/openai/v1/embeddings": ({"input": TEXTS, "encoding_format": "base64"}, "data"),
    "/v2/embed": (
        {"texts": TEXTS, "embedding_types": ["float"], "input_type": "search_query"},
        "cohere",
    ),
    "/api/embed": ({"input": TEXTS}, "embeddings"),
    "/api/embeddings": ({"prompt": TEXTS[0]}, "one"),
    f"{GEMINI}:batchEmbedContents": (
        {"requests": [{"content": {"parts": [{"text": each}]}} for each in TEXTS]},
        "values",
    ),
    f"{GEMINI}:embedContent": (PARTS[0], "value"),
}
"""A request for the vectors of the texts at each path, and the form of its response."""


def sent(path: str, on: Profile = SMALL, **fields: Any) -> tuple[Exchange, TruthRecord]:
    async def play() -> tuple[Exchange, TruthRecord]:
        client = Client(on)
        exchange = await client.send(
            path=path, body=msgspec.json.encode({"model": "steady", **fields})
        )
        (record,) = client.truth()
        return exchange, record

    return run_virtual(play())


def vectors(form: str, body: Any) -> list[Any]:
    match form:
        case "data":
            found = [each["embedding"] for each in body["data"]]
            assert [each["index"] for each in body["data"]] == list(range(len(found)))
            return [
                np.frombuffer(base64.b64decode(each), "<f4") if isinstance(each, str) else each
                for each in found
            ]
        case "cohere":
            return list(body["embeddings"]["float"])
        case "embeddings":
            return list(body["embeddings"])
        case "one":
            return [body["embedding"]]
        case "values":
            return [each["values"] for each in body["embeddings"]]
    return [body["embedding"]["values"]]


@each_case("path", PATHS)
def test_vectors_in_each_format(path: str) -> None:
    fields, form = PATHS[path]
    exchange, record = sent(path, **fields)
    found = vectors(form, exchange.json)
    assert len(found) == (1 if form in ("one", "value") else 2)
    for vector, text in zip(found, TEXTS, strict=False):
        assert vector == pytest.approx(embed(text, 4), abs=1e-6)
    assert round((record.actual_ns[0] - record.arrived_ns) / NS_PER_MS) == 100
    assert record.prompt_tokens == -(-len("\n".join(TEXTS[: len(found)])) // 4)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/embeddings", {"dimensions": 7}),
        ("/v2/embed", {"output_dimension": 7}),
        ("/api/embed", {"dimensions": 7}),
        (f"{GEMINI}:embedContent", {"outputDimensionality": 7}),
    ],
)
def test_the_length_of_a_vector(path: str, fields: dict[str, Any]) -> None:
    given, form = PATHS[path]
    exchange, _ = sent(path, **given, **fields)
    assert len(vectors(form, exchange.json)[0]) == 7


def test_vectors_have_length_one_and_like_texts_are_near() -> None:
    cats, cat, prices = (
        embed(text, 512) for text in ("the cat sat", "a cat sat there", "bond prices fell")
    )
    assert np.linalg.norm(cats) == pytest.approx(1)
    assert cats @ cat > 0.3 > abs(cats @ prices)
    assert not np.array_equal(embed("a b", 8), embed("b a", 8))
    assert embed("x", 3).tolist() == pytest.approx([-0.938129, 0.322565, -0.125958], abs=1e-5)


@pytest.mark.parametrize(
    ("given", "count"),
    [("text", 1), (["text"], 1), ([1, 2, 3], 1), ([[1, 2], [3]], 2), (["a"] * 5, 5)],
)
def test_inputs_of_openai(given: Any, count: int) -> None:
    exchange, _ = sent("/v1/embeddings", input=given)
    assert len(exchange.json["data"]) == count


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"input": []},
        {"input": "x", "dimensions": 0},
        {"input": ["x"] * 3000},
        {"input": ["x"] * 999, "dimensions": 9999},
    ],
)
def test_requests_that_are_refused(fields: dict[str, Any]) -> None:
    async def play() -> Exchange:
        return await Client(SMALL).send(
            path="/v1/embeddings", body=msgspec.json.encode({"model": "steady", **fields})
        )

    exchange = run_virtual(play())
    assert (exchange.status, exchange.json["error"]["type"]) == (400, "invalid_request_error")


def test_rules_with_a_content_are_not_for_embeddings() -> None:
    rules = (ReplyRule(text="x", times=1), ReplyRule(prompt="broken", error=RuleError(status=500)))
    on = replace(SMALL, replies=rules)

    async def play() -> list[int]:
        client = Client(on)
        found = [
            await client.send(path="/v1/embeddings", input=text) for text in ("good", "broken")
        ]
        assert (await client.send()).json["choices"][0]["message"]["content"] == "x"
        return [each.status for each in found]

    assert run_virtual(play()) == [200, 500]
