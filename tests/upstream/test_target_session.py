"""The id of a session goes to the providers that keep a session where its prompt is cached."""

import asyncio
import json
from typing import Any

from tests.cases import each_case
from tests.upstream.scripted_client import ScriptedClient

from splitsecond.core.service import Call, Spoken
from splitsecond.core.session import CONVERSATION, CallSession
from splitsecond.core.upstream.spec import from_catalog
from splitsecond.core.upstream.target import connect
from splitsecond.testing.virtual_time import run_virtual

KEYS = {"OPENAI_API_KEY": "k" * 20, "OPENROUTER_API_KEY": "k" * 20, "GROQ_API_KEY": "k" * 20}
ID = "0123456789abcdef"
HI = {"messages": [{"role": "user", "content": "hi"}]}


def sent(
    target: str, body: dict[str, Any], api_format: Spoken = "openai", source: str = "x-session-id"
) -> tuple[Any, dict[str, str]]:
    """The body and the headers of the request that the target sends."""
    client = ScriptedClient()
    service = connect(
        from_catalog(target, KEYS), lambda _: None, environment=KEYS, client=client.as_client()
    )

    async def main() -> None:
        call = Call(id="c", body=body, api_format=api_format)
        call.notes.session = CallSession(id=ID, source=source)
        waiting = asyncio.get_running_loop().create_task(service(call))
        await client.exchange()
        waiting.cancel()
        await asyncio.wait([waiting])

    run_virtual(main())
    ((_, request),) = client.sent
    return json.loads(request.body), dict((*request.headers, *request.fresh))


@each_case(
    ("target", "field"),
    [("openai/gpt-6", "prompt_cache_key"), ("openrouter/a/b", "session_id"), ("groq/a", None)],
)
def test_the_field_of_a_provider_has_the_session(target: str, field: str | None) -> None:
    body, _ = sent(target, HI)
    found = [name for name, value in body.items() if value == ID]
    assert found == ([] if field is None else [field])


def test_the_router_of_a_server_gets_the_session_in_a_header() -> None:
    body, headers = sent("sglang/a", HI)
    assert headers["x-smg-routing-key"] == ID
    assert ID not in json.dumps(body)


def test_a_clients_own_cache_key_stays() -> None:
    body, _ = sent("openai/gpt-6", HI | {"prompt_cache_key": "mine"})
    assert body["prompt_cache_key"] == "mine"


def test_conversations_without_a_name_share_what_is_cached() -> None:
    body, _ = sent("openai/gpt-6", HI, source=CONVERSATION)
    assert "prompt_cache_key" not in body


def test_a_translated_response_keeps_the_session() -> None:
    body, _ = sent("openai/gpt-6", {"input": "hi"}, "responses")
    assert body["prompt_cache_key"] == ID
