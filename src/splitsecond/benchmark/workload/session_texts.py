"""Sessions recorded as texts: lists of OpenAI's messages, MLPerf's agentic messages, and
conversations of ShareGPT.

Nobody has counted their tokens, so their lengths are estimates by their bytes until a server
reports its counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from splitsecond.benchmark.workload.prompt_files import ConversationTurn
from splitsecond.benchmark.workload.sessions import Session, Turn, bad_session, read_record
from splitsecond.core.clock import NS_PER_S

BYTES_PER_TOKEN = 4
_encode = msgspec.json.encode


class _Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message of OpenAI's format."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class _List(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation with its messages. `model` and `metadata` do not matter: the target is another
    one."""

    messages: list[_Message]
    tools: list[dict[str, Any]] | None = None
    id: str | int | None = None
    session_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    metadata: Any = None


def messages(record: Any, place: str) -> Session:
    conversation = read_record(
        place, {"messages": record} if isinstance(record, list) else record, _List
    )
    name = (
        conversation.session_id
        or conversation.conversation_id
        or (place if conversation.id is None else str(conversation.id))
    )
    return _session(name, [(each, 0) for each in conversation.messages], conversation.tools, place)


class _ShareGpt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversations: list[ConversationTurn]
    id: str | int | None = None
    model: str | None = None
    items: Any = None
    system: str | None = None


_ROLES: dict[str, Literal["user", "assistant", "system"]] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}


def share_gpt(record: Any, place: str) -> Session:
    conversation = read_record(place, record, _ShareGpt)
    listed = [_Message(role="system", content=conversation.system)] if conversation.system else []
    for turn in conversation.conversations:
        role = _ROLES.get(turn.speaker)
        if role is None:
            raise bad_session(
                place, f"a turn is from {turn.speaker!r}, expected human, gpt or system"
            )
        if turn.text:
            listed.append(_Message(role=role, content=turn.text))
    return _session(
        place if conversation.id is None else str(conversation.id),
        [(each, 0) for each in listed],
        None,
        place,
    )


class _ToolResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool_call_id: str
    content: str | list[dict[str, Any]]


class _Agentic(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of MLPerf's agentic messages. `delay_seconds` is the tool time before the request that
    it belongs to."""

    conversation_id: str | int
    turn: int
    role: Literal["user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    system: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_results: list[_ToolResult] | None = None
    reasoning_content: str | None = None
    delay_seconds: Annotated[float, Meta(ge=0, lt=1e9)] | None = None
    model: str | None = None

    def timed_messages(self, place: str) -> "list[tuple[_Message, int]]":
        """Return the messages of the row, each with the tool time before it."""
        if self.role == "tool" and not self.tool_results:
            raise bad_session(place, "a row of a tool has no tool_results")
        messages = [
            _Message(role="tool", tool_call_id=each.tool_call_id, content=each.content)
            for each in self.tool_results or ()
        ] or [
            _Message(
                role=self.role,
                content=self.content,
                name=self.name,
                tool_calls=self.tool_calls,
                reasoning_content=self.reasoning_content,
            )
        ]
        wait_ns = round((self.delay_seconds or 0) * NS_PER_S)
        return [(message, wait_ns) for message in messages]


def agentic_messages(records: Iterator[tuple[str, Any]]) -> Iterator[Session]:
    rows = (
        (place, read_record(place, record, _Agentic))
        for place, record in records
        if not (isinstance(record, dict) and record.get("_type") == "dataset_metadata")
    )
    seen: set[str] = set()
    for name, group in groupby(rows, lambda row: str(row[1].conversation_id)):
        listed: list[tuple[_Message, int]] = []
        tools, before, place = None, 0, ""
        for place, row in group:
            if row.turn <= before or name in seen:
                raise bad_session(
                    place, f"the rows of conversation {name!r} are not one after another, in order"
                )
            before, tools = row.turn, tools or row.tools
            if row.system and not listed:
                listed.append((_Message(role="system", content=row.system), 0))
            listed += row.timed_messages(place)
        seen.add(name)
        yield _session(name, listed, tools, place)


def with_shared_prompts(sessions: Sequence[Session]) -> list[Session]:
    """Return the sessions; a system prompt (with tools) that several begin with is marked as
    shared."""
    openings = {session.id: _opening(session) for session in sessions if session.turns[0].messages}
    counts = Counter(openings.values())
    marked = []
    for session in sessions:
        opening = openings.get(session.id, "")
        if opening and counts[opening] > 1:
            tokens = min(len(opening) // BYTES_PER_TOKEN, session.turns[0].input_tokens)
            name = blake2b(opening.encode(), digest_size=8).hexdigest()
            first = replace(session.turns[0], shared_tokens=tokens)
            session = replace(
                session, turns=[first, *session.turns[1:]], shared_prompt=name, shared_tokens=tokens
            )
        marked.append(session)
    return marked


def _opening(session: Session) -> str:
    first = msgspec.json.decode(f"[{session.turns[0].messages}]", type=list[msgspec.Raw])[0]
    is_system = msgspec.json.decode(first, type=_Message).role in ("system", "developer")
    return session.tools + (bytes(first).decode() if is_system else "")


def _session(
    name: str,
    listed: Sequence[tuple[_Message, int]],
    tools: Sequence[dict[str, Any]] | None,
    place: str,
) -> Session:
    """Return a session of messages, each with the tool time before it. An answer belongs to the
    messages before it."""
    turns: list[Turn] = []
    new: list[bytes] = []
    wait_ns = before = 0
    offered = _encode(tools).decode() if tools else ""
    size = len(offered)

    def add(answer: bytes) -> None:
        nonlocal wait_ns, before, size
        size += sum(map(len, new))
        tokens = max(size // BYTES_PER_TOKEN, before + 1)
        turns.append(
            Turn(
                input_tokens=tokens,
                output_tokens=max(len(answer) // BYTES_PER_TOKEN, 1) if answer else 0,
                shared_tokens=before,
                wait_ns=wait_ns if turns else 0,
                messages=b",".join(new).decode(),
                answer=answer.decode(),
            )
        )
        before, wait_ns = tokens, 0
        size += len(answer)
        new.clear()

    for message, delay_ns in listed:
        if message.role != "assistant":
            new.append(_encode(message))
            wait_ns = max(wait_ns, delay_ns)
        elif new:
            add(_encode(message))
        elif turns:  # two answers in a row are one
            new.append(_encode(message))
        else:
            raise bad_session(place, "the conversation begins with an answer")
    if new:
        add(b"")
    return Session(id=name, turns=turns, tools=offered)
