"""Sessions of clients: how they are recognised, and what a call of one is known to have sent
before."""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import each_case
from tests.gateway.test_response_owners import TwoTargets
from tests.gateway.visitor import CHAT, OneRoute, serving, visits

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply
from splitsecond.core.session import CallSession
from splitsecond.gateway.http.app import Gateway
from splitsecond.gateway.process.session_table import session_secret, session_table
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.gateway.records.sessions import _BEGAN_AT, _KEY, CACHES, MAX_AGENTS, WAYS, Sessions
from splitsecond.log.store.settings import LogSettings
from splitsecond.routing.machinery.conversation import without_cache_marks
from splitsecond.routing.requests.session_names import LONGEST_NAME, session_name
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

KEYS = tuple(ClientKey(name, hashlib.sha256(name.encode()).digest()) for name in ("alice", "bob"))
ID = "0e4f3b0a-6d5c-4d3e-9a51-8f6a3b1c2d3e"
NAMED = {b"x-session-id": ID.encode()}
SYSTEM = {"role": "system", "content": "You are a careful engineer. " * 300}
QUESTION = {"role": "user", "content": "Why does this test fail? " * 100}
ANSWER = {"role": "assistant", "content": "It waits for a port. " * 50}
NEXT = {"role": "user", "content": "Mend it. " * 200}


def call(
    *messages: dict[str, Any], client: str = "alice", start_s: float = 1.0, **fields: Any
) -> Call:
    body = {"messages": list(messages) or [QUESTION], **fields}
    raw = {name: Raw(msgspec.json.encode(value)) for name, value in body.items()}
    return Call(id="c", client=client, body=raw, start_ns=round(start_s * NS_PER_S))


def began(sessions: Sessions, one: Call, headers: Mapping[bytes, bytes] = NAMED) -> CallSession:
    found = sessions.began(headers, one)
    assert found is not None
    return found


def end(sessions: Sessions, one: Call, end_ns: int) -> None:
    assert one.notes.session_entry is not None
    sessions.ended(one.notes.session_entry, end_ns, "a/m")


@each_case(
    ("name", "headers", "body"),
    [
        (ID, {b"x-claude-code-session-id": ID.encode()}, {}),
        (ID, {b"session_id": ID.encode()}, {}),
        (ID, {b"x-session-id": ID.encode(), b"x-litellm-trace-id": b"other"}, {}),
        (ID, {b"x-session-affinity": ID.encode()}, {"session_id": "other"}),
        (ID, {}, {"metadata": {"user_id": f"user_0f9a_account__session_{ID}"}}),
        (
            ID,
            {},
            {
                "metadata": {
                    "user_id": msgspec.json.encode({"device_id": "d", "session_id": ID}).decode()
                }
            },
        ),
        (ID, {}, {"metadata": {"session_id": ID}}),
        (ID, {}, {"prompt_cache_key": ID}),
        (ID, {}, {"conversation": {"id": ID}}),
        (ID, {}, {"conversation": ID}),
        (None, {}, {"metadata": {"user_id": "user-17"}}),
        (None, {}, {"metadata": {"user_id": 17}}),
        (None, {}, {"session_id": 17}),
        (None, {}, {"user": ID}),
        (None, {b"x-session-id": b"a" * (LONGEST_NAME + 1)}, {}),
        (None, {b"x-session-id": b""}, {}),
    ],
)
def test_a_session_has_the_name_in_header_or_body(
    name: str | None, headers: dict[bytes, bytes], body: Any
) -> None:
    found = session_name(
        headers, {field: Raw(msgspec.json.encode(value)) for field, value in body.items()}
    )
    assert (found and found.name.decode()) == name


def test_two_agents_of_one_session_are_counted_apart() -> None:
    sessions, main = Sessions(), {b"x-claude-code-session-id": ID.encode()}
    agent = {
        **main,
        b"x-claude-code-agent-id": b"explore",
        b"x-claude-code-parent-agent-id": b"plan",
    }
    found = [began(sessions, call(), headers) for headers in (main, agent, agent, main)]
    assert [each.turn for each in found] == [1, 1, 2, 2]
    assert len({each.id for each in found}) == 1
    assert [bool(each.agent) for each in found] == [False, True, True, False]
    assert found[1].parent not in ("", found[1].agent)


def test_a_thread_beside_the_main_one_is_an_agent() -> None:
    sessions, session = Sessions(), ID.encode()
    main = began(sessions, call(), {b"session_id": session, b"thread-id": session})
    other = began(sessions, call(), {b"session_id": session, b"thread-id": b"another"})
    assert (main.id, main.agent) == (other.id, "")
    assert other.agent


def test_another_clients_session_cannot_be_named() -> None:
    sessions = Sessions()
    first, other = began(sessions, call()), began(sessions, call(client="bob"))
    assert first.id != other.id
    assert (other.turn, other.reusable_tokens) == (1, 0)


def test_ids_differ_between_installations() -> None:
    assert began(Sessions(), call()).id != began(Sessions(), call()).id


def test_a_call_without_a_name_belongs_to_its_conversation() -> None:
    sessions = Sessions()
    first = began(sessions, call(SYSTEM, QUESTION), {})
    second = began(sessions, call(SYSTEM, QUESTION, ANSWER, NEXT), {})
    other = began(sessions, call(SYSTEM, NEXT), {})
    assert first.source == "conversation"
    assert (second.id, second.turn) == (first.id, 2)
    assert other.id != first.id


def test_a_translated_call_has_the_session_of_the_same_bytes() -> None:
    sessions, tools = Sessions(), [{"name": "read"}]
    first = began(sessions, call(SYSTEM, QUESTION, tools=tools), {})
    translated = Call(
        id="c",
        client="alice",
        body={"messages": [SYSTEM, QUESTION], "tools": Raw(msgspec.json.encode(tools))},
    )
    second = began(sessions, translated, {})
    assert (second.id, second.turn, second.new_tokens) == (first.id, 2, 0)


def test_a_turn_contains_the_whole_turn_before() -> None:
    sessions = Sessions()
    first = began(sessions, call(SYSTEM, QUESTION))
    second = began(sessions, call(SYSTEM, QUESTION, ANSWER, NEXT))
    assert (first.turn, first.reusable_tokens) == (1, 0)
    assert second.reusable_tokens == pytest.approx(first.new_tokens, abs=1)
    assert second.new_tokens == pytest.approx(len(msgspec.json.encode([ANSWER, NEXT])) / 4, abs=2)


def test_cache_marks_move_without_making_tokens_new() -> None:
    sessions = Sessions()

    def marked(message: dict[str, Any]) -> dict[str, Any]:
        text = {"type": "text", "text": message["content"]}
        return {
            "role": message["role"],
            "content": [{**text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        }

    def plain(message: dict[str, Any]) -> dict[str, Any]:
        return {"role": message["role"], "content": [{"type": "text", "text": message["content"]}]}

    first = began(sessions, call(marked(QUESTION)))
    second = began(sessions, call(plain(QUESTION), plain(ANSWER), marked(NEXT)))
    assert second.reusable_tokens == pytest.approx(first.new_tokens, abs=25)


@each_case(
    ("marked", "plain"),
    [
        (b'{"a":1,"cache_control":{"type":"ephemeral"}}', b'{"a":1}'),
        (b'{"cache_control": {"type": "ephemeral"}, "a": 1}', b'{ "a": 1}'),
        (b'{"a":1, "cache_control" : {"type":"ephemeral"},"b":2}', b'{"a":1,"b":2}'),
        (rb'"say \"cache_control\" to me"', rb'"say \"cache_control\" to me"'),
        (b'{"a":1,"cache_control":', b'{"a":1'),
    ],
)
def test_cache_marks_are_removed_but_no_text(marked: bytes, plain: bytes) -> None:
    assert without_cache_marks(marked) == plain


def test_a_changed_prompt_is_reusable_up_to_the_change() -> None:
    sessions = Sessions()
    long = {"role": "user", "content": "x " * 100_000}
    began(sessions, call(SYSTEM, long, QUESTION))
    changed = began(sessions, call(SYSTEM, long, NEXT))
    assert changed.reusable_tokens == pytest.approx(50_000, rel=0.1)
    assert changed.new_tokens < 7_000


def test_a_prompt_that_grew_is_reusable_up_to_a_change() -> None:
    sessions, turns = Sessions(), [QUESTION]
    for _ in range(40):
        began(sessions, call(SYSTEM, *turns))
        turns += [ANSWER, NEXT]
    total = len(msgspec.json.encode([SYSTEM, *turns])) // 4
    changed = began(sessions, call(SYSTEM, *turns[:-20], QUESTION))
    same = len(msgspec.json.encode([SYSTEM, *turns[:-20]])) // 4
    assert same - total / 16 < changed.reusable_tokens <= same


def test_calls_for_titles_between_turns_do_not_hide_the_prompt() -> None:
    sessions = Sessions()
    first = began(sessions, call(SYSTEM, QUESTION))
    for number in range(3):
        began(sessions, call({"role": "user", "content": f"{number} is a title?"}))
    assert (
        began(sessions, call(SYSTEM, QUESTION, ANSWER, NEXT)).reusable_tokens
        >= first.new_tokens - 1
    )


def test_idle_time_is_that_since_the_last_answer() -> None:
    sessions = Sessions()
    one = call(start_s=5)
    first = began(sessions, one)
    end(sessions, one, 7 * NS_PER_S)
    assert first.idle_ns is None
    assert began(sessions, call(start_s=10)).idle_ns == 3 * NS_PER_S
    assert began(sessions, call(start_s=6)).idle_ns == 0, "a call beside the other one"
    assert began(sessions, call(start_s=20)).idle_ns == 0, "the call before has not ended"


def test_an_end_is_not_noted_for_an_agent_that_came_later() -> None:
    sessions, one = Sessions(), call(start_s=5)
    began(sessions, one)
    assert one.notes.session_entry is not None
    place, key = one.notes.session_entry
    sessions.ended((place, key + MAX_AGENTS), 7 * NS_PER_S, "a/m")
    assert began(sessions, call(start_s=10)).idle_ns == 0, "its own call has not ended"
    assert not one.notes.home


def test_a_continued_response_belongs_to_its_session() -> None:
    sessions, owners = Sessions(), ResponseOwners()
    first = began(sessions, call(input="x " * 4000), {})
    owners.note("alice", "resp_1", "a/m", first.id)
    owners.note("alice", "resp_2", "a/m")
    more = call(NEXT, previous_response_id="resp_1")
    second = sessions.began({}, more, owners.session("resp_1"))
    assert second is not None
    assert (second.id, second.turn, second.source) == (first.id, 2, "previous_response_id")
    assert second.reusable_tokens == first.new_tokens, "the provider adds what it has stored"
    assert (owners.session("resp_2"), owners.session("resp_3")) == ("", "")


def test_workers_share_sessions() -> None:
    memory = Sessions.create(b"s" * 32)
    one, other = Sessions(memory), Sessions(memory)
    first = began(one, call(SYSTEM, QUESTION))
    second = began(other, call(SYSTEM, QUESTION, ANSWER, NEXT))
    assert (second.id, second.turn) == (first.id, 2)
    assert second.reusable_tokens >= first.new_tokens - 1


def test_workers_share_which_target_has_a_session() -> None:
    memory = Sessions.create(b"s" * 32)
    one, other = Sessions(memory), Sessions(memory)
    main = began(one, call())
    agent = msgspec.structs.replace(main, agent="00000000000000ab")
    one.note_cached(main, "a/m", 1_000, 10)
    one.note_cached(agent, "a/m", 500, 20)
    one.note_cached(main, "b/m", 1_500, 30)
    one.note_cached(main, "a/m", 2_000, 40)
    known = {("a/m", "", 2_000, 40), ("a/m", agent.agent, 500, 20)}
    assert set(other.cached(main, ["a/m", "c/m"])) == known
    for number in range(CACHES):
        other.note_cached(main, f"d/{number}", 3_000, 50 + number)
    assert list(one.cached(agent, ["a/m", "b/m"])) == []


def test_the_agents_used_longest_ago_are_forgotten() -> None:
    sessions = Sessions()
    key = int(began(sessions, call(start_s=1)).id, 16)
    for number in range(1, WAYS + 1):
        at_same_place = (key + number * MAX_AGENTS) % (1 << 64)
        used_at = sessions._entry(at_same_place) + _BEGAN_AT
        _KEY.pack_into(sessions._table, used_at, 2 * NS_PER_S)
    assert began(sessions, call(start_s=9)).turn == 1


class Remembering:
    """A service that keeps its calls and answers none."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def __call__(self, call: Call) -> Reply:
        self.calls.append(call)
        raise CallerFault("no answer")


def gateway() -> tuple[Gateway, Remembering]:
    service = Remembering()
    routes: Any = OneRoute(service)
    return serving(routes, KEYS), service


def test_a_call_knows_its_session_and_the_idle_time() -> None:
    served, service = gateway()

    async def turns() -> None:
        for key in ("alice", "alice", "bob"):
            await visits(served).asks(
                CHAT, headers={"authorization": f"Bearer {key}", "x-session-id": ID}
            )

    run_virtual(turns())
    found = [each.notes.session for each in service.calls]
    assert [each and each.turn for each in found] == [1, 2, 1]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].idle_ns is None
    assert found[1].idle_ns is not None


def test_a_change_of_target_is_in_a_header() -> None:
    answering = {"name": "a/m"}

    async def changing(call: Call) -> Reply:
        return await FakeService(script=lambda call: Script(tokens=2), target=answering["name"])(
            call
        )

    routes: Any = TwoTargets()
    routes.service = lambda *_: changing
    served = serving(routes, KEYS)

    async def turns() -> list[str | None]:
        found = []
        for name, model in (("a/m", "fast"), ("b/m", "fast"), ("b/m", "fast"), ("b/m", "slow")):
            answering["name"] = name
            body = CHAT | {"model": model}
            client = await visits(served).asks(
                body, headers={"authorization": "Bearer alice", "x-session-id": ID}
            )
            assert len(client.headers["x-splitsecond-session"]) == 16
            found.append(client.headers.get("x-splitsecond-left"))
        return found

    assert run_virtual(turns()) == [None, "a/m", None, None]


@each_case(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "fast", "input": "hi"}),
        ("/v1/rerank", {"model": "fast", "query": "a", "documents": ["b"]}),
    ],
)
def test_calls_without_a_conversation_have_no_session(path: str, body: Any) -> None:
    served, service = gateway()
    run_virtual(
        visits(served).asks(
            body, path=path, headers={"authorization": "Bearer alice", "x-session-id": ID}
        )
    )
    assert [each.notes.session for each in service.calls] == [None]


def test_a_large_body_has_a_session() -> None:
    served, service = gateway()
    large = CHAT | {"messages": [{"role": "user", "content": "x" * (2 << 20)}]}
    run_virtual(visits(served).asks(large, headers={"authorization": "Bearer alice"}))
    (one,) = service.calls
    assert one.notes.session is not None
    assert one.notes.session.new_tokens > 0


def test_the_secret_beside_a_log_stays_the_same(tmp_path: Path) -> None:
    said: list[str] = []
    log = LogSettings(f"sqlite:///{tmp_path}/log.db")
    first = session_secret(log, said.append)
    assert session_secret(log, said.append) == first
    assert stat.S_IMODE(os.stat(tmp_path / "log.db.secret").st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["log.db.secret"]
    assert session_secret(None, said.append) != session_secret(None, said.append)
    assert not said


def test_a_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    log, said = LogSettings(f"sqlite:///{tmp_path}/log.db"), list[str]()
    with session_table(log, said.append) as memory:
        sessions = Sessions(memory)
        one = call(SYSTEM, QUESTION)
        first = began(sessions, one)
        end(sessions, one, 2 * NS_PER_S)
        sessions.note_cached(first, "a/m", 1_000, 10)
    assert stat.S_IMODE(os.stat(tmp_path / "log.db.sessions").st_mode) == 0o600
    with session_table(log, said.append) as memory:
        sessions, turn = Sessions(memory), call(SYSTEM, QUESTION, ANSWER, NEXT, start_s=5)
        second = began(sessions, turn)
        assert (second.id, second.turn, second.idle_ns) == (first.id, 2, 3 * NS_PER_S)
        assert second.reusable_tokens >= first.new_tokens - 1
        assert turn.notes.home
        assert list(sessions.cached(second, ["a/m"])) == [("a/m", "", 1_000, 10)]
    assert not said


def test_a_saved_table_that_does_not_fit_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = b"s" * 32
    one, other = Sessions(Sessions.create(secret)), Sessions(Sessions.create(b"t" * 32))
    began(one, call())
    saved, again = one.saved(), Sessions(Sessions.create(secret))
    other.restore(saved)
    for broken in (b"", saved[:20], saved[:-1], saved[:24] + b"\xff" * 8 + saved[32:]):
        again.restore(broken)
    offset_ns = clock.wall_offset_ns()
    with monkeypatch.context() as booted:
        booted.setattr(clock, "wall_offset_ns", lambda: offset_ns + 3600 * NS_PER_S)
        again.restore(saved)
    assert [began(each, call()).turn for each in (other, again)] == [1, 1]
    again = Sessions(Sessions.create(secret))
    again.restore(saved)
    assert began(again, call()).turn == 2


def test_sessions_that_cannot_be_saved_are_reported(tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "logs"
    folder.mkdir()
    with session_table(LogSettings(f"sqlite:///{folder}/log.db"), said.append):
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
    assert len(said) == 1
    assert "log.db.sessions" in said[0]


def test_gateways_of_one_server_have_one_secret() -> None:
    here, there = (LogSettings(f"postgresql://me:{password}@db/log") for password in ("one", "two"))
    assert (
        session_secret(here, print) == session_secret(here, print) != session_secret(there, print)
    )
    fleet = [
        session_secret(log, print, shared="postgresql://me@db/fleet") for log in (here, there, None)
    ]
    assert len(set(fleet)) == 1


def test_a_broken_secret_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "log.db.secret").write_bytes(b"short")
    assert len(session_secret(LogSettings(f"sqlite:///{tmp_path}/log.db"), said.append)) == 32
    assert "log.db.secret" in said[0]
