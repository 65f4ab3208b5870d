"""Sessions recorded as lengths: ours, those of WEKA, and those of TraceLab."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from splitsecond.benchmark.workload.sessions import (
    Branch,
    Session,
    Turn,
    at_most_turns,
    bad_session,
    read_record,
)
from splitsecond.core.clock import NS_PER_S

Tokens = Annotated[int, Meta(ge=0, le=20_000_000)]
Seconds = Annotated[float, Meta(ge=0, lt=1e9)]
MAX_TIPS = 16
"""Earlier prompts of a conversation that a prompt is compared with."""


# Ours.


class _Agent(Struct, frozen=True, forbid_unknown_fields=True):
    turns: Annotated[list["_OurTurn"], Meta(min_length=1)]


class _OurTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`new_tokens` includes the answer before. `keeps_tokens`: how much of the prompt before is
    kept (None: all)."""

    new_tokens: Tokens
    output_tokens: Tokens
    wait_s: Seconds = 0.0
    keeps_tokens: Tokens | None = None
    agents: list[_Agent] = []


class _Ours(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`shared_prompt` names the system prompt of `shared_tokens` that sessions have in common."""

    turns: Annotated[list[_OurTurn], Meta(min_length=1)]
    session: str = ""
    shared_prompt: str = ""
    shared_tokens: Tokens = 0


def ours(record: Any, place: str) -> Session:
    session = read_record(place, record, _Ours)
    if bool(session.shared_prompt) != bool(session.shared_tokens):
        raise bad_session(place, "shared_prompt and shared_tokens need each other")
    name = session.session or place
    return Session(
        id=name,
        turns=_our_turns(session.turns, session.shared_tokens, place, ""),
        shared_prompt=session.shared_prompt,
        shared_tokens=session.shared_tokens,
    )


def _our_turns(rows: Sequence[_OurTurn], shared: int, place: str, prefix: str) -> list[Turn]:
    turns: list[Turn] = []
    agents = before = 0
    for number, row in enumerate(rows, 1):
        keeps = shared if number == 1 else before if row.keeps_tokens is None else row.keeps_tokens
        if number == 1 and row.keeps_tokens is not None:
            raise bad_session(place, "turn 1 has keeps_tokens, but no turn before it")
        if keeps > max(before, shared) or not keeps + row.new_tokens:
            raise bad_session(
                place,
                f"turn {number} keeps {keeps:,} of {before:,} tokens and adds {row.new_tokens:,}",
            )
        branches = []
        for agent in row.agents:
            agents += 1
            name = f"{prefix}{agents}"
            branches.append(
                Branch(name, _our_turns(agent.turns, 0, f"{place}: agent {name}", f"{name}."))
            )
        earlier, before = before, keeps + row.new_tokens
        turns.append(
            Turn(
                input_tokens=before,
                output_tokens=row.output_tokens,
                shared_tokens=keeps,
                cut=row.keeps_tokens is not None and keeps < earlier,
                wait_ns=round(row.wait_s * NS_PER_S),
                branches=branches,
            )
        )
    return turns


# WEKA.


class _WekaRequest(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="n"
):
    """A request of a WEKA trace. `t` and `think_time` are in seconds; `think_time` follows the
    answer before."""

    t: Seconds
    input_tokens: Tokens = field(name="in")
    output_tokens: Tokens = field(name="out")
    model: str = ""
    hash_ids: list[int] | None = None
    blocks: int | None = None
    shared_prefix_blocks: int | None = None
    think_time: float | None = None
    api_time: float | None = None
    ttft: float | None = None
    input_types: list[str] = []
    output_types: list[str] = []
    stop: str | None = None


class _Streamed(_WekaRequest, frozen=True, tag="s"):
    """A request whose answer was streamed."""


class _WekaAgent(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="subagent"
):
    """A sub-agent, recorded when it ended. The times of its requests count from its start."""

    t: Seconds
    requests: list[_WekaRequest | _Streamed]
    duration_ms: float | None = None
    agent_id: str = ""
    subagent_type: str = ""
    total_tokens: int | None = None
    tool_use_count: int | None = None
    status: str = ""
    models: list[str] = []
    tool_tokens: int = 0
    system_tokens: int = 0


class _Weka(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    block_size: Annotated[int, Meta(ge=1, le=65_536)]
    requests: list[_WekaRequest | _Streamed | _WekaAgent]
    models: list[str] = []
    hash_id_scope: str = "local"
    tool_tokens: int = 0
    system_tokens: int = 0
    totals: dict[str, Any] = {}


def weka(record: Any, place: str) -> Session:
    session = read_record(place, record, _Weka)
    if session.hash_id_scope != "local":
        raise bad_session(
            place,
            f"hash_id_scope is {session.hash_id_scope!r}, expected 'local': ids of one session",
        )
    turns: list[Turn] = []
    # begin and end of sub-agents that the next request waits for
    waiting: list[tuple[float, float, Branch]] = []
    tips = _Tips(session.block_size, place)
    ended_s = 0.0
    agents = 0
    for row in session.requests:
        if isinstance(row, _WekaAgent):
            agents += 1
            span_s = (row.duration_ms or 0) / 1000
            # some writers give the start
            begin_s = row.t - span_s if row.t - span_s > ended_s - 1 else row.t
            inner = _Tips(session.block_size, f"{place}: agent {agents}")
            before_s = 0.0
            branch: list[Turn] = []
            for request in row.requests:
                branch.append(inner.turn(request, _wait_s(request, before_s)))
                before_s = request.t + (request.api_time or 0)
            if branch and turns:
                branch[0] = _later(branch[0], begin_s - ended_s)
                waiting.append((begin_s, begin_s + span_s, Branch(str(agents), branch)))
            continue
        wait_s = _wait_s(row, ended_s)
        branches = [branch for _, _, branch in waiting]
        if waiting:
            wait_s = max(row.t - max(end_s for _, end_s, _ in waiting), 0.0)
        turns.append(tips.turn(row, wait_s, branches))
        ended_s, waiting = row.t + (row.api_time or 0), []
    return Session(id=session.id, turns=turns)


def _wait_s(row: _WekaRequest, ended_s: float) -> float:
    return max(row.t - ended_s if row.think_time is None else row.think_time, 0.0)


def _later(turn: Turn, wait_s: float) -> Turn:
    return replace(turn, wait_ns=round(max(wait_s, 0.0) * NS_PER_S))


class _Tips:
    """The prompts of a conversation so far. A later prompt may continue any of them."""

    def __init__(self, block_tokens: int, place: str) -> None:
        self._block_tokens = block_tokens
        self._place = place
        # the number of a turn, and its blocks; the latest last
        self._tips: list[tuple[int, list[int]]] = []
        self._count = 0
        self._inputs: list[int] = []

    def turn(self, row: _WekaRequest, wait_s: float, branches: list[Branch] | None = None) -> Turn:
        self._count += 1
        place = f"{self._place}: request {self._count}"
        if not row.input_tokens:
            raise bad_session(place, "the prompt has no tokens")
        follows, shared_blocks = 0, row.shared_prefix_blocks
        if row.hash_ids is not None:
            follows, shared_blocks = self._find(row.hash_ids)
        elif shared_blocks is None:
            raise bad_session(place, "it has neither hash_ids nor shared_prefix_blocks")
        shared = shared_blocks * self._block_tokens
        if not 0 <= shared <= row.input_tokens or shared > max(self._inputs, default=0):
            raise bad_session(place, f"it shares {shared:,} tokens, more than the prompts have")
        earlier = self._inputs[(follows or len(self._inputs)) - 1] if self._inputs else 0
        self._inputs.append(row.input_tokens)
        return Turn(
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            shared_tokens=shared,
            follows=follows,
            cut=shared_blocks < earlier // self._block_tokens,
            wait_ns=round(wait_s * NS_PER_S),
            branches=branches or [],
        )

    def _find(self, ids: list[int]) -> tuple[int, int]:
        """Return the number of the turn that shares most blocks with `ids` (0: the one before), and
        how many."""
        best, shared = -1, 0
        for index in range(len(self._tips) - 1, -1, -1):
            common = _common(self._tips[index][1], ids)
            if best < 0 or common > shared:
                best, shared = index, common
            if shared == len(ids):
                break
        follows = 0
        if best >= 0:
            number, blocks = self._tips[best]
            follows = 0 if number == self._count - 1 else number
            if shared >= len(blocks) - 1:
                del self._tips[best]  # the last block of a prompt is often incomplete
        self._tips = [*self._tips[1 - MAX_TIPS :], (self._count, ids)]
        return follows, shared


def _common(one: list[int], other: list[int]) -> int:
    """Return how many blocks two prompts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    return low


# TraceLab.


class _Event(Struct, frozen=True):
    event_type: str = ""
    timestamp: str | None = None


class _Round(Struct, frozen=True, kw_only=True):
    """A request of TraceLab. Its rows have other fields, which are not read."""

    session_id: str
    input_tokens_total: Tokens
    prefix_tokens: Tokens
    output_tokens: Tokens
    reasoning_output_tokens: Tokens | None = None
    timing_events: list[_Event] = []


CACHE_BLOCK = 1024
"""Most tokens at the end of a prompt that an engine did not report as cached in the next one,
although it was kept."""
_INPUTS = ("user_message", "tool_result")
_OUTPUTS = ("text", "reasoning", "tool_call")


class _Timed(Struct, frozen=True, gc=False):
    """A request of TraceLab: when it was sent, when its answer ended, and its tokens."""

    begin_s: float
    end_s: float
    input_tokens: int
    known_tokens: int
    output_tokens: int


def tracelab(records: Iterator[tuple[str, Any]]) -> Iterator[Session]:
    """Return the sessions; the trace does not tell which are sub-agents of others."""
    by_session: dict[str, list[_Timed]] = {}
    for place, record in at_most_turns(records):
        row = read_record(place, record, _Round)
        if row.input_tokens_total:
            by_session.setdefault(row.session_id, []).append(_timed(row, place))
    for name, rows in by_session.items():
        turns: list[Turn] = []
        before, ended_s = 0, 0.0
        for each in sorted(rows, key=lambda each: each.begin_s):
            shared = min(each.known_tokens, each.input_tokens, before)
            turns.append(
                Turn(
                    input_tokens=each.input_tokens,
                    output_tokens=each.output_tokens,
                    shared_tokens=shared,
                    cut=shared < before - CACHE_BLOCK,
                    wait_ns=round(max(each.begin_s - ended_s, 0.0) * NS_PER_S) if turns else 0,
                )
            )
            before, ended_s = each.input_tokens, each.end_s
        yield Session(id=name, turns=turns)


def _timed(row: _Round, place: str) -> _Timed:
    """Return a request with its times. It is sent when the last of its inputs is there."""
    events = [
        (each.event_type, _seconds(each.timestamp, place))
        for each in row.timing_events
        if each.timestamp
    ]
    inputs = [at_s for kind, at_s in events if kind in _INPUTS]
    outputs = [at_s for kind, at_s in events if kind in _OUTPUTS]
    if not inputs and not outputs:
        raise bad_session(place, "the request has no timing_events")
    begin_s = max(inputs) if inputs else min(outputs)
    output_tokens = row.output_tokens + (row.reasoning_output_tokens or 0)
    end_s = max([begin_s, *outputs])
    return _Timed(begin_s, end_s, row.input_tokens_total, row.prefix_tokens, output_tokens)


def _seconds(text: str, place: str) -> float:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise bad_session(place, f"{text!r} is not a date") from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
