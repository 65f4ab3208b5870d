"""A target of every API format, over sockets, against simulated providers that play it: timed,
whole, and refused."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from tests.simulator.on_loopback import SAID, providers

from splitsecond.core import clock
from splitsecond.core.errors import ProviderFault
from splitsecond.core.events import Event, Token
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.transport.client import Client
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import API_FORMATS, connect
from splitsecond.simulator.process import RunningProvider

PATHS: Mapping[str, str] = {
    "openai": "/v1",
    "responses": "/v1",
    "anthropic": "/v1",
    "gemini": "/v1beta",
    "cohere": "/v2",
    "ollama": "",
    "replicate": "/v1",
}
BODY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


@pytest.fixture(scope="module")
def quick(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProvider]:
    with providers(tmp_path_factory.mktemp("profiles")) as found:
        yield found.quick


def ask(
    quick: RunningProvider, api_format: str, *, whole: bool = False, fault: str = ""
) -> tuple[list[Event], list[Observation]]:
    """The events of one answer, and what was observed. Raises the fault of a refusal."""
    seen: list[Observation] = []

    async def play() -> list[Event]:
        spec = TargetSpec(
            name=api_format,
            base_url=quick.origin + PATHS[api_format],
            model=("simulated/" if api_format == "replicate" else "") + quick.model,
            api_format=api_format,
            headers={"x-splitsecond-fault": fault} if fault else {},
            quirks={"stream_whole": False} if whole else {},
        )
        client = Client(proxies={})
        target = connect(spec, seen.append, environment={}, client=client)
        try:
            call = Call(id="c", body=BODY, start_ns=clock.now_ns(), stream=not whole)
            async with await target(call) as reply:
                return [event async for event in reply]
        finally:
            client.close()

    return asyncio.run(play()), seen


def test_every_api_format_is_simulated() -> None:
    assert PATHS.keys() == API_FORMATS.keys()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("api_format", PATHS)
def test_response_of_every_api_format_is_timed_and_whole(
    quick: RunningProvider, api_format: str, whole: bool
) -> None:
    events, (seen,) = ask(quick, api_format, whole=whole)
    tokens = [event for event in events if isinstance(event, Token)]
    assert "".join(token.text for token in tokens) == SAID
    assert len(tokens) == (1 if whole else 8)
    assert (seen.ok, seen.streamed, seen.output_tokens) == (True, not whole, 8)
    assert seen.sent_ns is not None
    assert seen.first_token_ns is not None
    assert seen.first_token_ns - seen.sent_ns > 15 * clock.NS_PER_MS, (
        "the simulated time to first token"
    )
    assert seen.token_at == sorted(seen.token_at)


@pytest.mark.parametrize("api_format", PATHS)
def test_429_of_every_api_format_has_its_retry_after(
    quick: RunningProvider, api_format: str
) -> None:
    with pytest.raises(ProviderFault, match="HTTP 429: a simulated error 429") as caught:
        ask(quick, api_format, fault="429; retry_after=3")
    assert caught.value.retry_after_ns == 3 * clock.NS_PER_S


@pytest.mark.parametrize("api_format", PATHS)
def test_error_event_breaks_the_stream_of_every_api_format(
    quick: RunningProvider, api_format: str
) -> None:
    events, (seen,) = ask(quick, api_format, fault="error_event; after=3")
    assert len([event for event in events if isinstance(event, Token)]) == 3
    assert seen.fault is not None
    assert (seen.fault.kind, seen.fault.phase) == ("in_band_error", "between tokens")
