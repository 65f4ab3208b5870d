"""The address that a request goes to: where the model is part of it, and where it brings a query of
its own."""

import asyncio

import pytest
from tests.upstream.scripted_client import ScriptedClient

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import Call
from splitsecond.core.upstream.spec import TargetSpec, from_catalog
from splitsecond.core.upstream.target import connect
from splitsecond.testing.virtual_time import run_virtual

AZURE = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"}
VERTEX = {"VERTEX_ACCESS_TOKEN": "t", "GOOGLE_CLOUD_PROJECT": "p"}


def asked(spec: TargetSpec, environment: dict[str, str]) -> str:
    """The URL that a call of the target asks."""
    seen: list[str] = []

    async def main() -> None:
        client = ScriptedClient()
        target = connect(spec, lambda _: None, environment=environment, client=client.as_client())
        body = {"messages": [{"role": "user", "content": "x"}]}
        waiting = asyncio.get_running_loop().create_task(target(Call(id="c", body=body)))
        await client.exchange()
        waiting.cancel()
        origin, request = client.sent[0]
        seen.append(f"{origin}{request.path}")

    run_virtual(main())
    return seen[0]


@pytest.mark.parametrize(
    ("target", "environment", "url"),
    [
        ("azure/gpt-4o", AZURE, "https://mine.openai.azure.com/openai/v1/chat/completions"),
        (
            "azure-deployments/my gpt",
            AZURE | {"OPENAI_API_VERSION": "2024-10-21"},
            "https://mine.openai.azure.com/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21",
        ),
        (
            "qwen-us/qwen-plus",
            {"DASHSCOPE_API_KEY": "k"},
            "https://dashscope-us.aliyuncs.com/compatible-mode/v1/chat/completions",
        ),
        (
            "vertex-claude-eu/claude-haiku-4-5@20251001",
            VERTEX,
            "https://aiplatform.eu.rep.googleapis.com/v1/projects/p/locations/eu/publishers/anthropic"
            "/models/claude-haiku-4-5@20251001:streamRawPredict",
        ),
        (
            "vertex-europe-west1/gemini-2.5-flash",
            VERTEX,
            "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1/publishers/google"
            "/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        ),
    ],
)
def test_catalogue_targets_have_their_addresses(
    target: str, environment: dict[str, str], url: str
) -> None:
    assert asked(from_catalog(target, environment), environment) == url


def test_configured_query_is_added_to_that_of_the_api_format() -> None:
    spec = TargetSpec(
        name="x/m", base_url="http://x.test/v1beta/?tenant=7", model="m", api_format="gemini"
    )
    assert asked(spec, {}) == "http://x.test/v1beta/models/m:streamGenerateContent?alt=sse&tenant=7"


def test_token_count_request_keeps_the_configured_query() -> None:
    async def main() -> None:
        client = ScriptedClient()
        spec = TargetSpec(
            name="a/m", base_url="http://a.test/v1?api-version=1", model="m", api_format="anthropic"
        )
        target = connect(spec, lambda _: None, environment={}, client=client.as_client())
        call = Call(
            id="c", body={"messages": [{"role": "user", "content": "x"}]}, api_format="anthropic"
        )
        counting = asyncio.get_running_loop().create_task(target.count_tokens(call, NS_PER_S))
        await client.exchange()
        counting.cancel()
        assert client.sent[0][1].path == "/v1/messages/count_tokens?api-version=1"

    run_virtual(main())
