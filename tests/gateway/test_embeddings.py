"""Embeddings through the gateway: every policy, bytes unchanged."""

import json
import struct
from base64 import b64decode
from typing import Any, cast

import pytest
from tests.cases import each_case
from tests.gateway.visitor import visitor
from tests.upstream.scripted_client import ScriptedExchange

from splitsecond.core.service import Service
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Origin, Receiver, Request
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.virtual_time import run_virtual

ANSWER = (
    b'{"object":"list","data":[{"index":0, "embedding":[0.5, '
    b'1.50]}],"usage":{"prompt_tokens":3}, "odd":1}'
)
ASK = {"model": "fast", "input": "hello", "stream": True, "dimensions": 2}


class Answering:
    """A transport whose every request is answered at once."""

    def __init__(self, *parts: bytes, status: int = 200) -> None:
        self.parts = parts
        self.status = status
        self.sent: list[Request] = []

    async def send(
        self, origin: Origin, request: Request, receiver: Receiver, *, connect_deadline_ns: int
    ) -> ScriptedExchange:
        self.sent.append(request)
        exchange = ScriptedExchange(receiver)
        exchange.head(self.status)
        for part in self.parts:
            exchange.body(part)
        exchange.end()
        return exchange


class Kept:
    """A gateway's tracker, and targets that answer."""

    def __init__(self, transport: Answering) -> None:
        self.transport = transport
        self.records: list[CallRecord] = []
        self.tracker = CallTracker(self.records.append)

    def target(self, name: str, api_format: str = "openai") -> Service:
        spec = TargetSpec(name=name, base_url="http://x.test/v1", model="m", api_format=api_format)
        client = cast(Client, self.transport)
        return connect(spec, lambda attempt: None, environment={}, client=client, raw=True)


@each_case("policy", POLICIES)
def test_every_policy_serves_embeddings_byte_for_byte(policy: str) -> None:
    async def main() -> None:
        kept = Kept(Answering(ANSWER[:60], ANSWER[60:]))
        states = TargetStates(
            lambda target: TargetInfo(provider=target.partition("/")[0], region="eu")
        )
        service = build(parse(POLICIES[policy].example), kept.target, states)
        client = await visitor(service, tracker=kept.tracker).asks(ASK, path="/v1/embeddings")
        assert client.status == 200, client.body
        assert client.body == ANSWER
        assert client.headers["content-type"] == "application/json"
        assert {request.path for request in kept.transport.sent} == {"/v1/embeddings"}
        (record,) = kept.records
        assert (record.operation, record.stream, record.outcome) == ("embeddings", False, "ok")
        assert record.attempts[-1].input_tokens == 3

    run_virtual(main())


RANKING = b'{"results":[{"index":0, "relevance_score":0.50}],"usage":{"total_tokens":3}, "odd":1}'


@each_case("operation", ["rerank", "moderations"])
@each_case("policy", POLICIES)
def test_every_policy_serves_results_byte_for_byte(policy: str, operation: str) -> None:
    async def main() -> None:
        kept = Kept(Answering(RANKING[:30], RANKING[30:]))
        states = TargetStates(
            lambda target: TargetInfo(provider=target.partition("/")[0], region="eu")
        )
        service = build(parse(POLICIES[policy].example), kept.target, states)
        asked = {"model": "fast", "query": "q", "documents": ["a"], "input": "a"}
        client = await visitor(service, tracker=kept.tracker).asks(asked, path=f"/v1/{operation}")
        assert client.status == 200, client.body
        assert client.body == RANKING
        assert {request.path for request in kept.transport.sent} == {f"/v1/{operation}"}
        (record,) = kept.records
        assert (record.operation, record.stream, record.outcome) == (operation, False, "ok")
        assert record.attempts[-1].input_tokens == 3
        assert record.attempts[-1].first_token_ns is not None

    run_virtual(main())


@pytest.mark.parametrize(
    ("transport", "status", "kind"),
    [
        (Answering(b'{"error":{"message":"no"}}', status=400), 400, "http_400"),
        (Answering(b'{"data":[]}'), 502, "empty_answer"),
        (Answering(ANSWER[:70]), 502, "truncated"),
    ],
)
def test_failed_embeddings_have_the_status_of_their_fault(
    transport: Answering, status: int, kind: str
) -> None:
    async def main() -> None:
        kept = Kept(transport)
        client = await visitor(kept.target("a/x"), tracker=kept.tracker).asks(
            ASK, path="/v1/embeddings"
        )
        error: Any = client.json["error"]
        assert (client.status, error["code"]) == (status, kind)
        assert kept.records[0].fault == kind

    run_virtual(main())


OTHERS: dict[str, tuple[str, Any, bytes, int]] = {
    "gemini": (
        "/v1/models/m:batchEmbedContents",
        {"requests": [
            {"model": "models/m", "content": {"parts": [{"text": text}]}, "outputDimensionality": 2}
            for text in "ab"
        ]},
        b'{"embeddings":[{"values":[0.5,1.5]},{"values":[0.25,1]}]}', 0,
    ),
    "cohere": (
        "/v1/embed",
        {"model": "m", "texts": ["a", "b"], "embedding_types": ["float"],
        "input_type": "search_document",
         "output_dimension": 2},
        b'{"embeddings":{"float":[[0.5,1.5],[0.25,1]]},'
        b'"meta":{"billed_units":{"input_tokens":3}}}', 3,
    ),
    "ollama": (
        "/v1/api/embed", {"model": "m", "input": ["a", "b"], "dimensions": 2},
        b'{"embeddings":[[0.5,1.5],[0.25,1]],"prompt_eval_count":3}', 3,
    ),
}  # fmt: skip
"""The path, the request, the answer and its tokens."""


@each_case("in_base64", [False, True])
@each_case("api_format", OTHERS)
def test_embeddings_of_other_formats_are_translated(api_format: str, in_base64: bool) -> None:
    path, body, answer, tokens = OTHERS[api_format]

    async def main() -> None:
        kept = Kept(Answering(answer[:20], answer[20:]))
        asked: dict[str, Any] = {"model": "fast", "input": ["a", "b"], "dimensions": 2, "user": "u"}
        if in_base64:
            asked["encoding_format"] = "base64"
        service = kept.target("a/x", api_format)
        client = await visitor(service, tracker=kept.tracker).asks(asked, path="/v1/embeddings")
        assert client.status == 200, client.body
        (sent,) = kept.transport.sent
        assert (sent.path, json.loads(sent.body)) == (path, body)
        assert client.headers["x-splitsecond-dropped"] == "user"
        found: Any = client.json
        vectors: list[Any] = [each["embedding"] for each in found["data"]]
        if in_base64:
            vectors = [list(struct.unpack("<2f", b64decode(vector))) for vector in vectors]
        assert vectors == [[0.5, 1.5], [0.25, 1]]
        assert [each["index"] for each in found["data"]] == [0, 1]
        assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        (record,) = kept.records
        assert (record.outcome, record.attempts[-1].input_tokens) == ("ok", tokens or None)

    run_virtual(main())


@each_case("api_format", OTHERS)
def test_odd_embeddings_of_other_formats_are_faults(api_format: str) -> None:
    async def main(answer: bytes, asked: Any, status: int) -> None:
        kept = Kept(Answering(answer))
        service = kept.target("a/x", api_format)
        client = await visitor(service, tracker=kept.tracker).asks(
            {"model": "fast", **asked}, path="/v1/embeddings"
        )
        assert client.status == status, client.body

    good = OTHERS[api_format][2]
    run_virtual(main(b'{"embeddings":[]}', {"input": "a"}, 502))
    run_virtual(main(b'{"embeddings":"none"}', {"input": "a"}, 502))
    run_virtual(main(b'{"embeddings":["none"]}', {"input": "a"}, 502))
    run_virtual(
        main(b'{"embeddings":[["none"]]}', {"input": "a", "encoding_format": "base64"}, 502)
    )
    run_virtual(main(good[:-9], {"input": "a"}, 502))
    run_virtual(main(good, {"input": [1, 2]}, 400))
    run_virtual(main(good, {"input": []}, 400))


def _part(text: str) -> dict[str, Any]:
    return {"parts": [{"text": text}]}


ASKED: dict[str, tuple[Any, Any]] = {
    "/v1beta/models/fast:embedContent": (
        {"content": _part("a"), "outputDimensionality": 2, "taskType": "CLUSTERING"},
        {"embedding": {"values": [0.5, 1.5]}},
    ),
    "/v1beta/models/fast:batchEmbedContents": (
        {"requests": [
            {"model": "models/fast", "content": _part(text), "output_dimensionality": 2,
            "taskType": "CLUSTERING"}
            for text in "ab"
        ]},
        {"embeddings": [{"values": [0.5, 1.5]}, {"values": [0.25, 1]}]},
    ),
    "/api/embed": (
        {"model": "fast", "input": ["a", "b"], "dimensions": 2, "truncate": True},
        {"embeddings": [[0.5, 1.5], [0.25, 1]]},
    ),
    "/api/"
    "embeddings": ({"model": "fast", "prompt": "a", "dimensions": 2, "truncate": True},
    {"embedding": [0.5, 1.5]}),
}  # fmt: skip
"""By path the request of a client, and its answer."""
BOTH = (
    b'{"object":"list","data":[{"index":1,"embedding":[0.25,1]},{"index":0,"embedding":[0.5,'
    b'1.5]}],"model":"m"}'
)
OWN = {"gemini": "taskType", "ollama": "truncate"}


@each_case("api_format", ["openai", *OTHERS])
@each_case("path", ASKED)
def test_geminis_and_ollamas_clients_get_embeddings(path: str, api_format: str) -> None:
    async def main() -> None:
        kept = Kept(Answering(BOTH if api_format == "openai" else OTHERS[api_format][2]))
        asked, expected = ASKED[path]
        client = await visitor(kept.target("a/x", api_format), tracker=kept.tracker).asks(
            asked, path=path
        )
        assert client.status == 200, client.body
        found: Any = client.json
        assert {name: found[name] for name in expected} == expected
        (sent,) = kept.transport.sent
        body = sent.body.decode()
        assert '"a"' in body
        assert any(
            f'"{name}":2' in body
            for name in ("dimensions", "outputDimensionality", "output_dimension")
        )
        own = "taskType" if "beta" in path else "truncate"
        kept_own = own == OWN.get(api_format) or (own == "truncate" and api_format == "cohere")
        assert (own in body) == kept_own
        assert client.headers.get("x-splitsecond-dropped") == (None if kept_own else own)
        assert kept.records[0].operation == "embeddings"

    run_virtual(main())


@pytest.mark.parametrize(
    ("path", "asked", "words"),
    [
        ("/v1beta/models/fast:embedContent", {}, "requests[0].content"),
        (
            "/v1beta/models/fast:embedContent",
            {"content": {"parts": [{"inlineData": {}}]}},
            "no text",
        ),
        ("/v1beta/models/fast:batchEmbedContents", {"requests": {}}, "requests"),
        (
            "/v1beta/models/fast:batchEmbedContents",
            {"requests": [{"content": _part("a"), "title": "t"}, {"content": _part("b")}]},
            "other settings",
        ),
    ],
)
def test_embedding_requests_that_cannot_be_read_are_refused(
    path: str, asked: Any, words: str
) -> None:
    async def main() -> None:
        client = await visitor(Kept(Answering(BOTH)).target("a/x")).asks(asked, path=path)
        assert client.status == 400
        error: Any = client.json["error"]
        assert (error["status"], words in error["message"]) == ("INVALID_ARGUMENT", True), error

    run_virtual(main())


def test_odd_side_fields_leave_vectors_for_ollamas_clients_alone() -> None:
    async def main(odd: bytes) -> None:
        service = Kept(
            Answering(b'{"data":[{"index":0,"embedding":[1]},{"embedding":[2]}],%b}' % odd)
        ).target("a/x")
        client = await visitor(service).asks(
            {"model": "fast", "input": ["a", "b"]}, path="/api/embed"
        )
        found: Any = client.json
        assert (client.status, found["embeddings"], "prompt_eval_count" in found) == (
            200,
            [[1], [2]],
            False,
        )

    for odd in (
        b'"usage":[]',
        b'"usage":{"prompt_tokens":"x"},"model":null',
        b'"usage":{"prompt_tokens":2.5}',
    ):
        run_virtual(main(odd))


def test_odd_vectors_are_faults_for_ollamas_clients() -> None:
    async def main() -> None:
        service = Kept(Answering(b'{"data":[{"index":0}]}')).target("a/x")
        client = await visitor(service).asks({"model": "fast", "input": "a"}, path="/api/embed")
        assert client.status == 502
        assert isinstance(client.json["error"], str)

    run_virtual(main())
