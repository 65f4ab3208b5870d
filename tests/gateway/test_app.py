"""Requests through `gateway/http/app` in virtual time: responses and their times, errors, headers,
disconnecting clients."""

import asyncio
import hashlib
from typing import Any

import pytest
from tests.cases import each_case
from tests.gateway.visitor import CHAT, STREAM, OneRoute, Visitor, head, visitor, visits
from tests.serving.fake_client import Transport

from splitsecond.core import clock
from splitsecond.core.errors import (
    AllFailed,
    CallerFault,
    Fault,
    NetworkFault,
    Overloaded,
    ProviderFault,
    TimedOut,
)
from splitsecond.core.service import Call, Reply
from splitsecond.core.serving.connection import ServerConnection
from splitsecond.core.serving.request_cycle import BODY_TIMEOUT_NS, RequestCycle
from splitsecond.core.serving.slow_reader import UNREAD_S
from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.gateway.http.headers import LONGEST_HINT
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.configuration.settings import Listen
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.limit import limit
from splitsecond.routing.policies.race import race
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import START_NS, run_virtual

MS = clock.NS_PER_MS
KEY = "a-key-of-a-client-of-ours"
MESSAGES = CHAT | {"max_tokens": 9}
PROMPT = "the colour of the parrot is blue"
JSON = {"host": "x", "content-type": "application/json"}


def fake(**script: Any) -> FakeService:
    return FakeService(script=lambda call: Script(**script))


def broken(**script: Any) -> FakeService:
    return fake(fault=NetworkFault("it broke", kind="reset", phase="between tokens"), **script)


def test_stream_starts_at_the_first_token_and_sends_each_at_once() -> None:
    async def main() -> None:
        client = visitor(fake(ttft=0.2, tokens=3, tps=100))
        await client.asks(STREAM)
        assert (client.times[0] - START_NS) // MS == 200
        assert (client.times[-1] - START_NS) // MS == 220
        assert client.status == 200
        assert client.headers["content-type"].startswith("text/event-stream")
        assert client.headers["x-splitsecond-target"] == "fake/model"
        assert client.headers["server-timing"] == "ttft;dur=200.000"
        assert client.body.count(b'"content":"word"') == 3
        assert client.body.endswith(b"data: [DONE]\n\n")
        assert client.answer.complete
        # both ends in one write
        assert client.transport.writes[-1].endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")

    run_virtual(main())


@pytest.mark.parametrize("wanted", [True, False])
def test_the_usage_chunk_is_sent_only_if_requested(wanted: bool) -> None:
    async def main() -> None:
        client = visitor(fake(input_tokens=7))
        await client.asks(STREAM | ({"stream_options": {"include_usage": True}} if wanted else {}))
        assert (b'"prompt_tokens":7' in client.body) is wanted
        assert client.body.endswith(b"data: [DONE]\n\n")

    run_virtual(main())


def test_a_whole_response_is_assembled() -> None:
    async def main() -> None:
        client = visitor(fake(tokens=3, input_tokens=7))
        answer = (await client.asks(CHAT, parts=3)).json
        assert answer["object"] == "chat.completion"
        (choice,) = answer["choices"]
        assert choice["message"] == {
            "role": "assistant",
            "content": "wordwordword",
            "refusal": None,
        }
        assert choice["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 3

    run_virtual(main())


ASKS: dict[str, tuple[str, Any]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "completions": ("/v1/completions", {"model": "fast", "prompt": "hi"}),
    "messages": ("/v1/messages", CHAT | {"max_tokens": 9}),
    "responses": ("/v1/responses", {"model": "fast", "input": "hi"}),
    "gemini": ("/v1beta/models/fast:generateContent", {"contents": [{"parts": [{"text": "hi"}]}]}),
    "ollama": ("/api/chat", CHAT | {"stream": False}),
    "generate": ("/api/generate", {"model": "fast", "prompt": "hi", "stream": False}),
}
"""A path and a request in each API format of clients."""
COUNTS = {
    "chat": ("usage", "prompt_tokens", "completion_tokens"),
    "completions": ("usage", "prompt_tokens", "completion_tokens"),
    "messages": ("usage", "input_tokens", "output_tokens"),
    "responses": ("usage", "input_tokens", "output_tokens"),
    "gemini": ("usageMetadata", "promptTokenCount", "candidatesTokenCount"),
    "ollama": ("", "prompt_eval_count", "eval_count"),
    "generate": ("", "prompt_eval_count", "eval_count"),
}


def token_counts(answer: Any, form: str) -> tuple[int, int]:
    place, read, made = COUNTS[form]
    counts = answer[place] if place else answer
    return counts[read], counts[made]


@each_case("form", ASKS)
def test_missing_usage_is_estimated_and_marked_in_a_header(form: str) -> None:
    async def main() -> None:
        path, body = ASKS[form]
        client = await visitor(fake(tokens=12, texts=("abcdefgh",))).asks(body, path=path)
        read, made = token_counts(client.json, form)
        assert client.headers["x-splitsecond-estimated"] == "usage"
        assert 1 <= read <= 20
        assert made == 13
        client = await visitor(fake(tokens=12, texts=("abcdefgh",), input_tokens=7)).asks(
            body, path=path
        )
        assert token_counts(client.json, form) == (7, 12)
        assert "x-splitsecond-estimated" not in client.headers

    run_virtual(main())


def test_transcoded_stream_omits_token_counts_without_usage() -> None:
    async def main() -> None:
        for form, word in (
            ("gemini", "usageMetadata"),
            ("ollama", "eval_count"),
            ("responses", '"usage":{'),
        ):
            path, body = ASKS[form]
            asked, path = (
                body | {"stream": True},
                path.replace(":generateContent", ":streamGenerateContent"),
            )
            assert word not in (await visitor(fake(tokens=3)).asks(asked, path=path)).body.decode()
            assert (
                word
                in (
                    await visitor(fake(tokens=3, input_tokens=7)).asks(asked, path=path)
                ).body.decode()
            )

    run_virtual(main())


def test_a_broken_stream_ends_with_an_error_and_without_end_mark() -> None:
    async def main() -> None:
        client = visitor(broken(breaks_after=2))
        await client.asks(STREAM)
        assert client.status == 200
        *_, last = client.body.strip().split(b"\n\n")
        assert last.startswith(b'data: {"error":')
        assert b"[DONE]" not in client.body
        assert b'"finish_reason":"' not in client.body

    run_virtual(main())


def test_a_broken_whole_response_is_an_error() -> None:
    async def main() -> None:
        client = visitor(broken(breaks_after=2))
        await client.asks(CHAT)
        assert client.status == 502
        assert client.json["error"]["code"] == "reset"

    run_virtual(main())


@each_case("body", [CHAT, STREAM])
@each_case("after", [0.0, 0.1, 0.25])
def test_all_attempts_are_closed_when_the_client_disconnects(body: Any, after: float) -> None:
    async def main() -> None:
        one, two = fake(ttft=0.2, tokens=50), fake(ttft=0.3, tokens=50)
        client = visitor(limit(race(one, two), concurrency=1))
        asyncio.get_running_loop().call_later(after, client.leave)
        await client.asks(body)
        assert clock.now_ns() - START_NS <= after * clock.NS_PER_S + MS
        assert one.in_flight == two.in_flight == one.left_open == two.left_open == 0

    run_virtual(main())


def partial_request(client: Visitor) -> ServerConnection:
    """Return a connection of `client` that has received a part of a request."""
    connection = client.connect()
    connection.data_received(
        head("POST", "/v1/chat/completions", JSON | {"content-length": "500"}) + b" "
    )
    return connection


@pytest.mark.parametrize("after_s", [0.0, 0.1])
def test_an_incomplete_request_reaches_no_target(after_s: float) -> None:
    async def main() -> None:
        service = fake()
        client = visitor(service)

        connection = partial_request(client)
        tasks = list(connection.state.tasks)
        await asyncio.sleep(after_s)
        client.leave()
        await asyncio.wait(tasks)
        assert client.transport.writes == []
        assert service.calls == []
        assert connection.state.tasks == set()

    run_virtual(main())


class SlowReader(Transport):
    """Transport of a client that reads each write after `reads_after_s`; None: it never reads."""

    def __init__(self, client: Visitor, reads_after_s: float | None) -> None:
        super().__init__()
        self._client = client
        self._reads_after_s = reads_after_s

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        connection = self._client.connection
        assert connection is not None
        connection.pause_writing()
        if self._reads_after_s is not None:
            asyncio.get_running_loop().call_later(self._reads_after_s, connection.resume_writing)


def test_a_client_that_does_not_read_is_disconnected() -> None:
    async def main() -> None:
        service = fake(tokens=1000, tps=100)
        client = visitor(service)
        client.transport = SlowReader(client, None)
        await client.asks(STREAM)
        assert client.transport.aborted
        (sent_ns,) = client.times
        assert clock.now_ns() - sent_ns == UNREAD_S * clock.NS_PER_S
        assert service.left_open == 0

    run_virtual(main())


@each_case(
    ("fault", "status", "kind"),
    [
        (CallerFault("wrong"), 400, "bad_request"),
        (CallerFault("too long", kind="context_length_exceeded"), 400, "context_length_exceeded"),
        (CallerFault("wrong", status=422), 422, "bad_request"),
        (ProviderFault("no", kind="http_401", phase="head", status=401), 502, "http_401"),
        (
            ProviderFault("slow", kind="http_429", phase="head", status=429, retry_after_ns=1),
            429,
            "http_429",
        ),
        (ProviderFault("down", kind="http_500", phase="head", status=500), 502, "http_500"),
        (ProviderFault("down", kind="http_503", phase="head", status=503), 503, "http_503"),
        (NetworkFault("reset", kind="reset", phase="head"), 502, "reset"),
        (TimedOut("silent", phase="first token"), 504, "timeout_first_token"),
        (Overloaded("full", retry_after_ns=1), 503, "overloaded"),
        (AllFailed([TimedOut("silent", phase="head"), Overloaded("full")]), 503, "timeout_head"),
        (
            AllFailed([Overloaded("down", kind="ejected"), TimedOut("silent", phase="head")]),
            503,
            "timeout_head",
        ),
        (
            AllFailed([Overloaded("down", kind="ejected"), Overloaded("too", kind="ejected")]),
            503,
            "ejected",
        ),
        (Overloaded("limited", kind="ejected", status=429), 429, "ejected"),
    ],
)
def test_each_fault_has_its_status_code(fault: Fault, status: int, kind: str) -> None:
    async def main() -> None:
        for body in (CHAT, STREAM):
            client = visitor(fake(fault=fault))
            await client.asks(body)
            assert client.status == status
            error = client.json["error"]
            assert error["code"] == kind
            assert error["message"]
            assert error["type"].endswith("_error")
            # until the first probes are due
            wait = "5" if isinstance(fault, AllFailed) and status == 503 else None
            assert client.headers.get("retry-after") == (
                "1" if getattr(fault, "retry_after_ns", None) else wait
            )

    run_virtual(main())


def test_caller_fault_has_the_providers_code_and_parameter() -> None:
    async def main() -> None:
        code, param = "unsupported_value", "temperature"
        fault = CallerFault("HTTP 400: no", kind="http_400", phase="head", code=code, param=param)
        client = await visitor(fake(fault=fault)).asks(CHAT)
        assert (client.json["error"]["code"], client.json["error"]["param"]) == (code, param)

    run_virtual(main())


@each_case(
    ("asking", "status"),
    [
        ({"body": b"nonsense"}, 400),
        ({"body": []}, 400),
        ({"body": {}}, 400),
        ({"body": {"model": 3}}, 400),
        ({"body": CHAT | {"stream": "yes"}}, 400),
        ({"body": CHAT | {"stream_options": 3}}, 400),
        ({"body": {"model": "slow"}}, 404),
        ({"body": CHAT, "path": "/v1/images"}, 404),
        ({"body": CHAT, "path": "/v1/models"}, 405),
        ({"body": CHAT, "method": "GET"}, 405),
        ({"body": CHAT, "headers": {"content-type": "text/plain"}}, 415),
        ({"body": b" " * (1 << 20) + b" "}, 413),
        ({"body": b" " * (1 << 20) + b" ", "parts": 9}, 413),
        ({"body": CHAT, "headers": {"content-length": "9" * 18}}, 413),
    ],
)
def test_an_invalid_request_reaches_no_target(asking: dict[str, Any], status: int) -> None:
    async def main() -> None:
        service = fake()
        client = visitor(service, listen=Listen(max_body_mib=1))
        await client.asks(**asking)
        assert client.status == status
        assert client.json["error"]["message"]
        allowed = "GET, HEAD" if asking.get("path") == "/v1/models" else "POST"
        assert client.headers.get("allow") == (allowed if status == 405 else None)
        assert service.calls == []

    run_virtual(main())


def named(name: str, key: str) -> ClientKey:
    return ClientKey(name, hashlib.sha256(key.encode()).digest())


@pytest.mark.parametrize(
    ("presented", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer  {KEY}", 200),
        (f"Basic {KEY}", 401),
        (f"Bearer {KEY}x", 401),
        ("", 401),
    ],
)
def test_requests_need_a_valid_key(presented: str, status: int) -> None:
    async def main() -> None:
        keys = [named("web", KEY)]
        client = await visitor(fake(), *keys).asks(CHAT, headers={"authorization": presented})
        assert client.status == status
        assert KEY.encode() not in client.body
        models = await visitor(fake(), *keys).asks(
            b"", path="/v1/models", method="GET", headers={"authorization": presented}
        )
        assert models.status == status

    run_virtual(main())


@pytest.mark.parametrize("kind", ["", "application/x-www-form-urlencoded", "text/plain"])
def test_json_needs_a_content_type_only_without_keys(kind: str) -> None:
    async def main() -> None:
        headers = {"authorization": f"Bearer {KEY}", "content-type": kind}
        assert (await visitor(fake(), named("web", KEY)).asks(CHAT, headers=headers)).status == 200
        assert (
            await visitor(fake(), named("web", KEY)).asks(b"a=b", headers=headers)
        ).status == 400
        assert (
            await visitor(fake(), named("web", KEY)).asks(CHAT, headers={"content-type": kind})
        ).status == 401
        assert (await visitor(fake()).asks(CHAT, headers={"content-type": kind})).status == 415

    run_virtual(main())


def test_ollamas_clients_learn_the_context_length_of_a_model() -> None:
    async def main() -> None:
        headers = {"authorization": f"Bearer {KEY}"}
        client = visitor(fake(), named("web", KEY))
        fields = (await client.asks({"model": "fast"}, path="/api/show", headers=headers)).json
        assert "tools" in fields["capabilities"]
        architecture = fields["model_info"]["general.architecture"]
        assert fields["model_info"][f"{architecture}.context_length"] == 32_000
        for body, given, status in (({"model": "no"}, headers, 404), ({"model": "fast"}, {}, 401)):
            asked = await visitor(fake(), named("web", KEY)).asks(
                body, path="/api/show", headers=given
            )
            assert asked.status == status
            assert isinstance(asked.json["error"], str)

    run_virtual(main())


def test_a_removed_key_is_rejected_at_once() -> None:
    async def main() -> None:
        client, headers = visitor(fake(), named("web", KEY)), {"authorization": f"Bearer {KEY}"}
        routes: Any = OneRoute(fake())
        for keys, status in (
            ([named("web", KEY)], 200),
            ([named("app", KEY + "2")], 401),
            ([named("web", KEY)], 200),
        ):
            client.gateway.use(routes, tuple(keys))
            for _ in range(2):
                assert (await visits(client.gateway).asks(CHAT, headers=headers)).status == status

    run_virtual(main())


def test_unknown_fields_are_forwarded_byte_for_byte() -> None:
    async def main() -> None:
        service = fake()
        await visitor(service).asks(b'{"model":"fast","odd":{"b":1.50,  "a":[2e3]},"messages":[]}')
        assert bytes(service.calls[0].call.body["odd"]) == b'{"b":1.50,  "a":[2e3]}'

    run_virtual(main())


def test_health_needs_no_key_and_reports_draining() -> None:
    async def main() -> None:
        client = visitor(fake(), ClientKey("web", b""))
        await client.asks(b"", path="/health/ready", method="GET")
        assert client.status == 200
        again = visitor(fake())
        again.gateway.draining = True
        await again.asks(b"", path="/health/ready", method="GET")
        assert again.status == 503
        for path in ("/health/live", "/health", "/", "/api/hello", "/api/version"):
            assert (await visitor(fake()).asks(b"", path=path, method="GET")).status == 200
            assert (await visitor(fake()).asks(b"", path=path, method="HEAD")).status == 200

    run_virtual(main())


def test_root_leads_a_browser_to_the_dashboard() -> None:
    async def main() -> None:
        headers = {"accept": "text/html,*/*;q=0.8"}
        client = visitor(fake(), ClientKey("web", b""))
        await client.asks(b"", path="/", method="GET", headers=headers)
        assert client.status == 302
        assert client.headers["location"] == "/dashboard"

    run_virtual(main())


def test_routing_headers_of_a_request_reach_policies() -> None:
    async def main() -> None:
        service = fake()
        preferences = {
            "x-splitsecond-complexity": "high",
            "x-splitsecond-task": "t" * 5000,
            "x-splitsecond-region": " eu ",
            "cache-control": "no-store",
            "cookie": "session=1",
            "x-forwarded-for": "10.0.0.1",
        }
        key = named("web", KEY)
        await visitor(service, key).asks(
            STREAM, headers=preferences | {"authorization": f"Bearer {KEY}"}
        )
        (received,) = service.calls
        assert received.call.hints == {
            "complexity": "high",
            "task": "t" * LONGEST_HINT,
            "region": "eu",
            "cache": "no-store",
        }
        assert (received.call.client, received.call.stream, received.call.watched) == (
            "web",
            True,
            False,
        )
        assert KEY not in repr(received.call)

    run_virtual(main())


def test_notes_of_policies_become_response_headers() -> None:
    class Annotating:
        async def __call__(self, call: Call) -> Reply:
            call.notes.attempts = 1
            call.notes.cache = "hit"
            call.notes.chosen = "fastest: a/x\r\nset-cookie: b=c ü"
            call.notes.dropped.append("logit_bias")
            call.notes.added |= {"fake/model": "max_tokens=8192", "other": "max_tokens=1"}
            call.notes.estimated += ["fake/model"] if call.stream else ["other"]
            return await fake()(call)

    async def main() -> None:
        for body in (CHAT, STREAM):
            client = await visitor(Annotating()).asks(
                body | {"api_key": "sk-1", "base_url": "http://evil"}
            )
            headers = client.headers
            assert headers["x-splitsecond-attempts"] == "2"
            assert headers["x-splitsecond-cache"] == "hit"
            assert headers["x-splitsecond-chosen"] == "fastest: a/x??set-cookie: b=c ?"
            assert headers["x-splitsecond-dropped"] == "api_key, base_url, logit_bias"
            assert headers["x-splitsecond-added"] == "max_tokens=8192"
            assert headers["x-splitsecond-estimated"] == (
                "message_start" if body is STREAM else "usage"
            )
            assert headers["x-request-id"].startswith("req-")

    run_virtual(main())


def test_a_slow_request_times_out() -> None:
    async def main() -> None:
        service = fake()
        client = visitor(service)

        connection = partial_request(client)
        tasks = list(connection.state.tasks)
        for _ in range(2):
            await asyncio.sleep(BODY_TIMEOUT_NS / clock.NS_PER_S / 3)
            connection.data_received(b" ")
        await asyncio.wait(tasks)
        assert clock.now_ns() - START_NS == BODY_TIMEOUT_NS
        assert client.status == 408
        assert client.json["error"]["code"] == "slow_request"
        assert service.calls == []

    run_virtual(main())


def test_a_client_that_reads_slowly_gets_the_whole_stream() -> None:
    async def main() -> None:
        service = fake(tokens=10)
        client = visitor(service)
        client.transport = SlowReader(client, BODY_TIMEOUT_NS / clock.NS_PER_S * 0.9)
        await client.asks(STREAM)
        assert client.body.endswith(b"data: [DONE]\n\n")
        assert client.answer.complete
        assert not client.transport.aborted

    run_virtual(main())


def test_a_cancelled_gateway_closes_its_attempts() -> None:
    async def main() -> None:
        service = fake(ttft=9.0)
        client = visitor(service)
        serving = asyncio.get_running_loop().create_task(client.asks(CHAT))
        await asyncio.sleep(1)
        assert client.connection is not None
        for task in client.connection.state.tasks:
            task.cancel()
        await serving
        assert service.left_open == 0
        assert (client.status, client.headers["connection"]) == (503, "close")

    run_virtual(main())


def test_new_settings_apply_from_the_next_request() -> None:
    async def main() -> None:
        client = visitor(fake())
        routes: Any = OneRoute(FakeService(script=lambda call: Script(), target="other/model"))
        client.gateway.use(routes, listen=Listen(max_body_mib=1))
        await client.asks(CHAT)
        assert client.headers["x-splitsecond-target"] == "other/model"
        again = await visits(client.gateway).asks(b" " * (1 << 20) + b" ")
        assert again.status == 413

    run_virtual(main())


@pytest.mark.parametrize("well", [True, False])
def test_a_resumed_whole_response_names_the_last_target(well: bool) -> None:
    async def main() -> None:
        cut = NetworkFault("cut", kind="truncated", phase="between tokens")
        fakes = {
            "a/x": FakeService(target="a/x", script=lambda call: Script(fault=cut, breaks_after=1)),
            "b/x": FakeService(
                target="b/x", script=lambda call: Script(ttft=0.3, fault=None if well else cut)
            ),
        }
        policy = build(
            parse('resume("a/x", "b/x")'),
            lambda name: fakes[name],
            make_encoder=continuation_encoder,
        )
        client = await visitor(policy).asks(CHAT)
        assert client.status == (200 if well else 502)
        assert client.headers["x-splitsecond-target"] == ("b/x" if well else "a/x")
        assert client.headers["x-splitsecond-attempts"] == "2"
        timing = (
            "connect;dur=0.000, upstream;dur=390.000" if well else "ttft;dur=200.000"
        )  # the last header of this name
        assert client.headers["server-timing"] == timing

    run_virtual(main())


def test_a_bug_is_recorded_as_a_failed_call(error_counts: dict[str, int]) -> None:
    class Buggy:
        async def __call__(self, call: Call) -> Reply:
            raise ZeroDivisionError(PROMPT)

    async def main() -> None:
        for path, body in (
            ("/v1/chat/completions", CHAT),
            ("/v1/messages", MESSAGES),
            ("/api/chat", CHAT),
        ):
            records: list[CallRecord] = []
            client = visitor(Buggy(), tracker=CallTracker(records.append))
            await client.asks(body, path=path)
            assert client.status == 500
            assert client.headers["content-type"] == "application/json"
            assert "the gateway has failed" in str(client.json["error"])
            assert PROMPT not in str(client.json)
            (record,) = records
            assert (record.status, record.outcome, record.fault) == (500, "failed", "internal")

    run_virtual(main())
    assert error_counts == {"request": 3}


def test_a_bug_before_a_call_is_answered_in_the_clients_format(
    error_counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*arguments: object, **settings: object) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        client = visitor(fake())
        monkeypatch.setattr("splitsecond.routing.requests.parsed_request.read", bug)
        await client.asks(MESSAGES, path="/v1/messages")
        assert (client.status, client.json["type"], client.json["error"]["type"]) == (
            500,
            "error",
            "api_error",
        )

    run_virtual(main())
    assert error_counts == {"request": 1}


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/v1/chat/completions", b'data: {"error":'),
        ("/v1/messages", b'event: error\ndata: {"type":"error"'),
        ("/api/chat", b'{"error":'),
    ],
)
def test_a_bug_within_a_stream_ends_it_with_an_error(
    path: str, end: bytes, error_counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(cycle: RequestCycle, data: bytes, *, last: bool) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    async def main() -> None:
        records: list[CallRecord] = []
        client = visitor(fake(tokens=9, tps=1.0), tracker=CallTracker(records.append))
        asyncio.get_running_loop().call_later(
            2.5, monkeypatch.setattr, RequestCycle, "write", breaks
        )
        await client.asks(MESSAGES | {"stream": True}, path=path)
        assert client.answer.complete
        assert end in client.body
        assert b"the gateway has failed" in client.body[client.body.index(end) :]
        assert client.body.count(b"word") == 3
        (record,) = records
        assert (record.status, record.outcome, record.fault) == (200, "failed", "internal")

    run_virtual(main())
    assert error_counts == {"request": 1}
