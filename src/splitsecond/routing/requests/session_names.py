"""What a client calls the session of a request: in a header, or in a field of the body.

A name is no authority: two clients may use the same, so it counts only together with the client's
key.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.validation import read_json

SESSION_HEADERS = (
    b"x-claude-code-session-id",
    b"session-id",
    b"session_id",
    b"x-session-id",
    b"x-session-affinity",
    b"thread-id",
    b"thread_id",
    b"x-smg-routing-key",
    b"x-dynamo-session-id",
    b"x-litellm-trace-id",
)
"""Headers in which clients and routers name the session of a request; the first one that is there
counts."""
SESSION_FIELDS = (
    "session_id",
    "thread_id",
    "prompt_cache_key",
    "conversation",
    "thread",
    "metadata",
)
"""Fields of the body that name it, in the same order. `metadata`: its ``user_id`` contains the
session in requests of Claude Code, or it has a ``session_id``."""
LONGEST_NAME = 1024
"""Longest name in bytes. A longer one is no name."""
_NAMING_HEADERS = frozenset(SESSION_HEADERS)
_NAMING_FIELDS = frozenset(SESSION_FIELDS)
_AGENT, _PARENT = b"x-claude-code-agent-id", b"x-claude-code-parent-agent-id"
_THREADS = (b"thread-id", b"thread_id")
_IN_USER_ID = "_session_"
_NESTED = frozenset({"conversation", "thread", "metadata"})


class SessionName(Struct, frozen=True):
    """`source`: the header or field that named the session. `agent`, `parent`: empty if the client
    names none."""

    source: str
    name: bytes
    agent: bytes = b""
    parent: bytes = b""


def session_name(
    headers: Mapping[bytes, bytes], body: Mapping[str, Raw | Any]
) -> SessionName | None:
    """Return what the client calls the session of a request; None if it does not name it."""
    if not _NAMING_HEADERS.isdisjoint(headers):
        for header in SESSION_HEADERS:
            name = headers.get(header, b"")
            if 0 < len(name) <= LONGEST_NAME:
                return SessionName(header.decode(), name, *_agents(headers, name))
    if not _NAMING_FIELDS.isdisjoint(body):
        for field in SESSION_FIELDS:
            if field in body and (name := _in_field(field, body[field])):
                return SessionName(field, name)
    return None


def _agents(headers: Mapping[bytes, bytes], session: bytes) -> tuple[bytes, bytes]:
    """Return the agent of a session and its parent: Claude Code's ids, or a thread of Codex beside
    the main one."""
    agent = headers.get(_AGENT, b"")
    if not agent:
        agent = next(
            (
                thread
                for name in _THREADS
                if (thread := headers.get(name, b"")) not in (b"", session)
            ),
            b"",
        )
    return agent[:LONGEST_NAME], headers.get(_PARENT, b"")[:LONGEST_NAME]


class _Reference(Struct):
    id: str = ""
    session_id: str = ""
    user_id: str = ""


_decode = msgspec.json.Decoder(_Reference | str).decode
_decode_user = msgspec.json.Decoder(_Reference).decode


def _in_field(field: str, value: Raw | Any) -> bytes:
    data = bytes(value) if isinstance(value, Raw) else msgspec.json.encode(value)
    if field not in _NESTED:
        return data[1:-1] if data.startswith(b'"') and len(data) <= LONGEST_NAME else b""
    reference = read_json(data, _decode) if len(data) <= 2 * LONGEST_NAME else None
    if isinstance(reference, _Reference):
        reference = _in_metadata(reference) if field == "metadata" else reference.id
    return (reference or "").encode("utf-8", "surrogatepass")


def _in_metadata(metadata: _Reference) -> str:
    user = metadata.user_id
    if metadata.session_id:
        return metadata.session_id
    if user.startswith("{"):  # newer versions of Claude Code
        reference = read_json(user, _decode_user)
        return "" if reference is None else reference.session_id
    return user.rpartition(_IN_USER_ID)[2] if _IN_USER_ID in user else ""
