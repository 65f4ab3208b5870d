"""Sessions from OpenTelemetry's GenAI spans: OTLP as JSON, or one span a line as exporters write
them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from splitsecond.benchmark.workload.sessions import (
    Branch,
    Session,
    Turn,
    at_most_turns,
    bad_session,
)
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.grouping import grouped

NOTE = (
    "Spans do not tell what prompts share: a prompt that is not shorter than the one before is "
    "taken to begin with it, and a shorter one to begin anew."
)
_OPERATIONS = ("chat", "text_completion", "generate_content")
_CONVERSATION, _AGENT = "gen_ai.conversation.id", "gen_ai.agent.id"
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")


class _Call(Struct, frozen=True):
    begin_ns: int
    end_ns: int
    input_tokens: int
    output_tokens: int
    session: str
    agent: str


def is_span(record: Any) -> bool:
    return isinstance(record, dict) and ("resourceSpans" in record or "attributes" in record)


def sessions(records: Iterator[tuple[str, Any]]) -> Iterator[Session]:
    calls = [
        call
        for place, record in at_most_turns(records)
        for span in _spans(record)
        for call in _call(span, place)
    ]
    for name, own in grouped(calls, lambda call: call.session).items():
        own.sort(key=lambda call: call.begin_ns)
        agents = grouped(own, lambda call: call.agent)
        main = agents.pop(own[0].agent)
        yield Session(id=name, turns=_turns(main, list(agents.values())))


def _turns(main: Sequence[_Call], agents: Sequence[Sequence[_Call]]) -> list[Turn]:
    """Return the turns of a conversation. The first one that begins after the end of a sub-agent
    waits for it."""
    turns: list[Turn] = []
    before, ended_ns = 0, main[0].begin_ns
    waiting = list(enumerate(agents, 1))
    for call in main:
        ready = [
            (number, agent)
            for number, agent in waiting
            if turns and agent[-1].end_ns <= call.begin_ns
        ]
        waiting = [each for each in waiting if each not in ready]
        branches = []
        for number, agent in ready:
            inner = _turns(agent, [])
            begin_ns = max(agent[0].begin_ns - ended_ns, 0)
            first = Turn(
                input_tokens=inner[0].input_tokens,
                output_tokens=inner[0].output_tokens,
                wait_ns=begin_ns,
            )
            branches.append(Branch(str(number), [first, *inner[1:]]))
        idle_ns = max([ended_ns, *(agent[-1].end_ns for _, agent in ready)])
        turns.append(
            Turn(
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                shared_tokens=before if call.input_tokens >= before else 0,
                wait_ns=max(call.begin_ns - idle_ns, 0),
                branches=branches,
            )
        )
        before, ended_ns = call.input_tokens, call.end_ns
    return turns


def _spans(record: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(record, dict):
        return
    if "resourceSpans" not in record:
        yield record
        return
    for resource in record["resourceSpans"]:
        for scope in resource.get("scopeSpans", ()):
            yield from scope.get("spans", ())


def _call(span: Mapping[str, Any], place: str) -> Iterator[_Call]:
    """Return the request that a span of a model describes; none for spans of tools, agents and
    others."""
    attributes = _attributes(span.get("attributes"))
    if attributes.get("gen_ai.operation.name", "chat") not in _OPERATIONS:
        return
    counts = _token_counts(attributes, place)
    if counts is None:
        return
    prompt, answer = counts
    session = str(attributes.get(_CONVERSATION) or _trace_id(span) or "")
    if not session:
        raise bad_session(
            place, f"a span with {prompt:,} tokens has no conversation and no trace id"
        )
    if prompt < 1 or answer < 0:
        raise bad_session(place, f"a span has {prompt:,} input and {answer:,} output tokens")
    begin_ns, end_ns = (_time_ns(span, names, place) for names in _TIMES)
    yield _Call(
        begin_ns, max(begin_ns, end_ns), prompt, answer, session, str(attributes.get(_AGENT) or "")
    )


def _token_counts(attributes: Mapping[str, Any], place: str) -> tuple[int, int] | None:
    """Return the input and output tokens of a span; None if it has neither."""
    counts = [
        next((attributes[name] for name in names if name in attributes), None)
        for names in (_INPUT, _OUTPUT)
    ]
    if counts == [None, None]:
        return None
    try:
        prompt, answer = (int(count) for count in counts)  # type: ignore[arg-type]  # None is refused, too
    except (TypeError, ValueError):
        raise bad_session(
            place, f"a span has the token counts {counts}, expected two numbers"
        ) from None
    return prompt, answer


def _trace_id(span: Mapping[str, Any]) -> Any:
    context = span.get("context")
    return (
        span.get("traceId")
        or span.get("trace_id")
        or (context.get("trace_id") if isinstance(context, dict) else "")
    )


_TIMES = (
    ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
    ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
)


def _time_ns(span: Mapping[str, Any], names: Sequence[str], place: str) -> int:
    value = next((span[name] for name in names if name in span), None)
    try:
        if isinstance(value, str) and not value.isdigit():
            date = datetime.fromisoformat(value)
            return round((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * NS_PER_S)
        return int(value)  # type: ignore[arg-type]  # None is refused, too
    except (TypeError, ValueError):
        raise bad_session(
            place, f"a span has the time {value!r}, expected nanoseconds or a date"
        ) from None


def _attributes(value: Any) -> Mapping[str, Any]:
    """Return the attributes of a span; in OTLP they are a list of keys and typed values."""
    if isinstance(value, dict):
        return value
    attributes = {}
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict) and isinstance(inner := each.get("value"), dict):
            attributes[str(each.get("key"))] = next(iter(inner.values()), None)
    return attributes
