"""The paths that only count a request's tokens: the number that the answer's usage has, and errors
in their form."""

from typing import Any

import pytest
from tests.cases import each_case
from tests.simulator.in_virtual_time import Client, Exchange

from splitsecond.simulator.profile import Profile, Quantiles, TableRow
from splitsecond.testing.virtual_time import run_virtual

STEADY = Profile(
    name="p",
    title="t",
    model="m",
    output_tokens=2,
    table=(TableRow(concurrency=1, ttft_ms=Quantiles(100, 100), tps=Quantiles(100, 100)),),
)
ASKED: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "anthropic": (
        "/v1/messages/count_tokens",
        "/v1/messages",
        {"system": "Be brief.", "messages": [{"role": "user", "content": "hello there"}]},
        ("usage", "input_tokens"),
    ),
    "responses": (
        "/v1/responses/input_tokens",
        "/v1/responses",
        {"instructions": "Be brief.", "input": "hello there"},
        ("usage", "input_tokens"),
    ),
    "gemini": (
        "/v1beta/models/m:countTokens",
        "/v1beta/models/m:generateContent",
        {"contents": [{"parts": [{"text": "hello there"}]}]},
        ("usageMetadata", "promptTokenCount"),
    ),
}
COUNTS = {"anthropic": "input_tokens", "responses": "input_tokens", "gemini": "totalTokens"}
each = pytest.mark.parametrize("name", ASKED)


def posted(*requests: tuple[str, dict[str, Any]]) -> tuple[list[Exchange], int]:
    """Return each exchange, and the number of requests in the truth."""

    async def play() -> tuple[list[Exchange], int]:
        client = Client(STEADY)
        exchanges = [await client.send(path=path, **body) for path, body in requests]
        return exchanges, len(client.truth())

    return run_virtual(play())


@each
def test_token_count_equals_the_usage_of_the_answer(name: str) -> None:
    counting, answering, body, place = ASKED[name]
    limit = {"max_tokens": 2} if name == "anthropic" else {}
    (count, answer), known = posted((counting, body), (answering, body | limit))
    counted = answer.json
    for field in place:
        counted = counted[field]
    assert count.status == 200
    assert count.json[COUNTS[name]] == counted > 11
    assert count.head_ns < answer.head_ns
    assert known == 1, "a count is not a response, so the truth has no record of it"


def test_gemini_counts_a_request_with_system_instruction() -> None:
    *_, body, _ = ASKED["gemini"]
    whole = {
        "generateContentRequest": {**body, "systemInstruction": {"parts": [{"text": "Be brief."}]}}
    }
    (plain, with_system), _ = posted((ASKED["gemini"][0], body), (ASKED["gemini"][0], whole))
    assert with_system.json["totalTokens"] > plain.json["totalTokens"]


@each
def test_unknown_model_is_404(name: str) -> None:
    path, _, body, _ = ASKED[name]
    ((exchange,), _) = posted((path.replace("/m:", "/other:"), body | {"model": "other"}))
    assert exchange.status == 404
    assert "unknown model 'other'" in exchange.json["error"]["message"]


@each
@each_case("wrong", [[], 3, None])
def test_invalid_request_is_refused_in_its_api_format(name: str, wrong: Any) -> None:
    field = {"anthropic": "messages", "responses": "input", "gemini": "contents"}[name]
    ((exchange,), _) = posted(
        (ASKED[name][0], {field: {} if name == "responses" and wrong == [] else wrong})
    )
    assert exchange.status == 400
    assert "the request's body is wrong" in exchange.json["error"]["message"]
    if name == "gemini":
        assert exchange.json["error"]["status"] == "INVALID_ARGUMENT"
    if name == "anthropic":
        assert exchange.json["type"] == "error"


def test_counting_with_get_is_404() -> None:
    async def play() -> Exchange:
        return await Client(STEADY).send(method="GET", path="/v1/messages/count_tokens")

    exchange = run_virtual(play())
    assert exchange.status == 404
    assert exchange.json["type"] == "error"
