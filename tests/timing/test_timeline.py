"""One stream in, one observation out."""

from splitsecond.errors import NetworkFault, ProviderFault
from splitsecond.events import Broken, Done, Finish, Quiet, Token, Usage
from splitsecond.timing.timeline import Sending, Timeline

SENT = Sending(sent_ns=10, dns_ns=1, tcp_ns=2, tls_ns=3, rtt_ns=4)


def begun() -> Timeline:
    timeline = Timeline(attempt="c.1", call="c", target="x/y", due_ns=7, start_ns=8)
    timeline.head(20, 200)
    return timeline


def test_a_whole_answer() -> None:
    timeline = begun()
    assert not timeline.has_token
    timeline.read(5, True, 100)
    timeline.took([Quiet(30, "role")])
    timeline.read(9, True, 50)
    timeline.took([Token(40, "hm", "reasoning"), Token(40, "so", "reasoning")])
    timeline.read(2, True, 60)
    timeline.took([Token(50, "Yes")])
    timeline.took([Finish(60, "stop"), Usage(60, 12, 5, 2, 0), Done(61, True)])
    seen = timeline.observe(end_ns=62, sending=SENT)
    assert seen.outcome == "ok"
    assert seen.fault is None
    assert (seen.id, seen.call, seen.target) == ("c.1", "c", "x/y")
    assert (seen.due_ns, seen.start_ns, seen.sent_ns, seen.head_ns, seen.end_ns) == (7, 8, 10, 20, 62)
    assert (seen.first_event_ns, seen.first_token_ns, seen.first_answer_ns, seen.last_token_ns) == (30, 40, 50, 50)
    assert (seen.token_at, seen.token_lengths) == ([40, 40, 50], [2, 2, 3])
    assert (seen.input_tokens, seen.output_tokens, seen.reasoning_tokens, seen.cached_tokens) == (12, 5, 2, 0)
    assert (seen.token_source, seen.finish_reason, seen.done_marker) == ("usage", "stop", True)
    assert (seen.events, seen.body_bytes, seen.reads, seen.max_read_tokens) == (7, 210, 3, 2)
    assert (seen.lag_max_ns, seen.lag_sum_ns, seen.kernel_time) == (9, 16, True)
    assert (seen.dns_ns, seen.tcp_ns, seen.tls_ns, seen.rtt_ns) == (1, 2, 3, 4)


def test_without_usage_the_events_are_counted() -> None:
    timeline = begun()
    timeline.took([Token(40, "a"), Token(41, "b"), Done(42, False)])
    seen = timeline.observe(end_ns=42, sending=SENT)
    assert (seen.output_tokens, seen.token_source) == (2, "events")


def test_a_running_count_is_usage() -> None:
    timeline = begun()
    timeline.took([Token(40, "a", tokens_so_far=3), Token(41, "b", tokens_so_far=7), Done(42, False)])
    seen = timeline.observe(end_ns=42, sending=SENT)
    assert (seen.output_tokens, seen.token_source, seen.tokens_so_far) == (7, "usage", [3, 7])


def test_a_running_count_with_gaps_is_dropped() -> None:
    timeline = begun()
    timeline.took([Token(40, "a"), Token(41, "b", tokens_so_far=7)])
    assert timeline.observe(end_ns=42, sending=SENT).tokens_so_far == []


def test_an_answer_without_a_token_is_a_failure() -> None:
    timeline = begun()
    timeline.took([Finish(40, "stop"), Done(41, True)])
    seen = timeline.observe(end_ns=42, sending=SENT)
    assert seen.outcome == "failed"
    assert seen.fault is not None
    assert (seen.fault.kind, seen.fault.phase) == ("empty_answer", "first token")
    assert seen.output_tokens is None


def test_a_broken_stream_keeps_what_it_had() -> None:
    timeline = begun()
    fault = ProviderFault("it said no", kind="in_band_error", phase="between tokens", status=200)
    timeline.took([Token(40, "a"), Broken(41, fault)])
    assert timeline.broken is fault
    seen = timeline.observe(end_ns=41, sending=SENT)
    assert seen.outcome == "failed"
    assert seen.fault is not None
    assert (seen.fault.type, seen.fault.kind, seen.fault.status) == ("ProviderFault", "in_band_error", 200)
    assert (seen.first_token_ns, seen.output_tokens) == (40, 1)


def test_what_could_not_be_sent() -> None:
    timeline = Timeline(attempt="c.1", call="c", target="x/y")
    seen = timeline.observe(end_ns=9, fault=NetworkFault("no", kind="refused", phase="connect"), sending=Sending())
    assert (seen.outcome, seen.sent_ns, seen.kernel_time) == ("failed", None, False)


def test_cancelled_is_not_failed() -> None:
    timeline = begun()
    timeline.took([Token(40, "a")])
    assert timeline.observe(end_ns=41, cancelled=True, sending=SENT).outcome == "cancelled"
    assert begun().observe(end_ns=41, cancelled=True, sending=SENT).outcome == "cancelled"


def test_one_read_without_kernel_time_marks_the_whole() -> None:
    timeline = begun()
    timeline.read(0, True, 1)
    timeline.read(0, False, 1)
    timeline.took([Token(40, "a"), Done(41, False)])
    assert timeline.observe(end_ns=41, sending=SENT).kernel_time is False
