"""One stream in, one observation out."""

from splitsecond.core.errors import NetworkFault, ProviderFault
from splitsecond.core.events import Broken, Done, Event, Finish, Quiet, Token, TokenRun, Usage
from splitsecond.core.finish_reasons import LONGEST_REASON
from splitsecond.core.observation import Observation
from splitsecond.core.timing.timeline import Sending, Timeline

SENT = Sending(sent_ns=10, dns_ns=1, tcp_ns=2, tls_ns=3, rtt_ns=4)


def begun() -> Timeline:
    timeline = Timeline(attempt="c.1", call="c", target="x/y", due_ns=7, start_ns=8)
    timeline.record_head(20, 200)
    return timeline


def test_complete_stream_gives_a_complete_observation() -> None:
    timeline = begun()
    assert not timeline.has_token
    timeline.record_read(5, "kernel", 100)
    timeline.record_events([Quiet(30, "role")])
    timeline.record_read(9, "kernel", 50)
    timeline.record_events([Token(40, "hm", "reasoning"), Token(40, "so", "reasoning")])
    timeline.record_read(2, "kernel", 60)
    timeline.record_events([Token(50, "Yes")])
    timeline.record_events([Finish(60, "stop"), Usage(60, 12, 5, 2, 0), Done(61, True)])
    seen = timeline.observe(end_ns=62, sending=SENT)
    assert seen.outcome == "ok"
    assert seen.fault is None
    assert (seen.id, seen.call, seen.target) == ("c.1", "c", "x/y")
    assert (seen.due_ns, seen.start_ns, seen.sent_ns, seen.head_ns, seen.end_ns) == (
        7,
        8,
        10,
        20,
        62,
    )
    assert (seen.first_event_ns, seen.first_token_ns, seen.first_answer_ns, seen.last_token_ns) == (
        30,
        40,
        50,
        50,
    )
    assert (seen.token_at, seen.token_lengths) == ([40, 40, 50], [2, 2, 3])
    assert (seen.input_tokens, seen.output_tokens, seen.reasoning_tokens, seen.cached_tokens) == (
        12,
        5,
        2,
        0,
    )
    assert (seen.token_source, seen.finish_reason, seen.done_marker) == ("usage", "stop", True)
    assert (seen.events, seen.body_bytes, seen.reads, seen.max_read_tokens) == (7, 210, 3, 2)
    assert (seen.lag_max_ns, seen.lag_sum_ns, seen.kernel_time) == (9, 16, True)
    assert (seen.dns_ns, seen.tcp_ns, seen.tls_ns, seen.rtt_ns) == (1, 2, 3, 4)


def test_without_usage_the_events_are_counted() -> None:
    timeline = begun()
    timeline.record_events([Token(40, "a"), Token(41, "b"), Done(42, False)])
    seen = timeline.observe(end_ns=42, sending=SENT)
    assert (seen.output_tokens, seen.token_source) == (2, "events")


def test_a_usage_of_zero_next_to_content_is_no_count() -> None:
    timeline = begun()
    timeline.record_events(
        [Token(40, "a"), Token(41, "b"), Usage(41, 12, 0, 0, 0), Done(42, False)]
    )
    seen = timeline.observe(end_ns=42, sending=SENT)
    assert (seen.input_tokens, seen.output_tokens, seen.token_source) == (12, 2, "events")


def counted(*events: Event) -> tuple[int | None, str]:
    timeline = begun()
    timeline.record_events([*events, Done(99, True)])
    seen = timeline.observe(end_ns=99, sending=SENT)
    return seen.output_tokens, seen.token_source


def test_usage_that_content_follows_is_not_final() -> None:
    tokens: list[Event] = [Token(40 + number, "a") for number in range(10)]
    assert counted(*tokens[:5], Usage(45, 12, 5), *tokens[5:]) == (10, "events")
    assert counted(*tokens[:5], Usage(45, 12, 5), *tokens[5:], Usage(60, 12, 10)) == (10, "usage")
    # events of several tokens
    assert counted(*tokens[:9], Usage(48, 12, 80), tokens[9]) == (80, "events")
    assert counted(Usage(39, 12, 1), *tokens) == (10, "events")
    # hidden reasoning
    assert counted(*tokens[:5], Usage(45, 12, 105, 100), *tokens[5:]) == (110, "events")


def test_usage_far_below_the_number_of_events_is_no_count() -> None:
    tokens: list[Event] = [Token(40, "a")] * 101
    assert counted(*tokens, Usage(41, 12, 1)) == (101, "events")
    assert counted(*tokens, Usage(41, 12, 50)) == (50, "usage")


def test_a_running_count_is_usage() -> None:
    timeline = begun()
    timeline.record_events(
        [Token(40, "a", tokens_so_far=3), Token(41, "b", tokens_so_far=7), Done(42, False)]
    )
    seen = timeline.observe(end_ns=42, sending=SENT)
    assert (seen.output_tokens, seen.token_source, seen.tokens_so_far) == (7, "usage", [3, 7])


def test_a_running_count_with_gaps_is_dropped() -> None:
    timeline = begun()
    timeline.record_events([Token(40, "a"), Token(41, "b", tokens_so_far=7)])
    assert timeline.observe(end_ns=42, sending=SENT).tokens_so_far == []


def test_an_answer_without_a_token_is_a_failure() -> None:
    timeline = begun()
    timeline.record_events([Finish(40, "stop"), Done(41, True)])
    seen = timeline.observe(end_ns=42, sending=SENT)
    assert seen.outcome == "failed"
    assert seen.fault is not None
    assert (seen.fault.kind, seen.fault.phase) == ("empty_answer", "first token")
    assert seen.output_tokens is None


def test_broken_stream_keeps_its_fault_and_tokens() -> None:
    timeline = begun()
    fault = ProviderFault("it said no", kind="in_band_error", phase="between tokens", status=200)
    timeline.record_events([Token(40, "a"), Broken(41, fault)])
    assert timeline.broken is fault
    seen = timeline.observe(end_ns=41, sending=SENT)
    assert seen.outcome == "failed"
    assert seen.fault is not None
    assert (seen.fault.type, seen.fault.kind, seen.fault.status) == (
        "ProviderFault",
        "in_band_error",
        200,
    )
    assert (seen.first_token_ns, seen.output_tokens) == (40, 1)


def test_unsent_request_is_observed_as_failed() -> None:
    timeline = Timeline(attempt="c.1", call="c", target="x/y")
    seen = timeline.observe(
        end_ns=9, fault=NetworkFault("no", kind="refused", phase="connect"), sending=Sending()
    )
    assert (seen.outcome, seen.sent_ns, seen.kernel_time) == ("failed", None, False)


def test_cancelled_request_is_not_failed() -> None:
    timeline = begun()
    timeline.record_events([Token(40, "a")])
    assert timeline.observe(end_ns=41, cancelled=True, sending=SENT).outcome == "cancelled"
    assert begun().observe(end_ns=41, cancelled=True, sending=SENT).outcome == "cancelled"


def test_one_read_without_kernel_time_marks_the_whole() -> None:
    timeline = begun()
    timeline.record_read(0, "kernel", 1)
    timeline.record_read(0, "process", 1)
    timeline.record_events([Token(40, "a"), Done(41, False)])
    assert timeline.observe(end_ns=41, sending=SENT).kernel_time is False


def test_a_finish_reason_of_any_length_is_kept_short() -> None:
    timeline = begun()
    timeline.record_events([Token(30, "a"), Finish(40, "stop" * 1_000_000), Done(41, True)])
    assert len(timeline.observe(end_ns=50, sending=SENT).finish_reason) == LONGEST_REASON


def merged(*, packets: int, together: int = 3, head: int = 1_000, after: int = 0) -> Observation:
    """An answer whose first `together` tokens came in one read at 2,000 ns, and four more 100 ns
    apart."""
    timeline = begun()
    timeline.record_head(head, 200)
    timeline.record_read(0, "kernel", 1)
    timeline.record_events([Token(2_000, "a")] * together)
    timeline.record_first_read(packets, after)
    timeline.record_events([Token(2_000 + 100 * i, "c") for i in range(1, 5)])
    timeline.record_events([Done(2_400, True)])
    return timeline.observe(end_ns=2_400, sending=SENT)


def test_first_token_of_a_merged_read_is_dated_back_by_the_gap() -> None:
    seen = merged(packets=3)
    assert seen.token_at == [1_800, 1_900, 2_000, 2_100, 2_200, 2_300, 2_400]
    assert (seen.first_event_ns, seen.first_token_ns, seen.first_answer_ns) == (1_800, 1_800, 1_800)
    assert seen.first_merged_ns == 200


def test_tokens_of_one_packet_are_not_dated_back() -> None:
    assert (merged(packets=1).first_token_ns, merged(packets=1).first_merged_ns) == (2_000, 0)


def test_a_packet_can_hold_several_tokens_of_a_merged_read() -> None:
    assert (merged(packets=2).first_token_ns, merged(packets=2).first_merged_ns) == (1_900, 100)


def test_first_token_alone_in_its_read_is_not_dated_back() -> None:
    assert merged(packets=2, together=1).first_merged_ns == 0


def test_a_first_token_is_not_dated_back_before_the_headers() -> None:
    assert (
        merged(packets=3, head=1_950).first_token_ns,
        merged(packets=3, head=1_950).first_merged_ns,
    ) == (1_950, 50)


def test_first_token_is_not_dated_before_the_last_empty_read() -> None:
    assert (
        merged(packets=3, after=1_990).first_token_ns,
        merged(packets=3, after=1_990).first_merged_ns,
    ) == (
        1_990,
        10,
    )
    assert merged(packets=3, after=2_001).first_merged_ns == 0


def test_headers_of_the_merged_read_are_dated_back_with_it() -> None:
    seen = merged(packets=3, head=2_000)
    assert (seen.head_ns, seen.first_token_ns) == (1_800, 1_800)


def sparse(events: list[Event], *, packets: int = 5, after: int = 1_500) -> Observation:
    """An answer with a token at 1,000 ns, and `events` that were read together at 2,000 ns."""
    timeline = begun()
    timeline.record_read(0, "kernel", 1)
    timeline.record_events([Token(1_000, "a")])
    timeline.record_events(events)
    timeline.record_sparse_read(events, packets, after)
    timeline.record_events([Done(2_100, True)])
    return timeline.observe(end_ns=2_100, sending=SENT)


def test_last_token_before_other_events_has_an_uncertain_time() -> None:
    seen = sparse([Token(2_000, "b"), TokenRun(2_000, [1, 2]), Finish(2_000, "stop")])
    assert (seen.sparse, seen.last_token_ns, seen.last_merged_ns) == (True, 2_000, 500)


def test_last_token_at_the_end_of_its_read_has_an_exact_time() -> None:
    assert sparse([Token(2_000, "b"), Token(2_000, "c")]).last_merged_ns == 0
    assert sparse([TokenRun(2_000, [1, 2])]).last_merged_ns == 0
    assert sparse([Token(2_000, "b"), Finish(2_000, "stop")], packets=1).last_merged_ns == 0
    assert sparse([Finish(2_000, "stop")]).last_merged_ns == 0  # the token's own read ended with it


def test_an_answer_that_was_read_promptly_is_not_sparse() -> None:
    assert not merged(packets=1).sparse


def test_packets_of_one_read_keep_their_times() -> None:
    timeline = begun()
    timeline.record_packets([10, 20, 30], 40, 300)
    timeline.record_events([TokenRun(30, [1, 2, 3], [10, 20, 30])])
    timeline.record_events([Done(31, True)])
    seen = timeline.observe(end_ns=31, sending=SENT)
    assert (seen.token_at, seen.token_lengths, seen.first_answer_ns) == (
        [10, 20, 30],
        [1, 2, 3],
        10,
    )
    assert (seen.reads, seen.body_bytes, seen.lag_max_ns, seen.lag_sum_ns) == (3, 300, 30, 60)
    assert (seen.max_read_tokens, seen.packet_time) == (1, True)


def test_later_tokens_are_expected_at_the_pace_so_far() -> None:
    timeline = begun()
    timeline.record_events([Token(10, "a")])
    assert timeline.expected_at(5) == 10  # there is no pace yet
    timeline.record_events([Token(20, "b"), Token(30, "c")])
    assert timeline.expected_at(7) == 70
    assert timeline.expected_at(2) == 20
