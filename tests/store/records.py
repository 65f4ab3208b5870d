"""Records for the log, and the part of them that the log returns."""

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from splitsecond.core import clock
from splitsecond.core.observation import FaultRecord, Observation, TokenSource
from splitsecond.core.session import CallSession
from splitsecond.core.timing.packed_attempt import OUTCOMES
from splitsecond.core.timing.server_times import duration_ns
from splitsecond.log.store.call_record import CallAccounting, CallRecord

MOMENTS = ("sent_ns", "head_ns", "first_token_ns", "first_answer_ns", "last_token_ns", "end_ns")
LOST: dict[str, Any] = {
    "first_event_ns": None, "token_at": [], "token_lengths": [], "start_ns": 0,
}  # fmt: skip
"""What the log does not keep of an attempt, and where its moments begin."""


def answered(
    number: int,
    *,
    target: str = "groq/fast",
    ago_s: float = 0,
    server_timings: dict[str, float] | None = None,
    **changes: Any,
) -> CallRecord:
    """A call that came in `ago_s` ago and was answered with 20 tokens: the first after 0.2 s, the
    last after 0.5 s."""
    start_ns = clock.now_ns() - round(ago_s * 1e9)
    after = [start_ns + ms * clock.NS_PER_MS for ms in (1, 199, 200, 500, 501)]
    call = f"req-{number}"
    attempt = Observation(
        id=f"{call}"
        f".1", call=call, target=target, role="winner", start_ns=start_ns, sent_ns=after[0],
        head_ns=after[1], first_event_ns=after[2], first_token_ns=after[2],
        first_answer_ns=after[2],
        last_token_ns=after[3], end_ns=after[4], token_at=[after[2], after[3]],
        token_lengths=[10, 30], status=200,
        finish_reason="stop", input_tokens=100, cached_tokens=40, output_tokens=20,
        token_source="usage",
        server_timings=server_timings or {},
    )  # fmt: skip
    record = CallRecord(
        call=call, start_ns=start_ns, first_token_ns=after[2], end_ns=after[4], route="fast",
        client="team",
        stream=True, status=200, target=target, wall_us=clock.wall_offset_us(), attempts=(attempt,),
    )  # fmt: skip
    return msgspec.structs.replace(record, **changes)


def kept(served: CallRecord) -> CallRecord:
    """`served` as the log returns it: moments count from its arrival, and the single tokens are
    dropped."""
    start = served.start_ns
    return msgspec.structs.replace(
        served,
        start_ns=0,
        wall_us=0,
        end_ns=served.end_ns - start,
        first_token_ns=None if served.first_token_ns is None else served.first_token_ns - start,
        attempts=tuple(_kept(o, start) for o in served.attempts),
    )


def _kept(o: Observation, start: int) -> Observation:
    moments = {
        name: None if at is None else at - start for name in MOMENTS for at in [getattr(o, name)]
    }
    counted = [] if o.first_token_ns is None else [o.first_event_tokens]
    queue_ns = (
        duration_ns("queue_time", o.server_timings["queue_time"])
        if "queue_time" in o.server_timings
        else None
    )
    timings = {} if queue_ns is None else {"queue_time": round(queue_ns) / 1e9}
    return msgspec.structs.replace(
        o, **LOST, **moments, tokens_so_far=counted, server_timings=timings
    )


def in_session(turn: int = 1, session: str = "00000000000000aa", **changes: Any) -> CallSession:
    """The session of a call, as the log returns it."""
    given = CallSession(
        id=session, source="", turn=turn, new_tokens=20, reusable_tokens=80, idle_ns=3_000_000_000
    )
    return msgspec.structs.replace(given, **changes)


def same_figures(put: CallRecord, got: CallRecord) -> None:
    """Fails where a figure of an attempt is another than before."""
    for before, after in zip(put.attempts, got.attempts, strict=True):
        for figure in (
            "ttft_ns",
            "tps",
            "e2e_ns",
            "first_answer_after_ns",
            "total_tps",
            "streamed_tokens",
        ):
            assert getattr(after, figure) == getattr(before, figure), figure


_counts = st.none() | st.integers(0, 5000) | st.integers(0, 1 << 62)
_words = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=60)
_durations = st.integers(0, 1 << 45)
_timings = st.sampled_from(
    ["queue_time", "total_duration", "processing_ms", "predicted_per_second"]
)


@st.composite
def _attempts(draw: st.DrawFn, call: str, start: int) -> Observation:
    """An attempt that can exist: only one that did not succeed has a fault."""
    moments = sorted(draw(st.lists(_durations, min_size=6, max_size=6)))
    sent, head, first, answer, last, end = (start + after for after in moments)
    reached = draw(st.sampled_from(["nothing", "sent", "head", "token"]))
    token = reached == "token"
    events = draw(st.integers(1, 5))
    fault = st.builds(
        FaultRecord,
        type=st.sampled_from(["ProviderFault", "TimedOut"]),
        kind=st.sampled_from(["http_429", "truncated"]),
        phase=st.sampled_from(["head", "between tokens"]),
        message=_words,
        status=st.integers(0, 599),
    )
    outcome = draw(st.sampled_from(OUTCOMES))
    return Observation(
        id=call,
        call=call,
        target=draw(_words),
        role=draw(st.sampled_from(["winner", "loser"])),
        outcome=outcome,
        fault=None if outcome == "ok" else draw(st.none() | fault),
        streamed=draw(st.booleans()),
        start_ns=start,
        dns_ns=draw(_durations),
        tcp_ns=draw(_durations),
        tls_ns=draw(_durations),
        reused=draw(st.booleans()),
        resent=draw(st.booleans()),
        rtt_ns=draw(st.none() | _durations),
        sent_ns=None if reached == "nothing" else sent,
        head_ns=head if reached in ("head", "token") else None,
        first_token_ns=first if token else None,
        first_answer_ns=answer if token else None,
        last_token_ns=last if token else None,
        end_ns=end,
        token_at=[first, *[last] * (events - 1)] if token else [],
        token_lengths=draw(st.lists(st.integers(1, 9), min_size=events, max_size=events))
        if token
        else [],
        status=draw(st.integers(0, 599)),
        finish_reason=draw(_words),
        input_tokens=draw(_counts),
        cached_tokens=draw(_counts),
        cache_write_tokens=draw(_counts),
        output_tokens=draw(_counts),
        reasoning_tokens=draw(_counts),
        token_source=draw(st.sampled_from(get_args(TokenSource))),
        lag_max_ns=draw(_durations),
        kernel_time=draw(st.booleans()),
        server_timings=draw(st.dictionaries(_timings, st.floats())),
        tier=draw(st.sampled_from(["", "", "priority", "default"])),
        unstreamed_tokens=draw(st.none() | st.integers(0, 50)),
    )


_accounts = st.none() | st.builds(
    CallAccounting,
    team=st.just("eng"),
    tags=st.just("") | st.just("a, b"),
    stated_usd=st.none() | st.floats(0, 9),
)
_hashes = st.integers(1, (1 << 64) - 1).map(lambda number: f"{number:016x}")
_sessions = st.none() | st.builds(
    CallSession,
    id=_hashes,
    source=st.just(""),
    agent=st.just("") | _hashes,
    parent=st.just("") | _hashes,
    turn=st.integers(1, 1 << 40),
    new_tokens=st.integers(0, 1 << 30),
    reusable_tokens=st.integers(0, 1 << 30),
    idle_ns=st.none() | st.integers(0, 1 << 40).map(lambda ms: ms * clock.NS_PER_MS),
)


@st.composite
def records(draw: st.DrawFn) -> CallRecord:
    """Any call, with any attempts."""
    start = draw(_durations) - (1 << 45)  # in the past, whatever the machine's clock says
    call = f"req-{draw(st.uuids())}"
    return CallRecord(
        call=call,
        start_ns=start,
        end_ns=start + draw(_durations),
        first_token_ns=draw(st.none() | _durations.map(lambda after: start + after)),
        route=draw(_words),
        client=draw(_words),
        operation=draw(st.sampled_from(["chat", "embeddings"])),
        stream=draw(st.booleans()),
        status=draw(st.integers(100, 599)),
        cache=draw(st.sampled_from(["", "hit", "miss", "shared"])),
        target=draw(_words),
        outcome=draw(st.sampled_from(["ok", "failed", "cancelled"])),
        fault=draw(st.sampled_from(["", "all_failed"])),
        wall_us=clock.wall_offset_us(),
        session=draw(_sessions),
        accounting=draw(_accounts),
        attempts=tuple(
            msgspec.structs.replace(attempt, id=f"{call}.{number}")
            for number, attempt in enumerate(draw(st.lists(_attempts(call, start), max_size=3)), 1)
        ),
    )
