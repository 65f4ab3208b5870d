"""The ids of calls and attempts in distributed traces."""

from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from splitsecond.core.trace_context import TraceContext, attempt_traceparent, span_id, trace_context

CALL = "req-0af7651916cd43dd8448eb211c80319c"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_trace_of_the_client_is_continued() -> None:
    assert trace_context(CALL, PARENT) == TraceContext(
        0x4BF92F3577B34DA6A3CE929D0E0E4736, 0xF067AA0BA902B7, True
    )
    assert trace_context(CALL, PARENT[:-1] + "0").sampled is False
    assert attempt_traceparent(CALL, CALL + ".1", PARENT[:-1] + "0").endswith("-00")


def test_without_one_the_trace_has_the_id_of_the_call() -> None:
    assert trace_context(CALL, "") == TraceContext(0x0AF7651916CD43DD8448EB211C80319C)
    assert trace_context("batch-7", "").trace == trace_context("batch-7", "").trace != 0


def test_the_spans_of_a_call_differ() -> None:
    assert len({span_id(CALL), span_id(f"{CALL}.1"), span_id(f"{CALL}.2")}) == 3


@given(
    st.text(alphabet="0123456789abcdf-", max_size=60)
    | st.tuples(
        *(st.text("0123456789abcdef", min_size=size, max_size=size) for size in (2, 32, 16, 2))
    ).map("-".join)
)
@example(PARENT)
@example("ff" + PARENT[2:])
@example(PARENT + "-more")
@example("01" + PARENT[2:] + "-more")
@example("00-" + 32 * "0" + PARENT[35:])
def test_headers_are_read_as_opentelemetry_reads_them(header: str) -> None:
    theirs = get_current_span(
        TraceContextTextMapPropagator().extract({"traceparent": header})
    ).get_span_context()
    ours = trace_context(CALL, header)
    assert (ours.parent, bool(ours.sampled)) == (theirs.span_id, theirs.trace_flags.sampled)
    if theirs.is_valid:
        assert ours.trace == theirs.trace_id


@given(st.text(min_size=1, max_size=20), st.sampled_from(["", PARENT]))
def test_sent_traceparent_is_valid(call: str, header: str) -> None:
    sent = attempt_traceparent(call, f"{call}.1", header)
    theirs = get_current_span(
        TraceContextTextMapPropagator().extract({"traceparent": sent})
    ).get_span_context()
    assert (theirs.trace_id, theirs.span_id) == (
        trace_context(call, header).trace,
        span_id(f"{call}.1"),
    )
