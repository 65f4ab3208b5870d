"""The front door, as raw ASGI: who asks, for what, and how the answer goes back.

Nothing is sent before the first token, so a policy may change its mind and a failure still has its own status. After it
a failure ends the stream with an error event, never with an end that looks whole. Of the client's headers none goes to
a provider, and of the provider's none to the client. Each request is watched: when its client leaves, whatever is done
for it is cancelled, and its upstream connections are closed as that unwinds.
"""

import asyncio
import hashlib
import hmac
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault
from splitsecond.gateway import asked
from splitsecond.gateway.asked import Asked
from splitsecond.gateway.assemble import Assembly
from splitsecond.gateway.refusal import Headers, Refusal, refusal
from splitsecond.gateway.relay import Relay
from splitsecond.gateway.routes import Model, Routes
from splitsecond.gateway.settings import ClientKey
from splitsecond.service import Call, Operation, Reply, Service

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

BODY_S = 60.0
"""How long a client may take to send its request."""
UNREAD_S = 60.0
"""How long a client may leave an answer unread, once all buffers on the way are full."""
_OPERATIONS: Mapping[str, Operation] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
_JSON = (b"content-type", b"application/json")
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class _Left(Exception):
    """The client has gone."""


class Visit(Struct):
    """One request under way."""

    scope: Scope
    receive: Receive
    send: Send
    start_ns: int

    def header(self, name: bytes) -> bytes:
        """The first header of that name; b"" for none."""
        return next((value for key, value in self.scope["headers"] if key == name), b"")


class Gateway:
    """The ASGI application. `draining`: it is about to go down, and says so to those who ask whether it is ready."""

    def __init__(self, routes: Routes, keys: tuple[ClientKey, ...] = (), *, max_body_bytes: int = 32 << 20) -> None:
        self.draining = False
        self._routes = routes
        self._keys = keys
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        visit = Visit(scope, receive, send, clock.now_ns())
        try:
            await self._dispatch(visit)
        except _Left:
            pass
        except Fault as fault:
            await _refuse(visit, refusal(fault))

    async def _dispatch(self, visit: Visit) -> None:
        method, path = visit.scope["method"], visit.scope["path"]
        operation = _OPERATIONS.get(path)
        expected = "POST" if operation else "GET"
        pages = {"/health/live": self._live, "/health/ready": self._ready, "/v1/models": self._models}
        if operation is None and path not in pages:
            raise CallerFault(f"there is no {path[:200]!r} here", kind="not_found", status=404)
        if method != expected:
            raise CallerFault(f"{path} takes {expected}, got {method}", kind="method_not_allowed", status=405)
        if operation is None:
            await pages[path](visit)
        else:
            await self._complete(visit, operation)

    async def _live(self, visit: Visit) -> None:
        await _answer(visit, 200, b'{"status":"live"}')

    async def _ready(self, visit: Visit) -> None:
        if self.draining:
            await _answer(visit, 503, b'{"status":"draining"}')
        else:
            await _answer(visit, 200, b'{"status":"ready"}')

    async def _models(self, visit: Visit) -> None:
        models = [Model(name) for name in self._routes.names(self._key(visit))]
        await _answer(visit, 200, msgspec.json.encode({"object": "list", "data": models}))

    def _key(self, visit: Visit) -> ClientKey | None:
        """Whose request it is; None where there are no keys. Every key is compared, so that time tells nothing."""
        if not self._keys:
            return None
        scheme, _, presented = visit.header(b"authorization").partition(b" ")
        digest = hashlib.sha256(presented.strip()).digest()
        found = [key for key in self._keys if hmac.compare_digest(key.digest, digest)]
        if not found or scheme.lower() != b"bearer":
            raise CallerFault(
                "no valid key", kind="invalid_api_key", status=401, hint="Send it as Authorization: Bearer KEY."
            )
        return found[0]

    async def _complete(self, visit: Visit, operation: Operation) -> None:
        key = self._key(visit)
        if not visit.header(b"content-type").lower().startswith(b"application/json"):
            hint = "Send Content-Type: application/json."  # a browser's page of another origin cannot without asking
            raise CallerFault("the request's body is not JSON", kind="unsupported_media_type", status=415, hint=hint)
        request = asked.read(await self._body(visit))
        service = self._routes.service(request.model, key)
        call = Call(id=f"req-{uuid.uuid4().hex}", operation=operation, body=request.body, start_ns=visit.start_ns)
        await _while_there(visit, self._serve(visit, request, call, service))

    async def _body(self, visit: Visit) -> bytes:
        limit = self._max_body_bytes
        declared = visit.header(b"content-length")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise _too_long(limit)
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                while True:
                    message = await visit.receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise _too_long(limit)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            words = f"the request's body did not come within {BODY_S:g} s"
            raise CallerFault(words, kind="slow_request", status=408) from None

    async def _serve(self, visit: Visit, request: Asked, call: Call, service: Service) -> None:
        try:
            reply = await service(call)
        except Fault as fault:
            await _refuse(visit, refusal(fault), self._said(visit, call))
            return
        async with reply:
            headers = [*self._said(visit, call), (b"x-splitsecond-target", _header_value(reply.target))]
            if request.stream:
                await _stream(visit, reply, headers, Relay(usage=request.usage))
            else:
                await _whole(visit, reply, headers)

    def _said(self, visit: Visit, call: Call) -> Headers:
        """What the head says of how the call went so far."""
        waited_ms = (clock.now_ns() - visit.start_ns) / clock.NS_PER_MS
        return [
            (b"x-request-id", call.id.encode()),
            (b"x-splitsecond-attempts", str(call.notes.attempts).encode()),
            (b"server-timing", b"ttft;dur=%.3f" % waited_ms),
        ]


async def _while_there(visit: Visit, work: Coroutine[Any, Any, None]) -> None:
    """`work`, cancelled when the client leaves."""
    try:
        async with asyncio.TaskGroup() as group:
            working: asyncio.Task[None] = group.create_task(work)
            watching = group.create_task(_left(visit.receive, working))
            working.add_done_callback(lambda _: watching.cancel())
    except BaseExceptionGroup as failures:  # a bug: show it as it is
        raise failures.exceptions[0] from None


async def _left(receive: Receive, working: "asyncio.Task[None]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    working.cancel()


async def _stream(visit: Visit, reply: Reply, headers: Headers, relay: Relay) -> None:
    """The head with the first bytes, then whatever comes as it comes."""
    await _send(visit, {"type": "http.response.start", "status": 200, "headers": [*_STREAM, *headers]})
    try:
        while data := await reply.read():
            if whole := relay.feed(data):
                await _send(visit, {"type": "http.response.body", "body": whole, "more_body": True})
        last = relay.rest()
    except Fault as fault:
        last = refusal(fault).event
    await _send(visit, {"type": "http.response.body", "body": last, "more_body": False})


async def _whole(visit: Visit, reply: Reply, headers: Headers) -> None:
    """One answer, when all of it has come."""
    assembly = Assembly()
    try:
        while data := await reply.read():
            assembly.feed(data)
        body = assembly.answer()
    except Fault as fault:
        await _refuse(visit, refusal(fault), headers)
        return
    await _answer(visit, 200, body, headers)


async def _refuse(visit: Visit, no: Refusal, headers: Headers | None = None) -> None:
    await _answer(visit, no.status, no.body, [*no.headers, *(headers or [])])


async def _answer(visit: Visit, status: int, body: bytes, headers: Headers | None = None) -> None:
    length = (b"content-length", str(len(body)).encode())
    await _send(visit, {"type": "http.response.start", "status": status, "headers": [_JSON, length, *(headers or [])]})
    await _send(visit, {"type": "http.response.body", "body": body})


async def _send(visit: Visit, message: Mapping[str, Any]) -> None:
    """Raises `_Left` where the client does not take it: it can no more be told than one that has gone."""
    try:
        async with asyncio.timeout(UNREAD_S):
            await visit.send(message)
    except TimeoutError:
        raise _Left from None


def _too_long(limit: int) -> CallerFault:
    return CallerFault(f"the request's body is longer than {limit} bytes", kind="request_too_large", status=413)


def _header_value(text: str) -> bytes:
    return "".join(c if " " <= c <= "~" else "?" for c in text).encode()
