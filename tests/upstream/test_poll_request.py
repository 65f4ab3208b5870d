"""A request before the one that answers: what is measured, where the second one goes, and what may
be wrong."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.cases import each_case
from tests.upstream.scripted_client import MS, ScriptedClient, ScriptedExchange

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault, NetworkFault, ProviderFault, TimedOut
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.transport.exchange import Origin
from splitsecond.core.upstream.attempt import Attempt
from splitsecond.core.upstream.poll_request import MAX_BODY_BYTES, stream_address
from splitsecond.core.upstream.spec import TargetSpec, Timeouts, from_catalog
from splitsecond.core.upstream.target import connect
from splitsecond.testing.virtual_time import run_virtual

URL = "https://stream.replicate.test/v1/files/x"
OUTPUT = b"event: output\ndata: Hello\n\n"
DONE = b"event: done\ndata: {}\n\n"


def prediction(**fields: Any) -> bytes:
    return json.dumps(
        {"id": "p1", "status": "starting", "urls": {"stream": URL}, **fields}
    ).encode()


class Stage:
    """A target on a scripted transport with a call in flight."""

    def __init__(self, **call: Any) -> None:
        self.client = ScriptedClient()
        self.seen: list[Observation] = []
        spec = TargetSpec(
            name="replicate/o/m",
            base_url="https://api.replicate.test/v1",
            model="o/m",
            api_format="replicate",
            quirks={"stream_hosts": ["stream.replicate.test"]},
            api_key_env=("KEY",),
            timeouts=Timeouts(head_ms=1000),
        )
        target = connect(
            spec,
            self.seen.append,
            environment={"KEY": "s3cret-key"},
            client=self.client.as_client(),
        )
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        asked = Call(id="c", body=body, start_ns=clock.now_ns(), **call)
        self.calling: asyncio.Task[Attempt] = asyncio.get_running_loop().create_task(target(asked))

    async def created(self, body: bytes, status: int = 201) -> ScriptedExchange:
        exchange = await self.client.exchange()
        await asyncio.sleep(0.05)
        exchange.head(status)
        exchange.body(body)
        exchange.end()
        return exchange


def play(act: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        await act(Stage())

    run_virtual(main())


def test_the_time_of_both_requests_is_measured() -> None:
    async def act(stage: Stage) -> None:
        first = await stage.created(prediction())
        second = await stage.client.exchange()
        await asyncio.sleep(0.02)
        second.head()
        await asyncio.sleep(0.03)
        second.body(OUTPUT)
        reply = await stage.calling
        await asyncio.sleep(0.01)
        second.body(DONE)
        second.end()
        await reply.finished()
        (seen,) = stage.seen
        assert seen.ok
        assert seen.sent_ns == first.sent_ns
        assert seen.ttft_ns == 100 * MS
        assert (seen.finish_reason, seen.status, seen.done_marker) == ("done", 200, True)
        assert first.closed_ns is not None

    play(act)


def test_second_request_to_another_host_has_no_key() -> None:
    async def act(stage: Stage) -> None:
        await stage.created(prediction())
        await stage.client.exchange()
        (origin, asked), (there, wanted) = stage.client.sent
        assert (origin.host, asked.method, asked.path) == (
            "api.replicate.test",
            "POST",
            "/v1/models/o/m/predictions",
        )
        assert ("authorization", "Bearer s3cret-key") in asked.headers
        assert (there.host, wanted.method, wanted.path) == (
            "stream.replicate.test",
            "GET",
            "/v1/files/x",
        )
        assert wanted.body == b""
        headers = dict(wanted.headers)
        assert headers.keys() == {"user-agent", "accept", "cache-control"}
        assert headers["accept"] == "text/event-stream"
        assert wanted.fresh == asked.fresh
        stage.calling.cancel()

    play(act)


def test_second_request_to_the_same_host_has_the_key() -> None:
    async def act(stage: Stage) -> None:
        await stage.created(prediction(urls={"stream": "https://api.replicate.test/v1/stream"}))
        await stage.client.exchange()
        headers = dict(stage.client.sent[1][1].headers)
        assert headers["authorization"] == "Bearer s3cret-key"
        assert "content-type" not in headers
        stage.calling.cancel()

    play(act)


@pytest.mark.parametrize(
    ("status", "kind"), [(401, ProviderFault), (422, CallerFault), (429, ProviderFault)]
)
def test_refused_first_request_raises_its_fault(status: int, kind: type[Fault]) -> None:
    async def act(stage: Stage) -> None:
        await stage.created(b'{"title":"No","detail":"not with s3cret-key"}', status)
        with pytest.raises(kind, match=f"HTTP {status}: not with") as caught:
            await stage.calling
        assert "s3cret" not in str(caught.value)
        (seen,) = stage.seen
        assert (seen.outcome, seen.status) == ("failed", status)
        assert seen.sent_ns is not None
        assert len(stage.client.sent) == 1

    play(act)


@each_case(
    "body, kind, words",
    [
        (prediction(urls={}), "not_streaming", "has no stream"),
        (prediction(status="failed", error="no GPU"), "in_band_error", "no GPU"),
        (prediction(status="canceled"), "in_band_error", "its status is canceled"),
        (b"<html>", "malformed", "not the JSON of a prediction"),
        (prediction(urls={"stream": "ftp://x"}), "malformed", "unusable"),
        (
            prediction(urls={"stream": "https://elsewhere.test/x"}),
            "foreign_address",
            "outside the provider's hosts",
        ),
        (b"x" * (MAX_BODY_BYTES + 1), "malformed", "longer than"),
    ],
)
def test_first_response_without_a_usable_url_raises(body: bytes, kind: str, words: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.created(body)
        with pytest.raises(ProviderFault, match=words) as caught:
            await stage.calling
        assert (caught.value.kind, caught.value.phase, caught.value.target) == (
            kind,
            "head",
            "replicate/o/m",
        )
        assert stage.seen[0].fault is not None
        assert stage.seen[0].fault.kind == kind

    play(act)


def test_broken_first_response_raises() -> None:
    async def act(stage: Stage) -> None:
        exchange = await stage.client.exchange()
        exchange.fail(NetworkFault("cut", kind="cut", phase="head"))
        with pytest.raises(NetworkFault, match="cut"):
            await stage.calling
        assert len(stage.seen) == 1

    play(act)


def test_missing_first_response_times_out() -> None:
    async def act(stage: Stage) -> None:
        exchange = await stage.client.exchange()
        with pytest.raises(TimedOut, match="no first response") as caught:
            await stage.calling
        assert (caught.value.phase, caught.value.after_ns) == ("head", 1000 * MS)
        assert exchange.closed_ns == exchange.sent_ns + 1000 * MS

    play(act)


def test_deadline_of_the_call_covers_both_requests() -> None:
    async def main() -> None:
        stage = Stage(deadline_ns=clock.now_ns() + 300 * MS)
        await stage.client.exchange()
        with pytest.raises(TimedOut) as caught:
            await stage.calling
        assert caught.value.phase == "total"

    run_virtual(main())


def test_cancellation_closes_the_first_request_at_once() -> None:
    async def act(stage: Stage) -> None:
        exchange = await stage.client.exchange()
        await asyncio.sleep(0.01)
        stage.calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stage.calling
        assert exchange.closed_ns == clock.now_ns()
        assert stage.seen[0].outcome == "cancelled"

    play(act)


@each_case(
    "address, base, own",
    [
        ("https://stream.example.com/x", "https://api.example.com", True),
        ("https://STREAM.example.com:443/x", "https://api.example.com", True),
        ("https://api.example.com/x", "https://api.example.com", True),
        ("https://example.com/x", "https://api.example.com", False),
        ("https://other.example.com/x", "https://api.example.com", False),
        ("https://stream.example.com.evil.com/x", "https://api.example.com", False),
        ("https://stream.example.com:8443/x", "https://api.example.com", False),
        ("https://api.example.com:8443/x", "https://api.example.com", False),
        ("https://evil.com/x", "https://api.com", False),
        ("http://stream.example.com/x", "https://api.example.com", False),
        ("http://stream.example.com:443/x", "https://api.example.com", False),
        ("http://127.0.0.1:8/x", "http://127.0.0.1:8", True),
        ("http://127.0.0.1:9/x", "http://127.0.0.1:8", False),
        ("http://10.0.0.2/x", "http://10.0.0.1", False),
        ("http://169.254.169.254/latest", "https://api.example.com", False),
    ],
)
def test_only_the_providers_own_hosts_are_followed(address: str, base: str, own: bool) -> None:
    origin = Origin.parse(base)[0]
    if own:
        assert (
            stream_address(address, origin, ("stream.example.com",))[0] == Origin.parse(address)[0]
        )
    else:
        with pytest.raises(ProviderFault, match="outside the provider's hosts"):
            stream_address(address, origin, ("stream.example.com",))


def test_the_catalogue_names_the_stream_host_of_replicate() -> None:
    spec = from_catalog(
        "replicate/meta/meta-llama-3-70b-instruct", {"REPLICATE_API_TOKEN": "k" * 20}
    )
    origin, hosts = Origin.parse(spec.base_url)[0], spec.quirks["stream_hosts"]
    assert (
        stream_address("https://stream.replicate.com/v1/files/x", origin, hosts)[1] == "/v1/files/x"
    )
