"""Raw ASGI: the body of a request in; whole answers out, and refusals in their dialect's form."""

from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any

from splitsecond.simulator.asked import Refusal
from splitsecond.simulator.endpoints import Endpoint
from splitsecond.wire import gemini, openai
from splitsecond.wire.limit_headers import Headers

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

MAX_BODY_BYTES = 32 << 20

_ERROR_TYPES: Mapping[int, str] = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}


async def read(receive: Receive) -> bytes | None:
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


async def respond(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    """Send an answer in JSON."""
    await start(send, status, len(body), headers)
    await send({"type": "http.response.body", "body": body})


async def start(send: Send, status: int, length: int, headers: Headers | None = None) -> None:
    """Send the head of an answer in JSON, of so many bytes."""
    fixed: Headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *(headers or [])]})


async def refuse(send: Send, refusal: Refusal, endpoint: Endpoint | None) -> None:
    """Send an error in the form of `endpoint`; where a path has none, in OpenAI's."""
    kind = refusal.type or _ERROR_TYPES.get(
        refusal.status, "invalid_request_error" if refusal.status < 500 else "server_error"
    )
    headers, wait_s = refusal.headers, refusal.retry_after
    if endpoint is not None and endpoint.retry_in_body:
        body = gemini.error_body(refusal.status, refusal.message, retry_after_s=wait_s)
    else:
        error_body = endpoint.dialect.error_body if endpoint else openai.error_body
        body = error_body(refusal.status, refusal.message, kind, refusal.code)
        if wait_s is not None:
            headers = [(b"retry-after", b"%d" % ceil(wait_s)), *headers]
    await respond(send, refusal.status, body, headers)
