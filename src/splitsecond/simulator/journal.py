"""The journal of a simulated provider: the requests that it received, for tests that check what a
program sent.

It is bounded: the oldest requests are dropped first. Values of headers that hold keys are replaced
by a mark.
"""

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core import clock
from splitsecond.core.redaction import MARK
from splitsecond.simulator.content.script import ReplyScript

MAX_ENTRIES = 1_000
MAX_BYTES = 32 << 20
"""Most bytes of all bodies together."""
KEY_HEADERS = (
    b"authorization",
    b"api-key",
    b"x-api-key",
    b"x-goog-api-key",
    b"proxy-authorization",
    b"cookie",
)
_validate = msgspec.json.Decoder(Raw).decode


class JournalEntry(Struct):
    """One request. `api_format` is the format of its path, "" for an unknown path; `status` that of
    the response.

    `model`, `stream` and `response_id` are known once the request was accepted. `status` is 0
    before the response, and if the connection was reset instead.
    """

    number: int
    at: datetime
    method: str
    path: str
    query: str
    headers: Mapping[bytes, bytes]
    api_format: str
    body: bytes = b""
    model: str = ""
    stream: bool = False
    status: int = 0
    response_id: str = ""
    script: ReplyScript | None = None
    """The content of the response; None for plain words, and before it. Not in the JSON."""

    def fields(self) -> dict[str, Any]:
        headers = {
            name.decode("latin-1"): MARK if name in KEY_HEADERS else value.decode("latin-1")
            for name, value in self.headers.items()
        }
        values = {name: getattr(self, name) for name in self.__struct_fields__ if name != "script"}
        return {**values, "headers": headers, "body": _as_json(self.body)}


def _as_json(body: bytes) -> Any:
    try:
        msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace") if body else None
    return Raw(body)


class RequestJournal:
    def __init__(self) -> None:
        self._entries: deque[JournalEntry] = deque()
        self._bytes = 0
        self._number = 0

    def add(
        self, method: str, path: str, query: str, headers: Mapping[bytes, bytes], api_format: str
    ) -> JournalEntry:
        self._number += 1
        entry = JournalEntry(
            self._number, clock.wall_time(), method, path, query, headers, api_format
        )
        self._entries.append(entry)
        if len(self._entries) > MAX_ENTRIES:
            self._drop()
        return entry

    def set_body(self, entry: JournalEntry, body: bytes) -> None:
        entry.body = body
        self._bytes += len(body)
        while self._bytes > MAX_BYTES and len(self._entries) > 1:
            self._drop()

    def answered(self, response_id: str) -> JournalEntry | None:
        return next(
            (entry for entry in reversed(self._entries) if entry.response_id == response_id), None
        )

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0
        self._number = 0

    def as_json(self) -> bytes:
        return msgspec.json.encode([entry.fields() for entry in self._entries])

    def _drop(self) -> None:
        self._bytes -= len(self._entries.popleft().body)
