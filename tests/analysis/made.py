"""Observations for tests: short to write, and with figures that can be checked by hand."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings
from splitsecond.benchmark.rows.row_fields import Instrument
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.wording import LINE, Statement

MS = 1_000_000
S = 1_000 * MS


def request(
    sent_ms: float = 1000.0,
    *,
    ttft_ms: float = 100.0,
    gap_ms: float = 10.0,
    tokens: int = 11,
    name: str = "r",
    **changes: Any,
) -> Observation:
    """An answer of one token per event, `gap_ms` apart, read without any lag. `changes` are fields
    to replace."""
    sent = round(sent_ms * MS)
    at = [sent + round((ttft_ms + i * gap_ms) * MS) for i in range(tokens)]
    made = Observation(
        id=name,
        call=name,
        target="a/x",
        condition="c",
        start_ns=sent,
        sent_ns=sent,
        head_ns=at[0],
        first_event_ns=at[0],
        first_token_ns=at[0],
        first_answer_ns=at[0],
        last_token_ns=at[-1],
        end_ns=at[-1],
        token_at=at,
        token_lengths=[4] * tokens,
        output_tokens=tokens,
        input_tokens=100,
        token_source="usage",
        status=200,
        reads=tokens,
        kernel_time=True,
        max_read_tokens=1,
    )
    return msgspec.structs.replace(made, **changes)


def failure(
    sent_ms: float = 1000.0, *, kind: str = "http_500", took_ms: float = 5.0, **changes: Any
) -> Observation:
    """A request that got an error instead of an answer."""
    sent = round(sent_ms * MS)
    made = Observation(
        id="f",
        call="f",
        target="a/x",
        condition="c",
        outcome="failed",
        fault=FaultRecord(
            type="ProviderFault", kind=kind, phase="head", message=f"got {kind}, expected 200"
        ),
        start_ns=sent,
        sent_ns=sent,
        end_ns=sent + round(took_ms * MS),
    )
    return msgspec.structs.replace(made, **changes)


def closed_loop(concurrency: int, rounds: int, **made: Any) -> list[Observation]:
    """A closed loop that is always full: each place starts a little later, and sends without a
    pause."""
    first = request(**made)
    took_ms = (first.end_ns - (first.sent_ns or 0)) / MS
    return [
        request(1000.0 + place + turn * took_ms, name=f"{place}-{turn}", **made)
        for turn in range(rounds)
        for place in range(concurrency)
    ]


def asked(concurrency: int | None = 1, **changes: Any) -> AskedCondition:
    """Condition "c" of target "a/x"."""
    return msgspec.structs.replace(
        AskedCondition(condition="c", target="a/x", concurrency=concurrency), **changes
    )


def row(**changes: Any) -> ConditionFindings:
    """A row of findings without any figures."""
    made = ConditionFindings(
        condition="c",
        target="a/x",
        concurrency=1,
        requests=0,
        errors=0,
        instrument=Instrument(kernel_time=True),
    )
    return msgspec.structs.replace(made, **changes)


def renamed(observations: Sequence[Observation], condition: str, target: str) -> list[Observation]:
    """The same requests, to another target."""
    return [msgspec.structs.replace(o, condition=condition, target=target) for o in observations]


def in_both_forms(found: Iterable[Statement]) -> str:
    """Return statements for a golden file: each in full, then as lines that must fit a terminal."""
    for each in found:
        assert [line for line in each.lines(LINE) if len(line) > LINE] == []
    return "".join(
        f"  {each.long}\n" + "".join(f"    {line}\n" for line in each.lines(0)) for each in found
    )
