"""Responses over a WebSocket: each message is a request of its own, and costs the gateway bounded memory."""

import asyncio
import gc
import hashlib
import json
import sys
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.gateway.socket_client import SocketClient
from tests.gateway.test_embeddings import Answering
from tests.gateway.visitor import OneRoute, visits
from tests.upstream.scripted_client import ScriptedExchange
from websockets.frames import Frame, Opcode

from splitsecond.errors import ProviderFault
from splitsecond.gateway.app import Gateway
from splitsecond.gateway.records.access_log import AccessLog
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.responses_socket import ITEM_BYTES, LONGEST_S, MAX_ITEMS, Conversation, Conversations
from splitsecond.policies.expression import Expression, parse
from splitsecond.router.call_tracker import CallTracker
from splitsecond.router.settings import ClientKey
from splitsecond.serving.websocket import MAX_SMALL_FRAMES, MAX_WAITING, MESSAGE_S, PING_S, SILENT_S
from splitsecond.store.call_record import CallRecord
from splitsecond.testing.fake_service import FakeCall, FakeService, Script
from splitsecond.testing.virtual_time import run_virtual
from splitsecond.transport.client import Client
from splitsecond.upstream.spec import TargetSpec
from splitsecond.upstream.target import connect
from splitsecond.wire.openai import StreamWriter as ChatWriter

CODEX = Path(__file__).with_name("codex_messages.jsonl")
WORDS = ("It ", "is ", "sunny.")


def service(script: Script | None = None) -> FakeService:
    answer = script or Script(tokens=len(WORDS), texts=WORDS, input_tokens=5)
    return FakeService(script=lambda call: answer, target="fake/model")


def gateway(fake: FakeService, *keys: ClientKey, max_body_bytes: int = 1 << 20, **settings: Any) -> Gateway:
    routes: Any = OneRoute(fake)
    return Gateway(routes, keys, max_body_bytes=max_body_bytes, **settings)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(test())


def types(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


def text(events: list[Any]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def identity(events: list[Any]) -> str:
    assert events[-1]["type"] == "response.completed", events[-1]
    return str(events[-1]["response"]["id"])


def key(name: str, **limits: Any) -> ClientKey:
    return ClientKey(name, hashlib.sha256(name.encode()).digest(), **limits)


def field(call: FakeCall, name: str) -> Any:
    return msgspec.json.decode(call.call.body[name])


def inputs(fake: FakeService) -> list[Any]:
    return [field(call, "input") for call in fake.calls]


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


def test_a_continuation_gets_the_whole_conversation() -> None:
    async def main() -> None:
        fake = service()
        client = await SocketClient(gateway(fake)).opened()
        first = identity(await client.asks(input="Weather?", store=False))
        again = {"role": "user", "content": "And tomorrow?"}
        second = identity(await client.asks(input=[again], previous_response_id=first))
        await client.asks(input=[], previous_response_id=second)
        question = {"type": "message", "role": "user", "content": "Weather?"}
        one, two, three = inputs(fake)
        assert one == "Weather?"
        assert two[0] == question
        assert (two[1]["role"], two[1]["content"][0]["text"]) == ("assistant", "It is sunny.")
        assert "id" not in two[1]  # no provider has stored it
        assert two[2] == again
        assert three[:3] == two
        assert "id" in three[3]
        assert all("previous_response_id" not in call.call.body for call in fake.calls)
        await client.leaves()

    run(main)


def test_another_response_is_for_the_target_to_continue() -> None:
    async def main() -> None:
        fake = service()
        here = gateway(fake)
        client = await SocketClient(here).opened()
        first = identity(await client.asks())
        await client.asks()
        await client.asks(previous_response_id=first)
        assert field(fake.calls[-1], "previous_response_id") == first
        unknown = identity(await client.asks(previous_response_id="resp_unknown"))
        await client.asks(previous_response_id=unknown)  # of that conversation, only the end has been here
        assert field(fake.calls[-1], "previous_response_id") == unknown
        other = await SocketClient(here).opened()
        await other.asks(previous_response_id=unknown)
        assert "previous_response_id" in fake.calls[-1].call.body
        await client.leaves()
        await other.leaves()

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
        limits = KeyLimits([web], lambda attempt: None)
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


# Hostile and absent clients.


def test_fragments_and_pings_in_any_split() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        message = json.dumps({"type": "response.create", "model": "fast", "input": "hü"}, ensure_ascii=False).encode()
        client.protocol.send_text(message[:50], fin=False)
        client.protocol.send_ping(b"there?")
        client.protocol.send_continuation(message[50:53], fin=False)
        client.protocol.send_continuation(message[53:], fin=True)
        for byte in b"".join(client.protocol.data_to_send()):
            client.sends(bytes([byte]))
        assert text(await client.hears()) == "It is sunny."
        pongs = [frame for frame in client.frames if frame.opcode is Opcode.PONG]
        assert [bytes(frame.data) for frame in pongs] == [b"there?"]
        await client.leaves()

    run(main)


def _frame(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


HOSTILE = {
    "announces 4 EiB": (b"\x81\xff" + (1 << 62).to_bytes(8, "big"), 1009),
    "long in fragments": (_frame(Opcode.TEXT, b"x" * 60_000, fin=False) + _frame(Opcode.CONT, b"x" * 60_000), 1009),
    "binary": (_frame(Opcode.BINARY, b"{}"), 1003),
    "continues nothing": (_frame(Opcode.CONT, b"x"), 1002),
    "not masked": (Frame(Opcode.TEXT, b"{}").serialize(mask=False), 1002),
    "reserved bits": (b"\xf1\x80\0\0\0\0", 1002),
    "pings": (_frame(Opcode.PING, b"") * (MAX_SMALL_FRAMES + 1), 1008),
    "empty fragments": (
        _frame(Opcode.TEXT, b"", fin=False) + _frame(Opcode.CONT, b"", fin=False) * MAX_SMALL_FRAMES,
        1008,
    ),
    "many messages": (_frame(Opcode.TEXT, b"{" + b" " * 200) * (MAX_WAITING + 2), 1008),
    "long messages": (_frame(Opcode.TEXT, b"{" + b" " * 40_000) * 4, 1009),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_frames_end_the_websocket(name: str) -> None:
    async def main() -> None:
        data, code = HOSTILE[name]
        fake = service(Script(tokens=1000, tps=1))
        client = await SocketClient(gateway(fake, max_body_bytes=100_000)).opened()
        client.says({"type": "response.create", "model": "fast", "input": "hi"})
        await asyncio.sleep(1)
        client.sends(data)
        assert client.close_code == code
        assert client.transport.closed
        await client.leaves()
        assert fake.calls[0].closed_at is not None

    run(main)


def test_a_client_that_does_not_read_is_not_read() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        client.connection.pause_writing()
        paused = []
        client.sends(_frame(Opcode.PING, b""))
        paused.append(client.transport.reading_paused)
        client.connection.resume_writing()
        paused.append(client.transport.reading_paused)
        assert paused == [True, False]
        client.connection.pause_writing()
        await asyncio.sleep(100)
        assert client.transport.aborted
        assert not client.connection.state.tasks

    run(main)


def test_a_silent_client_is_pinged_and_given_up() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        await asyncio.sleep(PING_S + 15)
        client.reads()  # and answers the ping
        assert {frame.opcode for frame in client.frames} == {Opcode.PING}
        closed = []
        for seconds in (SILENT_S - 20, 50):
            await asyncio.sleep(seconds)
            closed.append(client.transport.closed)
        assert closed == [False, True]
        assert client.close_code == 1001
        await client.leaves()

    run(main)


def test_a_message_that_does_not_arrive_is_given_up() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        frame = _frame(Opcode.TEXT, b"x" * 500)
        client.sends(frame[:20])
        await asyncio.sleep(MESSAGE_S / 2)
        client.sends(frame[20:30])
        await asyncio.sleep(MESSAGE_S / 2 + 15)
        assert client.close_code == 1008
        await client.leaves()

    run(main)


def test_a_websocket_ends_after_an_hour() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service(Script(tokens=100, tps=1)))).opened()
        for _ in range(int(LONGEST_S // 100) - 1):
            assert not await client.hears(100)
        events = await client.hears(101)
        assert events[-1]["error"]["code"] == "websocket_connection_limit_reached"
        assert client.close_code == 1000
        await client.leaves()

    run(main)


def test_a_response_in_progress_outlasts_the_hour() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service(Script(tokens=100, tps=1)))).opened()
        for _ in range(int(LONGEST_S // 100) - 1):
            await client.hears(100)
        await client.hears(50)
        events = await client.asks(seconds=200)
        assert types(events)[-2:] == ["response.completed", "error"]
        assert client.close_code == 1000
        await client.leaves()

    run(main)


def test_a_server_that_shuts_down_ends_after_the_response() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service())).opened()
        client.says({"type": "response.create", "model": "fast", "input": "hi"})
        await asyncio.sleep(0.1)
        client.connection.shut_down()
        assert identity(await client.hears())
        assert client.close_code == 1001
        await client.leaves()
        idle = await SocketClient(gateway(service())).opened()
        idle.connection.shut_down()
        await asyncio.sleep(0.1)
        assert idle.close_code == 1001
        await asyncio.sleep(15)  # this client does not close
        assert idle.transport.closed
        await idle.leaves()

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


# Conversations.


def test_conversations_have_a_limit_together() -> None:
    def item(counted: int) -> bytes:
        return b"x" * (counted - ITEM_BYTES)

    sockets: list[Any] = ["a", "b", "c"]
    conversations = Conversations(max_bytes=1000)
    for socket in sockets:
        conversations.keep(socket, Conversation("resp_1", [item(300)]))
    conversations.keep("a", Conversation("resp_2", [item(200), item(200)]))  # type: ignore[arg-type]
    assert conversations.size == 1000
    conversations.keep("c", Conversation("resp_3", [item(301)]))  # type: ignore[arg-type]
    assert [conversations.find(socket, "resp_1") for socket in sockets] == [None, None, None]
    assert conversations.size == 701
    conversations.drop("c")  # type: ignore[arg-type]
    conversations.keep("c", Conversation("resp_4", [item(1001)]))  # type: ignore[arg-type]
    assert conversations.size == 0


def test_a_conversation_counts_at_least_the_memory_of_its_items() -> None:
    items = [b"{%d}" % number for number in range(1000)]
    taken = sys.getsizeof(items) + sum(map(sys.getsizeof, items))
    assert Conversation("resp_1", items).size >= taken


def test_a_conversation_of_too_many_items_is_refused() -> None:
    async def main() -> None:
        fake = service()
        client = await SocketClient(gateway(fake)).opened()
        first = await client.asks(input=[1] * MAX_ITEMS, generate=False)
        (event,) = await client.asks(input=[1], previous_response_id=identity(first), generate=False)
        assert (event["status"], event["error"]["code"]) == (413, "request_too_large")
        assert "20,001 items; the maximum is 20,000" in event["error"]["message"]
        (event,) = await client.asks(input=[1] * (MAX_ITEMS + 1))
        assert event["status"] == 413
        assert not fake.calls
        await client.leaves()

    run(main)


def test_a_conversation_that_is_too_long_is_refused() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service(), max_body_bytes=2000)).opened()
        first = identity(await client.asks(input="x" * 1500))
        (event,) = await client.asks(input="x" * 1500, previous_response_id=first)
        assert (event["status"], event["error"]["code"]) == (413, "request_too_large")
        await client.leaves()

    run(main)


class Two(OneRoute):
    """The route "fast" with two targets; its policy always asks the first."""

    def __init__(self) -> None:
        super().__init__(service())
        self.fakes = {name: service_at(name) for name in ("a/m", "b/m")}

    def service(self, model: str, key: ClientKey | None = None, wishes: Any = None) -> FakeService:
        return self.fakes["a/m" if model == "fast" else model]

    def expression(self, model: str) -> Expression:
        return parse('fallback("a/m", "b/m")' if model == "fast" else model)


def service_at(target: str) -> FakeService:
    return FakeService(script=lambda call: Script(tokens=2), target=target)


def test_a_continuation_stays_with_its_target() -> None:
    async def main() -> None:
        routes: Any = Two()
        client = await SocketClient(Gateway(routes)).opened()
        first = identity(await client.asks(model="b/m"))
        second = identity(await client.asks(previous_response_id=first))
        await client.asks(previous_response_id=second)
        await client.asks()
        assert [len(routes.fakes[name].calls) for name in ("a/m", "b/m")] == [1, 3]
        await client.leaves()

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
        client.sends(_frame(Opcode.TEXT, b" " * 5000)[:-9])
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
