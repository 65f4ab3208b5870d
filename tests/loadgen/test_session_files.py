"""Sessions read from files of every known format."""

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from splitsecond.benchmark.workload import session_files, sessions
from splitsecond.benchmark.workload.session_files import read_sessions
from splitsecond.benchmark.workload.sessions import Session, SessionSet, Turn, distributions
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault

OURS = {
    "session": "a",
    "shared_prompt": "main",
    "shared_tokens": 400,
    "turns": [
        {"new_tokens": 600, "output_tokens": 50},
        {
            "new_tokens": 90,
            "output_tokens": 20,
            "wait_s": 2.5,
            "agents": [{"turns": [{"new_tokens": 300, "output_tokens": 9, "wait_s": 0.5}]}],
        },
        {"new_tokens": 10, "output_tokens": 5, "keeps_tokens": 500},
    ],
}


def weka(**more: Any) -> dict[str, Any]:
    return {"id": "w", "block_size": 64, "models": [], "hash_id_scope": "local", **more}


def request(t: float, tokens: int, ids: list[int] | None = None, **more: Any) -> dict[str, Any]:
    blocks = {} if ids is None else {"hash_ids": ids}
    return {
        "t": t,
        "type": "n",
        "model": "m",
        "in": tokens,
        "out": 7,
        "api_time": 2.0,
        **blocks,
        **more,
    }


def agentic(turn: int, role: str, **more: Any) -> dict[str, Any]:
    return {"conversation_id": "c1", "turn": turn, "role": role, **more}


def written(tmp_path: Path, *records: Any, name: str = "s.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(b"\n".join(map(msgspec.json.encode, records)))
    return path


def read(tmp_path: Path, *records: Any) -> SessionSet:
    return read_sessions(written(tmp_path, *records))


def only(found: SessionSet) -> Session:
    (session,) = found.sessions
    return session


def refused(tmp_path: Path, *records: Any) -> str:
    with pytest.raises(CallerFault) as caught:
        read(tmp_path, *records)
    assert caught.value.kind == "bad_sessions"
    return str(caught.value)


def test_our_lines(tmp_path: Path) -> None:
    found = read(tmp_path, OURS)
    session = only(found)
    assert (found.format, session.id, session.shared_prompt, session.shared_tokens) == (
        "JSON lines",
        "a",
        "main",
        400,
    )
    first, second, third = session.turns
    assert (first.input_tokens, first.shared_tokens, first.new_tokens) == (1000, 400, 600)
    assert (second.input_tokens, second.shared_tokens, second.wait_ns) == (
        1090,
        1000,
        5 * NS_PER_S // 2,
    )
    assert (third.input_tokens, third.shared_tokens, third.cut) == (510, 500, True)
    (agent,) = second.branches
    assert agent.turns == [Turn(input_tokens=300, output_tokens=9, wait_ns=NS_PER_S // 2)]


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    turn = {"new_tokens": 1, "output_tokens": 1, "think_time_ms": 3}
    assert "think_time_ms" in refused(tmp_path, {"turns": [turn]})
    assert "priority" in refused(tmp_path, weka(requests=[request(0, 100, [1], priority=3)]))
    assert "cache" in refused(
        tmp_path, {"messages": [{"role": "user", "content": "a"}], "cache": True}
    )
    assert "effort" in refused(tmp_path, agentic(1, "user", content="a", effort="low"))


def test_impossible_turns_are_refused(tmp_path: Path) -> None:
    more = {"new_tokens": 1, "output_tokens": 1, "keeps_tokens": 99}
    assert "keeps 99" in refused(tmp_path, {"turns": [{"new_tokens": 9, "output_tokens": 1}, more]})
    assert "turn 1" in refused(tmp_path, {"turns": [more]})
    assert "need each other" in refused(tmp_path, OURS | {"shared_prompt": ""})
    assert "no tokens" in refused(tmp_path, weka(requests=[request(0, 0, [])]))
    assert "shares 640 tokens" in refused(
        tmp_path, weka(requests=[request(0, 700, shared_prefix_blocks=10)])
    )
    assert "neither" in refused(tmp_path, weka(requests=[request(0, 700)]))


def test_weka_with_blocks_shares_them_with_the_prompt_before(tmp_path: Path) -> None:
    rows = [
        request(0, 130, [1, 2]),
        request(5, 200, [1, 2, 3], think_time=3.0),
        request(9, 200, [1, 8, 9], think_time=1.0),
    ]
    turns = only(read(tmp_path, weka(requests=rows))).turns
    assert [turn.shared_tokens for turn in turns] == [0, 128, 64]
    assert [turn.cut for turn in turns] == [False, False, True]
    assert [turn.wait_ns for turn in turns] == [0, 3 * NS_PER_S, NS_PER_S]


def test_weka_side_request_leaves_the_conversation(tmp_path: Path) -> None:
    rows = [
        request(0, 130, [1, 2]),
        request(3, 64, [7]),
        request(6, 200, [1, 2, 3]),
        request(9, 128, [7, 8]),
    ]
    turns = only(read(tmp_path, weka(requests=rows))).turns
    assert [(turn.follows, turn.shared_tokens) for turn in turns] == [
        (0, 0),
        (0, 0),
        (1, 128),
        (2, 64),
    ]
    assert [turn.cut for turn in turns] == [False, True, False, False]


def test_weka_counts_of_blocks_equal_the_ids(tmp_path: Path) -> None:
    ids = [[1, 2], [1, 2, 3], [1, 4, 5, 6], [1, 4, 5, 6, 7]]
    shared = [0, 2, 1, 4]
    exact = [request(4.0 * n, 64 * len(each) + 9, each) for n, each in enumerate(ids)]
    compact = [
        request(4.0 * n, 64 * len(each) + 9, blocks=len(each), shared_prefix_blocks=same)
        for n, (each, same) in enumerate(zip(ids, shared, strict=True))
    ]
    assert (
        only(read(tmp_path, weka(requests=exact))).turns
        == only(read(tmp_path, weka(requests=compact))).turns
    )


def test_weka_sub_agents_run_before_the_next_request(tmp_path: Path) -> None:
    inner = [request(0, 64, [1]), request(4, 128, [1, 2], think_time=2.0)]
    agent = {
        "t": 33.0,
        "type": "subagent",
        "agent_id": "x",
        "duration_ms": 30_000,
        "requests": inner,
    }
    session = only(
        read(tmp_path, weka(requests=[request(0, 64, [1]), agent, agent, request(40, 128, [1, 2])]))
    )
    first, second = session.turns
    assert not first.branches
    assert [branch.name for branch in second.branches] == ["1", "2"]
    assert [turn.wait_ns for turn in second.branches[0].turns] == [NS_PER_S, 2 * NS_PER_S]
    assert second.wait_ns == 7 * NS_PER_S  # after the end of the agents
    assert len(list(session.all_turns())) == 6


def test_agentic_messages_of_mlperf(tmp_path: Path) -> None:
    call = {"id": "k1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    rows = [
        agentic(
            1,
            "user",
            content="List.",
            system="Be brief.",
            tools=[{"type": "function", "function": {"name": "ls"}}],
        ),
        agentic(2, "assistant", tool_calls=[call]),
        agentic(
            3, "tool", tool_results=[{"tool_call_id": "k1", "content": "a b"}], delay_seconds=1.5
        ),
        agentic(4, "assistant", content="Two files."),
    ]
    session = only(read(tmp_path, *rows))
    first, second = session.turns
    assert msgspec.json.decode(f"[{first.messages}]") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "List."},
    ]
    assert msgspec.json.decode(first.answer)["tool_calls"] == [call]
    assert msgspec.json.decode(second.messages) == {
        "role": "tool",
        "content": "a b",
        "tool_call_id": "k1",
    }
    assert second.wait_ns == 3 * NS_PER_S // 2
    assert second.shared_tokens == first.input_tokens < second.input_tokens
    assert "one after another" in refused(tmp_path, *rows, agentic(4, "user", content="again"))


def test_system_prompt_of_several_sessions_is_shared(tmp_path: Path) -> None:
    system = {"role": "system", "content": "You are an agent. " * 20}
    lists = [{"messages": [system, {"role": "user", "content": name}]} for name in ("a", "b")]
    own = {
        "messages": [{"role": "system", "content": "Another."}, {"role": "user", "content": "c"}]
    }
    one, two, three = read(tmp_path, *lists, own).sessions
    assert one.shared_prompt == two.shared_prompt != ""
    assert one.shared_tokens == one.turns[0].shared_tokens > 80
    assert (three.shared_prompt, three.shared_tokens) == ("", 0)


def test_lists_of_messages_and_share_gpt(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    plain, wrapped = (
        only(read(tmp_path, messages)),
        only(read(tmp_path, {"messages": messages, "id": 7})),
    )
    assert plain.turns == wrapped.turns
    assert wrapped.id == "7"
    assert [bool(turn.answer) for turn in plain.turns] == [True, False]
    talk = [
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": "b"},
        {"from": "human", "value": "c"},
    ]
    assert only(read(tmp_path, {"id": "x", "conversations": talk})).turns == plain.turns
    assert "begins with an answer" in refused(tmp_path, messages[1:])


def test_rows_of_tracelab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(index: int, total: int, prefix: int, sent: str, ended: str) -> dict[str, Any]:
        events = [
            {"event_type": "tool_result", "timestamp": sent},
            {"event_type": "text", "timestamp": ended},
        ]
        return {
            "session_id": "claude:1",
            "round_index": index,
            "input_tokens_total": total,
            "prefix_tokens": prefix,
            "newly_append_tokens": total - prefix,
            "output_tokens": 5,
            "timing_events": events,
        }

    late = row(2, 5_300, 5_000, "2026-01-01T00:00:09Z", "2026-01-01T00:00:11Z")
    found = read(tmp_path, late, row(1, 5_000, 0, "2026-01-01T00:00:00Z", "2026-01-01T00:00:04Z"))
    first, second = only(found).turns
    assert (first.input_tokens, second.input_tokens, second.shared_tokens) == (5_000, 5_300, 5_000)
    assert (second.cut, second.wait_ns) == (False, 5 * NS_PER_S)
    assert "sub-agents" in found.note
    monkeypatch.setattr(sessions, "MAX_TURNS", 1)
    assert "more than 1 requests" in refused(tmp_path, late, late)


def test_spans_of_open_telemetry(tmp_path: Path) -> None:
    def span(begin_s: int, end_s: int, tokens: int, agent: str = "main") -> dict[str, Any]:
        values = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": "c",
            "gen_ai.agent.id": agent,
            "gen_ai.usage.input_tokens": tokens,
            "gen_ai.usage.output_tokens": 5,
        }
        return {
            "traceId": "t",
            "startTimeUnixNano": str(begin_s * NS_PER_S),
            "endTimeUnixNano": str(end_s * NS_PER_S),
            "attributes": [
                {
                    "key": name,
                    "value": {"stringValue": value}
                    if isinstance(value, str)
                    else {"intValue": str(value)},
                }
                for name, value in values.items()
            ],
        }

    tool = {
        "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}]
    }
    spans = [span(0, 2, 900), tool, span(4, 6, 300, "helper"), span(9, 10, 1000), span(12, 13, 400)]
    found = read(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    first, second, third = only(found).turns
    assert (first.input_tokens, second.shared_tokens, third.shared_tokens) == (900, 900, 0)
    assert [
        (branch.turns[0].input_tokens, branch.turns[0].wait_ns) for branch in second.branches
    ] == [(300, 2 * NS_PER_S)]
    assert (second.wait_ns, third.wait_ns) == (3 * NS_PER_S, 2 * NS_PER_S)
    assert "shorter one" in found.note
    flat = {
        "context": {"trace_id": "t"},
        "start_time": "2026-01-01T00:00:00Z",
        "end_time": "2026-01-01T00:00:01Z",
    }
    counts = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 1}
    assert only(read(tmp_path, {**flat, "attributes": counts})).turns == [
        Turn(input_tokens=9, output_tokens=1)
    ]
    assert "two numbers" in refused(
        tmp_path, {**flat, "attributes": {"gen_ai.usage.input_tokens": 9}}
    )


def test_compressed_file_folder_and_single_value(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl.gz").write_bytes(
        gzip.compress(msgspec.json.encode(OURS) + b"\n\n" + msgspec.json.encode(OURS))
    )
    assert len(read_sessions(tmp_path / "s.jsonl.gz").sessions) == 2
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("b", "a"):
        session = weka(requests=[request(0, 64, [1])], totals={}) | {"id": name}
        (folder / f"{name}.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(session), indent=2)
        )
    assert [session.id for session in read_sessions(folder).sessions] == ["a", "b"]
    (tmp_path / "array.json").write_bytes(msgspec.json.encode([OURS, OURS]))
    assert len(read_sessions(tmp_path / "array.json").sessions) == 2


def test_files_that_are_no_sessions_are_refused(tmp_path: Path) -> None:
    assert "expected a session" in refused(tmp_path, {"timestamp": 1, "input_length": 3})
    assert "no session found" in refused(tmp_path)
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(CallerFault, match="text:1: the line is not JSON"):
        read_sessions(tmp_path / "text")
    with pytest.raises(CallerFault, match="cannot read"):
        read_sessions(tmp_path / "absent")
    (tmp_path / "second").write_bytes(msgspec.json.encode(OURS) + b"\n{")
    with pytest.raises(CallerFault, match="second:2: the line is not JSON"):
        read_sessions(tmp_path / "second")


def test_large_files_are_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_files, "MAX_TURNS", 10)
    found = read(tmp_path, OURS, OURS, OURS, OURS)
    assert len(found.sessions) == 2
    assert "first 2 sessions" in found.in_words()


def test_distributions_have_waits_as_they_are_sent(tmp_path: Path) -> None:
    found = msgspec.structs.replace(read(tmp_path, OURS), longest_wait_ns=NS_PER_S)
    shape = distributions(found)
    assert shape["wait_s"]["p95"] == 1.0
    assert shape["turns"]["p50"] == 3
    assert shape["sub_agents"]["mean"] == 1
    assert "first prompt 1,000 tokens" in found.in_words()
