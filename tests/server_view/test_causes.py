"""Causes: stated only where the server's series shows them, with the evidence."""

import pytest
from msgspec.structs import replace
from tests.analysis.made import row as plain_row

from splitsecond.benchmark.findings.causes import cause_of_row, check_words, server_statements
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.row_fields import ServerView, TtftCheck
from splitsecond.core.wording import LINE
from splitsecond.log.statistics.summary import Summary

QUIET = ServerView(
    title="vLLM",
    running=1,
    running_max=1,
    waiting=0,
    kv_use=0.1,
    kv_use_max=0.1,
    ttft_ms=100,
    queue_ms=1,
)
QUEUE = replace(
    QUIET, running_max=16, waiting=11, kv_use_max=0.6, ttft_ms=1000, queue_ms=800, preemptions=0
)
FULL = replace(QUEUE, kv_use_max=0.97, preemptions=34)


def row(concurrency: int, view: ServerView | None, p95: float = 100) -> ConditionFindings:
    ttft = Summary(n=100, p50=50.0, p95=p95)
    return replace(plain_row(), concurrency=concurrency, requests=100, server=view, ttft_ms=ttft)


def words(*rows: ConditionFindings) -> list[str]:
    found = server_statements(rows)
    assert all(
        len(line) <= LINE for each in found for line in (each.short or each.long).split("\n")
    )
    return [each.long for each in found]


def test_ttft_that_doubles_is_explained_by_a_full_cache() -> None:
    assert words(row(1, QUIET), row(32, QUIET, 150), row(64, FULL, 210), row(128, FULL, 900)) == [
        "TTFT p95 of a/x doubles from concurrency 64 on because requests wait, as the KV cache is "
        "full (11 waiting at "
        "the median; at most 16 computed at a time; KV cache 97%; 34 preemptions; 800 of 1,000 ms "
        "of TTFT in the "
        "queue)."
    ]


def test_queue_with_room_in_the_cache_is_not_blamed_on_it() -> None:
    (found,) = words(row(1, QUIET), row(64, QUEUE, 1000))
    assert found.startswith(
        "TTFT p95 of a/x is 10 times as long from concurrency 64 on because requests wait (11 "
    )
    assert "full" not in found


@pytest.mark.parametrize(
    "view",
    [
        None,
        QUIET,
        replace(QUEUE, waiting=0.0),
        replace(QUEUE, queue_ms=200.0),
        replace(QUEUE, waiting=None),
    ],
)
def test_no_cause_is_stated_that_the_series_does_not_show(view: ServerView | None) -> None:
    assert words(row(1, QUIET), row(64, view, 1000)) == []


def test_only_load_with_a_queue_is_stated_without_a_comparison() -> None:
    (found,) = words(row(64, FULL, 1000))
    assert found.startswith(
        "At concurrency 64, requests to a/x wait before they are computed, because the KV cache is"
    )


def test_cache_throttling_and_drafts_are_stated() -> None:
    view = replace(
        QUIET, cached_share=0.62, power_capped=0.38, heat_capped=0.0, accepted_share=0.75
    )
    assert words(row(8, view)) == [
        "The prefix cache of a/x serves 62% of prompt tokens.",
        "The GPUs of a/x were throttled at concurrency 8: power cap for 38% of the time.",
        "a/x accepted 75% of the tokens that speculative decoding proposed.",
    ]


def test_cache_that_falls_with_load_is_stated_for_both_ends() -> None:
    high, low = (replace(QUIET, cached_share=share) for share in (0.9, 0.3))
    assert words(row(1, high), row(8, low)) == [
        "The prefix cache of a/x serves 90% of prompt tokens at "
        "concurrency 1, 30% at concurrency 8."
    ]


def test_preemptions_without_a_queue_are_stated() -> None:
    assert words(row(1, QUIET), row(8, replace(QUIET, preemptions=3))) == [
        "a/x preempted 3 requests at concurrency 8: its KV cache was full, and these requests "
        "began again."
    ]


@pytest.mark.parametrize(
    ("view", "cause"),
    [
        (None, ""),
        (FULL, "memory"),
        (QUEUE, "slots"),
        (replace(QUIET, heat_capped=0.5), "throttling"),
        (QUIET, "computing"),
        (ServerView(power_w=100), ""),
    ],
)
def test_cause_of_a_row_is_what_its_series_shows(view: ServerView | None, cause: str) -> None:
    assert cause_of_row(row(8, view)) == cause


def check(measured_ms: float, *, others: bool = False) -> str:
    found = TtftCheck(
        server_requests=30,
        requests=20,
        server_ms=100,
        network_ms=0.5,
        measured_ms=measured_ms,
        others=others,
    )
    return check_words(row(8, replace(QUIET, check=found)))


def test_clocks_are_said_to_agree_or_why_they_do_not() -> None:
    assert (
        check(101)
        == "the server's mean TTFT 100 ms + network 0.5 ms, mean measured here 101 ms: they "
        "agree (0.5 ms more here)."
    )
    assert "19.5 ms are outside of the server's clock" in check(120)
    assert "the server counts 20.5 ms more than a client sees" in check(80)
    assert check(101, others=True).startswith(
        "the server counted 30 first tokens and this run 20, so it served others"
    )
    assert check_words(row(8, QUIET)) == ""
