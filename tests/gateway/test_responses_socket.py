"""Responses over a WebSocket: each message is a request of its own."""

import asyncio
import gc
import json
import weakref
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.gateway.limits import key_limits
from tests.gateway.over_socket import frame, gateway, identity, inputs, key, run, service, text, types
from tests.gateway.socket_client import SocketClient
from tests.gateway.test_embeddings import Answering
from tests.gateway.visitor import OneRoute, visits
from tests.upstream.scripted_client import ScriptedExchange
from websockets.frames import Opcode

from splitsecond.errors import ProviderFault
from splitsecond.gateway.app import Gateway
from splitsecond.gateway.records.access_log import AccessLog
from splitsecond.router.call_tracker import CallTracker
from splitsecond.store.call_record import CallRecord
from splitsecond.testing.fake_service import Script
from splitsecond.transport.client import Client
from splitsecond.upstream.spec import TargetSpec
from splitsecond.upstream.target import connect
from splitsecond.wire.openai import StreamWriter as ChatWriter

CODEX = Path(__file__).with_name("codex_messages.jsonl")


def test_each_message_is_a_call_and_each_event_a_message() -> None:
    async def main() -> None:
        records: list[CallRecord] = []
        fake = service()
        client = await SocketClient(gateway(fake, tracker=CallTracker(records.append))).opened()
        for _ in range(2):
            events = await client.asks()
            assert text(events) == "It is sunny."
            assert types(events)[0] == "response.created"
            assert events[-1]["response"]["usage"]["input_tokens"] == 5
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [(record.route, record.status, record.stream, record.outcome) for record in records] == [
            ("fast", 200, True, "ok")
        ] * 2
        call = fake.calls[0].call
        assert call.stream
        assert call.dialect == "responses"
        assert call.body.keys() == {"model", "input"}
        await client.leaves()

    run(main)


def test_the_first_event_of_a_response_names_what_was_dropped() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        first, *others = await client.asks(api_base="https://elsewhere.example")
        assert first["type"] == "response.created"
        assert first["headers"]["x-splitsecond-dropped"] == "api_base"
        assert first["headers"]["x-splitsecond-target"]
        assert not any("headers" in event for event in others)
        again = await client.asks()
        assert "x-splitsecond-dropped" not in again[0]["headers"]
        assert again[0]["headers"]["x-request-id"] != first["headers"]["x-request-id"]
        await client.leaves()

    run(main)


def test_messages_are_answered_one_after_another() -> None:
    async def main() -> None:
        fake = service()
        client = await SocketClient(gateway(fake)).opened()
        for number in range(3):
            client.says(
                {"type": "response.create", "model": "fast", "input": str(number), "stream_id": f"lane {number}"}
            )
        events = await client.hears()
        ends = [call.closed_at for call in fake.calls]
        assert [call.call.start_ns for call in fake.calls[1:]] == ends[:2]
        lanes = [event["stream_id"] for event in events]
        assert lanes == sorted(lanes)
        assert set(lanes) == {"lane 0", "lane 1", "lane 2"}
        assert all("stream_id" not in call.call.body for call in fake.calls)
        await client.leaves()

    run(main)


def test_a_warm_up_asks_no_target() -> None:
    async def main() -> None:
        fake = service()
        client = await SocketClient(gateway(fake)).opened()
        events = await client.asks(input=[{"role": "user", "content": "You are warm."}], generate=False)
        assert types(events)[0] == "response.created"
        assert events[-1]["response"]["output"] == []
        assert events[-1]["response"]["usage"]["total_tokens"] == 0
        assert not fake.calls
        await client.asks(input=[{"role": "user", "content": "Go."}], previous_response_id=identity(events))
        assert [item["content"] for item in inputs(fake)[0]] == ["You are warm.", "Go."]
        (refused,) = await client.asks(model="unknown", generate=False)
        assert refused["error"]["code"] == "model_not_found"
        await client.leaves()

    run(main)


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        (b"{", 400, "bad_request"),
        (b"[]", 400, "bad_request"),
        (b'{"type":5}', 400, "bad_request"),
        (b"\xff\xff", 400, "bad_request"),
        (b"{}", 400, "unknown_event"),
        (b'{"type":"response.steer"}', 400, "unknown_event"),
        (b'{"type":"response.create"}', 400, "missing_model"),
        (b'{"type":"response.create","model":"none","input":"hi"}', 404, "model_not_found"),
        (b'{"type":"response.create","model":"fast","input":"hi","background":true}', 400, "bad_request"),
    ],
)
def test_errors_are_events_and_the_socket_stays_open(message: bytes, status: int, code: str) -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        client.says(message)
        (event,) = await client.hears()
        assert (event["type"], event["status"], event["error"]["code"]) == ("error", status, code)
        assert event["error"]["message"]
        assert event["headers"]["x-request-id"].startswith("req-")
        assert text(await client.asks()) == "It is sunny."
        await client.leaves()

    run(main)


def test_an_acknowledgement_has_no_answer() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        client.says({"type": "response.processed", "response_id": "resp_1"})
        assert not await client.hears()
        await client.leaves()

    run(main)


def test_a_failure_has_its_status_and_waiting_time() -> None:
    async def main() -> None:
        fault = ProviderFault("slow down", kind="http_429", phase="head", status=429, retry_after_ns=7 * 10**9)
        client = await SocketClient(gateway(service(Script(fault=fault)))).opened()
        (event,) = await client.asks(stream_id="a")
        assert (event["status"], event["stream_id"], event["headers"]["retry-after"]) == (429, "a", "7")
        await client.leaves()

    run(main)


def test_a_broken_response_ends_with_an_error_event() -> None:
    async def main() -> None:
        records: list[CallRecord] = []
        fault = ProviderFault("it broke", kind="truncated", phase="between tokens", status=200)
        fake = service(Script(fault=fault, breaks_after=2, tokens=5))
        client = await SocketClient(gateway(fake, tracker=CallTracker(records.append))).opened()
        events = await client.asks()
        assert types(events)[0] == "response.created"
        assert (events[-1]["type"], events[-1]["status"]) == ("error", 502)
        assert "it broke" in events[-1]["error"]["message"]
        assert records[0].fault == "truncated"
        await client.leaves()

    run(main)


def test_a_client_that_leaves_cancels_its_call() -> None:
    async def main(closes: bool) -> None:
        records: list[CallRecord] = []
        fake = service(Script(tokens=1000, tps=1))
        client = await SocketClient(gateway(fake, tracker=CallTracker(records.append))).opened()
        client.says({"type": "response.create", "model": "fast", "input": "hi"})
        client.says({"type": "response.create", "model": "fast", "input": "hi"})
        await asyncio.sleep(5)
        if closes:
            client.protocol.send_close(1000)
            client.flush()
            assert client.close_code == 1000
            assert client.transport.closed
            await asyncio.sleep(5)  # the loss of the connection is reported when everything written has been read
        await client.leaves()
        assert len(fake.calls) == 1
        assert fake.calls[0].closed_at is not None
        assert [(record.status, record.outcome) for record in records] == [(499, "cancelled")]

    run(lambda: main(True))
    run(lambda: main(False))


def test_keys_and_origins_are_checked_before_the_upgrade() -> None:
    async def main() -> None:
        keyed = gateway(service(), key("web"))
        for headers, status in (({}, 401), ({"authorization": "Bearer no"}, 401)):
            client = SocketClient(keyed, headers=headers)
            await asyncio.sleep(5)
            assert client.refusal.status == status
            await client.leaves()
        client = SocketClient(gateway(service()), headers={"origin": "http://evil.test"})
        await asyncio.sleep(5)
        assert client.refusal.status == 403
        await client.leaves()
        client = await SocketClient(keyed, headers={"authorization": "Bearer web"}).opened()
        assert text(await client.asks()) == "It is sunny."
        await client.leaves()

    run(main)


def test_a_key_that_is_removed_is_refused_at_the_next_message() -> None:
    async def main() -> None:
        fake = service()
        routes: Any = OneRoute(fake)
        keyed = gateway(fake, key("web"))
        client = await SocketClient(keyed, headers={"authorization": "Bearer web"}).opened()
        assert text(await client.asks()) == "It is sunny."
        keyed.use(routes, (key("other"),))
        (event,) = await client.asks()
        assert (event["status"], event["error"]["code"]) == (401, "invalid_api_key")
        await client.leaves()

    run(main)


def test_limits_hold_for_each_response() -> None:
    async def main() -> None:
        web = key("web", requests_per_minute=2)
        limits = key_limits([web], lambda attempt: None)
        keyed = gateway(service(), web, limits=limits)
        client = await SocketClient(keyed, headers={"authorization": "Bearer web"}).opened()
        for _ in range(2):
            assert text(await client.asks(seconds=1)) == "It is sunny."
        (event,) = await client.asks(seconds=1)
        assert event["status"] == 429
        assert int(event["headers"]["retry-after"]) > 0
        assert "x-ratelimit-limit-requests" in event["headers"]
        await asyncio.sleep(60)
        assert text(await client.asks()) == "It is sunny."
        await client.leaves()

    run(main)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/chat/completions", {}, 426),
        ("/v1/responses/input_tokens", {}, 426),
        ("/v1/none", {}, 404),
        ("/v1/responses", {"sec-websocket-version": "8"}, 400),
        ("/v1/responses", {"sec-websocket-key": "short"}, 400),
        ("/v1/responses", {"connection": "keep-alive"}, 426),
        ("/v1/responses", {"content-length": "0"}, 400),
        ("/v1/responses", {"transfer-encoding": "chunked"}, 400),
    ],
)
def test_another_handshake_is_refused(path: str, headers: dict[str, str], status: int) -> None:
    async def main() -> None:
        client = SocketClient(gateway(service()), path, headers)
        await asyncio.sleep(1)
        assert client.refusal.status == status
        protocol = "websocket" if path == "/v1/responses" else "HTTP/1.1"
        assert client.refusal.headers.get("upgrade") == (protocol if status == 426 else None)
        assert (b"\r\nconnection: upgrade\r\n" in client.transport.written) is (status == 426)
        assert not client.transport.closed
        await client.leaves()

    run(main)


def test_what_comes_before_the_answer_to_the_handshake_is_kept() -> None:
    async def main() -> None:
        client = SocketClient(gateway(service()))
        waits = client.transport
        assert waits.reading_paused
        message = {"type": "response.create", "model": "fast", "input": "hi"}
        client.protocol.send_text(json.dumps(message).encode())
        client.flush()
        await client.opened()
        assert not client.transport.reading_paused
        assert text(await client.hears()) == "It is sunny."
        await client.leaves()

    run(main)


def test_a_post_request_follows_a_refused_upgrade() -> None:
    async def main() -> None:
        client = SocketClient(gateway(service()), "/v1/chat/completions")
        body = json.dumps({"model": "fast", "messages": []}).encode()
        rest = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        client.sends(rest + b"content-length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(5)
        assert client.transport.written.startswith(b"HTTP/1.1 426 ")
        assert b"HTTP/1.1 200 " in client.transport.written
        await client.leaves()

    run(main)


def test_a_refused_message_is_in_the_access_log(tmp_path: Any) -> None:
    async def main() -> None:
        path = tmp_path / "access.jsonl"
        log = AccessLog(str(path), print)
        client = await SocketClient(gateway(service(), access_log=log)).opened()
        await client.asks(model="none")
        line = json.loads(path.read_text())
        assert (line["method"], line["path"], line["status"], line["fault"]) == (
            "POST",
            "/v1/responses",
            404,
            "model_not_found",
        )
        await client.leaves()
        log.close()

    run(main)


class Telling(Answering):
    """A transport whose requests are answered with one of `answers` each."""

    def __init__(self, *answers: bytes) -> None:
        super().__init__()
        self._answers = list(answers)

    async def send(self, *given: Any, **options: Any) -> ScriptedExchange:
        self.parts = (self._answers.pop(0),)
        return await super().send(*given, **options)


def _called(name: str) -> bytes:
    writer = ChatWriter("chat", "m", id="x", created=1)
    call = writer.tool_call(name, "call_1") + writer.token('{"cmd":"ls"}', "tool")
    return writer.opening() + call + writer.finish("tool_calls") + writer.done()


def _said(words: str) -> bytes:
    writer = ChatWriter("chat", "m", id="x", created=1)
    return writer.opening() + writer.token(words) + writer.finish("stop") + writer.done()


@pytest.mark.parametrize("called", ["exec_command", "multi_agent_v1__send_input"])
def test_codex(called: str) -> None:
    """The messages of Codex 0.169.0 for one command, with shortened texts: a warm-up, the prompt, the result."""

    async def main() -> None:
        transport = Telling(_called(called), _said("Done."))
        quirks = {"drop_tools": ["web_search"]}
        spec = TargetSpec(name="fake/model", base_url="http://x.test/v1", model="m", quirks=quirks)
        target = connect(spec, lambda attempt: None, environment={}, client=cast(Client, transport), raw=True)
        routes: Any = OneRoute(target)
        client = await SocketClient(
            Gateway(routes), headers={"openai-beta": "responses_websockets=2026-02-06"}
        ).opened()
        found: list[Any] = []
        for line in CODEX.read_text().splitlines():
            message = json.loads(line) | {"model": "fast"}
            if "previous_response_id" in message:
                message["previous_response_id"] = identity(found)
            client.says(message)
            found = await client.hears()
            if found[-1]["response"]["output"] and "call_id" in (item := found[-1]["response"]["output"][0]):
                namespace, _, name = called.rpartition("__")
                assert (item["name"], item.get("namespace", "")) == (name, namespace)
        assert text(found) == "Done."
        first, second = (msgspec.json.decode(request.body) for request in transport.sent)
        assert [message["role"] for message in first["messages"]] == ["system", "system", "user", "user"]
        assert [tool["function"]["name"] for tool in first["tools"]] == ["exec_command", "multi_agent_v1__send_input"]
        assert second["messages"][:4] == first["messages"]
        (call,) = second["messages"][4]["tool_calls"]
        assert call["function"] == {"name": called, "arguments": '{"cmd":"ls"}'}
        assert second["messages"][5]["role"] == "tool"
        await client.leaves()

    run(main)


def test_a_post_request_is_served_as_before() -> None:
    async def main() -> None:
        body = {"model": "fast", "input": "hi", "type": "response.create", "generate": False}
        fake = service()
        client = await visits(gateway(fake)).asks(body, path="/v1/responses")
        assert client.status == 200
        assert "generate" in fake.calls[0].call.body

    run(main)


def test_a_websocket_that_is_over_leaves_nothing_behind() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        client.sends(frame(Opcode.TEXT, b" " * 5000)[:-9])
        upgraded = cast(Any, client.connection)._upgraded
        kept = [weakref.ref(each) for each in (upgraded, upgraded._protocol)]
        del upgraded
        await client.leaves()
        assert [each() for each in kept] == [None, None]

    gc.collect()
    gc.disable()
    try:
        run(main)
    finally:
        gc.enable()
