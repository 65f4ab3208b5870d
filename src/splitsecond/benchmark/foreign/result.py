"""The requests that another benchmark tool measured, as observations of a run.

Such a file has no rounds, so the requests of a load are divided by time into `BLOCKS` blocks of the
same size. Their scatter gives intervals for the time that was measured only. Nothing is known of
the tool's own delays.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from splitsecond.benchmark.rows.records import AskedCondition
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault, excerpt
from splitsecond.core.observation import FaultRecord, Observation

BLOCKS = 10
ORIGIN_NS = NS_PER_S
"""Time of the first request. An observation has 0 for times that are not known."""
MAX_S = 1e9
"""Bound of a duration in a file: 31 years."""


class ForeignRequest(Struct, frozen=True, kw_only=True):
    """One request. Times in seconds; `start_s` counts from any moment that a load's requests share.

    `first_token_s`, `last_token_s` and `end_s` count from the start of the request; `gaps_s` lie
    between its events. A request without `first_token_s` was not streamed. `due_s`: when the tool
    wanted to send it, on the clock of `start_s`. `counted`: the server counted its tokens.
    """

    start_s: float
    end_s: float
    due_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    gaps_s: Sequence[float] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    counted: bool = False
    error: str = ""


class ForeignLoad(Struct, frozen=True, kw_only=True):
    """The requests of one load: a concurrency, or a rate in requests per second.

    Without both, the concurrency is the most requests that were in flight.
    """

    requests: Sequence[ForeignRequest]
    concurrency: int | None = None
    rate: float | None = None


class ForeignResult(Struct, frozen=True, kw_only=True):
    """What a file of another tool contains.

    `missing` has sentences on what the file lacks beside rounds and the tool's own delays.
    """

    tool: str
    model: str
    began: datetime
    loads: Sequence[ForeignLoad]
    missing: Sequence[str] = ()

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know."""
        common = (
            f"measured by {self.tool}, whose own delays are not known, so no row can be INVALID "
            f"because of them. Its requests are divided into {BLOCKS} blocks of time."
        )
        return [common, *self.missing]

    def conditions(self) -> list[AskedCondition]:
        """Return the load of each row. Raises `CallerFault` if two are the same."""
        conditions = [_condition(self.model, load) for load in self.loads]
        names = [each.condition for each in conditions]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise CallerFault(
                f"the file has several results for {twice[0]}",
                kind="bad_run",
                hint="Write each of them to a file of its own.",
            )
        return conditions

    def observations(self) -> list[Observation]:
        return [
            observation
            for condition, load in zip(self.conditions(), self.loads, strict=True)
            for observation in _observations(condition, load)
        ]

    @property
    def id(self) -> str:
        """Identify the requests, so that a copy of a file is the same run."""
        starts = [(r.start_s, r.end_s) for load in self.loads for r in load.requests]
        return (
            f"{self.tool.split()[0].lower()}-"
            f"{hashlib.sha256(repr(starts).encode()).hexdigest()[:12]}"
        )


def _condition(model: str, load: ForeignLoad) -> AskedCondition:
    if load.rate is not None:
        name = f"{model} rate={load.rate:g}"
        return AskedCondition(condition=name, target=model, rate=load.rate)
    concurrency = load.concurrency or most_in_flight(load.requests)
    return AskedCondition(
        condition=f"{model} c={concurrency}", target=model, concurrency=concurrency
    )


def most_in_flight(requests: Sequence[ForeignRequest]) -> int:
    changes = [(r.start_s, 1) for r in requests] + [(r.start_s + r.end_s, -1) for r in requests]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return max(most, 1)


def _observations(condition: AskedCondition, load: ForeignLoad) -> list[Observation]:
    ordered = sorted(load.requests, key=lambda r: r.start_s)
    if not ordered:
        return []
    first_s = min(
        ordered[0].start_s, *(r.due_s for r in ordered if r.due_s is not None), ordered[0].start_s
    )
    return [
        _observation(condition, number, 1 + number * BLOCKS // len(ordered), request, first_s)
        for number, request in enumerate(ordered)
    ]


def _observation(
    condition: AskedCondition, number: int, block: int, request: ForeignRequest, first_s: float
) -> Observation:
    start_ns = ORIGIN_NS + _ns(request.start_s - first_s)
    end_ns = start_ns + _ns(request.end_s)
    streamed = request.first_token_s is not None
    token_at = _token_times(request, start_ns, end_ns) if not request.error else []
    due_s = request.start_s if request.due_s is None else request.due_s
    first_ns, last_ns = (token_at[0], token_at[-1]) if token_at else (None, None)
    return Observation(
        id=f"{condition.condition}#{number}.1",
        call=f"{condition.condition}#{number}",
        target=condition.target,
        condition=condition.condition,
        round=block,
        outcome="failed" if request.error else "ok",
        fault=_fault(request.error),
        streamed=streamed,
        due_ns=ORIGIN_NS + _ns(due_s - first_s) if condition.open_loop else 0,
        start_ns=start_ns,
        sent_ns=start_ns,
        first_event_ns=first_ns,
        first_token_ns=first_ns,
        first_answer_ns=first_ns,
        last_token_ns=last_ns,
        end_ns=end_ns,
        token_at=token_at,
        token_lengths=[1] * len(token_at) if request.gaps_s else [],
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        cached_tokens=request.cached_tokens,
        token_source="usage" if request.counted else "tokenizer",
        sparse=streamed and not request.gaps_s,
    )


def _token_times(request: ForeignRequest, start_ns: int, end_ns: int) -> list[int]:
    if request.first_token_s is None:
        return [end_ns]
    times_ns = [start_ns + _ns(request.first_token_s)]
    if not request.gaps_s:
        last_ns = end_ns if request.last_token_s is None else start_ns + _ns(request.last_token_s)
        return [*times_ns, max(last_ns, times_ns[0])]
    for gap_s in request.gaps_s:
        times_ns.append(times_ns[-1] + _ns(gap_s))
    return times_ns


def _fault(error: str) -> FaultRecord | None:
    if not error:
        return None
    return FaultRecord(type="ProviderFault", kind="failed", phase="total", message=excerpt(error))


def _ns(seconds: float) -> int:
    if not 0 <= seconds <= MAX_S:  # also refuses NaN
        raise CallerFault(f"got the time {seconds} s, expected 0 to {MAX_S:g} s", kind="bad_run")
    return round(seconds * NS_PER_S)
