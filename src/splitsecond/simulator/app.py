"""The HTTP side: what the `endpoints` are asked, models, health and the truth, as raw ASGI.

One `SimulatedProvider` for each profile, with its own requests in flight, draws and faults; `Simulator` hands each
request to the one whose port it came in by. Faults of the head are acted out here, those between tokens in `answer`.
"""

from array import array
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from splitsecond import clock
from splitsecond.errors import Overloaded
from splitsecond.pacing import Pacer
from splitsecond.simulator import faults
from splitsecond.simulator.answer import Answer
from splitsecond.simulator.asked import Asked, Refusal, understand
from splitsecond.simulator.connection import EXTENSION, Connection
from splitsecond.simulator.content import content, renderer
from splitsecond.simulator.endpoints import Created, Endpoint, endpoint_at
from splitsecond.simulator.feeds import feed_of
from splitsecond.simulator.profile import Profile
from splitsecond.simulator.prompt_cache import PromptCache, Recalled
from splitsecond.simulator.truth import Record, Truth
from splitsecond.wire import openai
from splitsecond.wire.dialect import Writer

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MAX_BODY_BYTES = 32 << 20
MAX_WAITING = 1024
"""How many streams may wait to be read; the oldest are forgotten."""

_STREAMS = "/v1/streams/"
_AT_THE_HEAD = ("http", "reset", "refused")

_ERROR_TYPES: Mapping[int, str] = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_IN_STREAM_ERROR = ("the model failed while it answered (simulated)", "server_error", "simulated")


class Simulator:
    """The application: several providers, each at its own port."""

    def __init__(self, providers: "Mapping[int, SimulatedProvider]") -> None:
        self._providers = providers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._providers[scope["server"][1]](scope, receive, send)

    def refuses_connection(self, port: int) -> bool:
        """Whether the next connection to `port` is to be reset at once."""
        return self._providers[port].refuses_connection()

    def abandon(self) -> None:
        """Break every answer off: the server is going down."""
        for provider in self._providers.values():
            provider.abandon()


class SimulatedProvider:
    """One provider. `seed` decides its draws."""

    def __init__(self, profile: Profile, *, seed: int, pacer: Pacer, truth: Truth) -> None:
        refused = tuple(fault for fault in profile.faults if fault.kind == "refused")
        later = tuple(fault for fault in profile.faults if fault.kind != "refused")
        self.profile = msgspec.structs.replace(profile, faults=later)
        self._refused = refused
        self._pacer = pacer
        self._truth = truth
        self._feed = feed_of(profile, pacer, seed)
        self._prompts = None if profile.prompt_cache is None else PromptCache(profile.prompt_cache)
        self._in_flight = 0
        self._answers: set[Answer] = set()
        self._connections = 0
        self._requests = 0
        self._waiting: dict[str, Asked] = {}  # streams that were asked for, and are to be read with another request

    def refuses_connection(self) -> bool:
        """Whether the next connection is to be reset at once."""
        self._connections += 1
        return faults.first_striking(self._refused, self._connections) is not None

    def abandon(self) -> None:
        """Break every answer off."""
        for answer in self._answers:
            answer.end("abandoned")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        endpoint = endpoint_at(path)
        try:
            if endpoint is not None and method == "POST":
                await self._complete(endpoint, scope, receive, send)
            elif method == "GET" and (asked := self._waiting.pop(path.removeprefix(_STREAMS), None)) is not None:
                endpoint = asked.endpoint
                await self._serve(asked, scope, receive, send)
            else:
                await _respond(send, 200, self._page(method, path))
        except Refusal as refusal:
            await _refuse(send, refusal, endpoint)

    def _page(self, method: str, path: str) -> bytes:
        match method, path:
            case "GET", "/v1/models":
                model = {"id": self.profile.model, "object": "model", "created": 0, "owned_by": "splitsecond"}
                return msgspec.json.encode({"object": "list", "data": [model]})
            case "GET", "/health":
                return msgspec.json.encode({"status": "ok", "profile": self.profile.name, "in_flight": self._in_flight})
            case "GET", "/truth":
                return self._truth.as_json(self.profile.name)
            case "DELETE", "/truth":
                self._truth.clear(self.profile.name)
                return b"[]"
            case _:
                raise Refusal(404, f"there is no {method} {path} here", code="unknown_url")

    async def _complete(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read(receive)
        if body is None:
            return
        self._requests += 1
        asked = understand(
            self.profile,
            endpoint,
            f"{scope['path']}?{scope.get('query_string', b'').decode('latin-1')}",
            dict(scope["headers"]),
            body,
            number=self._requests,
            arrived_ns=scope["extensions"][EXTENSION]["arrived_ns"],
        )
        if endpoint.created is not None and asked.request.stream and asked.fault_kind not in _AT_THE_HEAD:
            await _respond(send, 201, self._create(asked, endpoint.created, scope))
        else:
            await self._serve(asked, scope, receive, send)

    def _create(self, asked: Asked, created: Created, scope: Scope) -> bytes:
        """The stream that was asked for will be read later; where."""
        self._waiting[asked.answer_id] = asked
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        host = dict(scope["headers"]).get(b"host", b"localhost").decode("latin-1")
        url = f"http://{host}{_STREAMS}{asked.answer_id}"
        return created(asked.request.model, id=asked.answer_id, created=_created(), stream=url)

    async def _serve(self, asked: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        self._in_flight += 1
        try:
            asked = msgspec.structs.replace(asked, recalled=self._recall(asked))
            await self._act(asked, scope["extensions"][EXTENSION]["connection"], receive, send)
        finally:
            self._in_flight -= 1

    def _recall(self, asked: Asked) -> Recalled | None:
        if self._prompts is None:
            return None
        text = asked.request.prompt_text
        if asked.endpoint.marked_cache:
            return self._prompts.recall_marked(text, asked.request.cache_marks, asked.arrived_ns)
        return self._prompts.recall(text, asked.arrived_ns)

    def _keep(self, asked: Asked) -> None:
        """The prompt has been worked off: from now on its beginnings are known."""
        if self._prompts is not None and asked.recalled is not None:
            self._prompts.keep(asked.recalled.beginnings, clock.now_ns())

    async def _act(self, asked: Asked, connection: Connection, receive: Receive, send: Send) -> None:
        fault = asked.fault
        if fault is not None and fault.kind == "http":
            self._note(asked, asked.fault_kind)
            status = fault.status or 500
            raise Refusal(
                status, f"a {status}, as was asked for (simulated)", code="simulated", retry_after=fault.retry_after
            )
        if fault is not None and fault.kind in ("reset", "refused"):
            self._note(asked, asked.fault_kind)
            connection.reset()
        else:
            await self._answer(asked, connection, send)
        if connection.transport.is_closing():
            while (await receive())["type"] != "http.disconnect":  # uvicorn has to see it before we return
                pass

    async def _answer(self, asked: Asked, connection: Connection, send: Send) -> None:
        in_flight = self._in_flight
        writer = asked.endpoint.dialect.StreamWriter(
            asked.endpoint.operation, asked.request.model, id=asked.answer_id, created=_created()
        )
        answer = Answer(
            tokens=asked.output_tokens,
            pacer=self._pacer,
            fault=asked.fault,
            render=renderer(asked, writer),
            write=connection.write_chunk,
            error=writer.error(*_IN_STREAM_ERROR),
            malformed=asked.endpoint.malformed,
            held=not asked.request.stream,
            begun=lambda: self._keep(asked),
        )
        try:
            stop = self._feed.start(
                answer,
                arrived_ns=asked.arrived_ns,
                in_flight=in_flight,
                prompt_tokens=asked.prompt_tokens,
                cached_tokens=asked.cached_tokens,
            )
        except Overloaded as error:
            self._note(asked, "full")
            status = self.profile.engine.full_status if self.profile.engine else 503
            raise Refusal(status, error.message, code="overloaded", retry_after=1) from error
        connection.on_lost = answer.closed_by_client
        self._answers.add(answer)
        try:
            await answer.head_due(asked.arrived_ns)
            if asked.request.stream:
                await _stream(asked, answer, writer, connection, send)
            else:
                await _whole(asked, answer, connection, send)
        finally:
            connection.on_lost = None
            self._answers.discard(answer)
            answer.end("abandoned")
            stop()
            self._note(asked, asked.fault_kind, in_flight, answer)

    def _note(self, asked: Asked, fault: str, in_flight: int = 0, answer: Answer | None = None) -> None:
        self._truth.keep(
            Record(
                request_id=asked.request_id,
                profile=self.profile.name,
                in_flight=in_flight or self._in_flight,
                arrived_ns=asked.arrived_ns,
                planned_ns=answer.planned_ns if answer else array("q"),
                actual_ns=answer.actual_ns if answer else array("q"),
                prompt_tokens=asked.prompt_tokens,
                cached_tokens=asked.cached_tokens,
                cache_write_tokens=(asked.recalled.written_tokens if asked.recalled else None) or 0,
                output_tokens=asked.output_tokens,
                fault=fault,
                ended_ns=clock.now_ns(),
                closed_by_client=answer is not None and answer.outcome == "closed_by_client",
            )
        )


async def _stream(asked: Asked, answer: Answer, writer: Writer, connection: Connection, send: Send) -> None:
    headers = [
        (b"content-type", asked.endpoint.content_type),
        (b"cache-control", b"no-cache"),
        (asked.endpoint.id_header, asked.request_id.encode("latin-1")),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    opening = writer.opening()
    if opening:
        await send({"type": "http.response.body", "body": opening, "more_body": True})
    answer.open()
    match await answer.ended():
        case "complete":
            answer.release()
            answer.stamp()  # what a dialect says only with the end
            tail = writer.finish(asked.finish)
            if asked.request.include_usage:
                tail += writer.usage(asked.usage())
            if asked.fault_kind != "no_done":
                tail += writer.done()
            await send({"type": "http.response.body", "body": tail})
        case "error_event":
            await send({"type": "http.response.body", "body": b""})
        case "cut":
            connection.transport.close()
        case _:
            connection.reset()


async def _whole(asked: Asked, answer: Answer, connection: Connection, send: Send) -> None:
    outcome = await answer.ended()
    if outcome in ("closed_by_client", "abandoned"):
        connection.reset()
        return
    dialect = asked.endpoint.dialect
    body = dialect.whole(
        asked.endpoint.operation,
        asked.request.model,
        [content(asked)],
        asked.usage(),
        id=asked.answer_id,
        created=_created(),
    )
    if outcome == "error_event":
        body = dialect.error_body(200, *_IN_STREAM_ERROR)
    answer.stamp()
    half = body[: len(body) // 2]
    if outcome == "cut":
        await _start(send, 200, len(body))
        await send({"type": "http.response.body", "body": half, "more_body": True})
        connection.transport.close()
    else:
        await _respond(send, 200, half if asked.fault_kind == "malformed" else body)


async def _respond(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    await _start(send, status, len(body), headers)
    await send({"type": "http.response.body", "body": body})


async def _start(send: Send, status: int, length: int, headers: Headers | None = None) -> None:
    fixed: Headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *(headers or [])]})


async def _refuse(send: Send, refusal: Refusal, endpoint: Endpoint | None) -> None:
    error_body = endpoint.dialect.error_body if endpoint else openai.error_body
    kind = _ERROR_TYPES.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "server_error")
    retry: Headers = [] if refusal.retry_after is None else [(b"retry-after", b"%d" % refusal.retry_after)]
    await _respond(send, refusal.status, error_body(refusal.status, refusal.message, kind, refusal.code), retry)


async def _read(receive: Receive) -> bytes | None:
    """The body of a request; None where the client left before its end."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if len(body) > MAX_BODY_BYTES:
            raise Refusal(413, f"the body is longer than {MAX_BODY_BYTES} bytes", code="body_too_long")
        if not message["more_body"]:
            return bytes(body)


def _created() -> int:
    return int(clock.wall_time().timestamp())
