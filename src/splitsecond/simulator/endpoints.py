"""The paths that a simulated provider answers at: what is asked there, and in which dialect."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from splitsecond.events import Usage
from splitsecond.service import Operation
from splitsecond.wire import anthropic, openai
from splitsecond.wire.dialect import Answer, ServerRequest


class Writer(Protocol):
    """Writes one streamed answer."""

    def opening(self) -> bytes: ...

    def token(self, text: str) -> bytes: ...

    def finish(self, reason: str) -> bytes: ...

    def usage(self, usage: Usage) -> bytes: ...

    def done(self) -> bytes: ...

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes: ...  # noqa: A002


class Dialect(Protocol):
    """What a dialect of `wire` offers in the server role, as far as it is played here."""

    def parse_request(self, operation: Operation, body: bytes) -> ServerRequest: ...

    def StreamWriter(self, operation: Operation, model: str, *, id: str, created: int) -> Writer: ...  # noqa: A002

    def whole(
        self,
        operation: Operation,
        model: str,
        answers: Sequence[Answer],
        usage: Usage,
        *,
        id: str,  # noqa: A002
        created: int,
    ) -> bytes: ...

    def error_body(self, status: int, message: str, type: str, code: str | None = None) -> bytes: ...  # noqa: A002


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One path. `id_prefix` begins the ids of its answers, and `id_header` names the header with the request's.

    `malformed` is an event as it is sent there, with data that breaks off.
    """

    operation: Operation
    dialect: Dialect
    id_prefix: str
    id_header: bytes
    malformed: bytes


_CHAT = Endpoint(
    operation="chat",
    dialect=openai,
    id_prefix="chatcmpl-",
    id_header=b"x-request-id",
    malformed=b'data: {"id":"chatcmpl-malformed","choices":[{"index":0,"del\n\n',
)
_MESSAGES = Endpoint(
    operation="chat",
    dialect=anthropic,
    id_prefix="msg_",
    id_header=b"request-id",
    malformed=b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"del\n\n',
)
ENDPOINTS: Mapping[str, Endpoint] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": msgspec.structs.replace(_CHAT, operation="completions"),
    "/v1/messages": _MESSAGES,
}
