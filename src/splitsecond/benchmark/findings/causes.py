"""Causes of what a run measured, from the server's own series, as sentences with their evidence.

A cause is stated only where the series says so: requests wait if at least one does at the median,
and a queue explains a longer TTFT only if, where the server reports it, most of the TTFT passes in
it. A full KV cache is one that was full in some reading while requests waited, or that took
requests' places away (preemptions).
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from splitsecond.benchmark.rows.figures import ttft_figure
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.row_fields import ServerView, TtftCheck
from splitsecond.benchmark.rows.usable_rows import rows_by_target
from splitsecond.core.wording import (
    LINE,
    Statement,
    counted_as,
    level,
    load,
    number,
    percent,
    ratio,
)

Row = ConditionFindings
Cause = Literal["", "memory", "slots", "throttling", "computing"]

MIN_WAITING = 1.0
FULL = 0.95
"""Use of the KV cache from which it counts as full."""
QUEUE_SHARE = 0.5
"""Share of the server's TTFT that must pass in its queue to explain it."""
LONGER = 2.0
"""TTFT p95, divided by that of the lightest load, from which a cause is looked for."""
THROTTLED = 0.05
CACHED = 0.01
TOLERANCE_MS, TOLERANCE = 1.0, 0.05
"""Difference of two TTFTs, in ms and as a share, up to which they agree."""


def cause_of_row(row: Row) -> Cause:
    """Return what limits the server under the load of a row; "" if its series does not say."""
    view = row.server
    if view is None:
        return ""
    if waits(view):
        return "memory" if memory_is_full(view) else "slots"
    if is_throttled(view):
        return "throttling"
    return "computing" if view.waiting is not None and view.running is not None else ""


def waits(view: ServerView) -> bool:
    if view.waiting is None or view.waiting < MIN_WAITING:
        return False
    return not view.queue_ms or not view.ttft_ms or view.queue_ms >= QUEUE_SHARE * view.ttft_ms


def memory_is_full(view: ServerView) -> bool:
    return bool(view.preemptions) or (view.kv_use_max or 0.0) >= FULL


def is_throttled(view: ServerView) -> bool:
    return max(view.power_capped or 0.0, view.heat_capped or 0.0) >= THROTTLED


def throttled_by(view: ServerView) -> list[str]:
    causes = (("power cap", view.power_capped), ("heat", view.heat_capped))
    return [f"{name} for {percent(round(part, 2))} of the time" for name, part in causes if part]


def evidence(view: ServerView) -> list[str]:
    """Return what the series says about waiting: "11 waiting at the median", "KV cache 97%", "34
    preemptions"."""
    parts = []
    if view.waiting is not None:
        parts.append(f"{number(view.waiting)} waiting at the median")
    if view.running_max is not None:
        parts.append(f"at most {number(view.running_max)} computed at a time")
    if view.kv_use_max is not None:
        parts.append(f"KV cache {percent(round(view.kv_use_max, 2))}")
    if view.preemptions:
        parts.append(counted_as(round(view.preemptions), "preemption"))
    if view.queue_ms is not None and view.ttft_ms:
        parts.append(f"{number(view.queue_ms)} of {number(view.ttft_ms)} ms of TTFT in the queue")
    return parts


def with_evidence(words: str, reported: Sequence[str], short: str = "") -> Statement:
    """Return a statement with its evidence; in short, each line has as much of it as fits."""
    lines = [f"{short or words}:"]
    for part in reported:
        if len(lines) > 1 and len(f"{lines[-1]}; {part}.") <= LINE:
            lines[-1] += f"; {part}"
        else:
            lines.append(part)
    return Statement(f"{words} ({'; '.join(reported)}).", "\n".join(lines) + ".")


def server_statements(rows: Sequence[Row]) -> list[Statement]:
    statements: list[Statement] = []
    for levels in rows_by_target(rows):
        reported = [row for row in levels if row.server is not None]
        if reported:
            statements += [
                *_queue(levels[0], reported),
                *_preemptions(reported),
                *_cache(reported),
                *_throttling(reported),
                *_drafts(reported),
            ]
    return statements


def _queue(lightest: Row, levels: Sequence[Row]) -> Iterator[Statement]:
    """Return from which load on requests wait: there TTFT is longer than at the lightest load, or
    there is no other."""
    before = _ttft_p95(lightest)
    for row in levels:
        view, after = row.server, _ttft_p95(row)
        if view is None or not waits(view):
            continue
        why = "because the KV cache is full" if memory_is_full(view) else ""
        if row is lightest:
            where = (
                f"{level(row).capitalize()}, requests to {row.target} wait before they are computed"
            )
            yield with_evidence(f"{where}{f', {why}' if why else ''}", evidence(view))
            return
        if before and after and after >= LONGER * before:
            grown = (
                "doubles" if after < 3 * before else f"is {number(after / before)} times as long"
            )
            wait = f"because requests wait{', as the KV cache is full' if why else ''}"
            words = f"TTFT p95 of {row.target} {grown} from {load(row)} on {wait}"
            short = (
                f"{row.target}, TTFT p95 {ratio(after / before)}× from "
                f"{load(row, short=True)} on: requests wait"
            )
            yield with_evidence(words, evidence(view), short + (", KV cache full" if why else ""))
            return


def _ttft_p95(row: Row) -> float | None:
    return ttft_figure(open_loop=row.concurrency is None).summary(row).p95


def _preemptions(levels: Sequence[Row]) -> Iterator[Statement]:
    counts = {
        load(row): round(row.server.preemptions)
        for row in levels
        if row.server and row.server.preemptions
    }
    if counts and not any(
        row.server and waits(row.server) and row.server.preemptions for row in levels
    ):
        where, most = max(counts.items(), key=lambda item: item[1])
        yield Statement(
            f"{levels[0].target} preempted {counted_as(most, 'request')} at {where}: its KV cache "
            "was full, and these requests began again."
        )


def _cache(levels: Sequence[Row]) -> Iterator[Statement]:
    shares = [
        (row, row.server.cached_share)
        for row in levels
        if row.server and row.server.cached_share is not None
    ]
    if not shares or max(share for _, share in shares) < CACHED:
        return
    (first, low), (last, high) = shares[0], shares[-1]
    target = levels[0].target
    if len(shares) == 1 or round(low, 2) == round(high, 2):
        yield Statement(
            f"The prefix cache of {target} serves {percent(round(high, 2))} of prompt tokens."
        )
    else:
        yield Statement(
            f"The prefix cache of {target} serves {percent(round(low, 2))} of prompt tokens "
            f"{level(first)}, {percent(round(high, 2))} {level(last)}."
        )


def _throttling(levels: Sequence[Row]) -> Iterator[Statement]:
    for row in reversed(levels):
        if row.server and is_throttled(row.server):
            words = ", ".join(throttled_by(row.server))
            yield Statement(f"The GPUs of {row.target} were throttled {level(row)}: {words}.")
            return


def _drafts(levels: Sequence[Row]) -> Iterator[Statement]:
    for row in levels[-1:]:
        if row.server and row.server.accepted_share is not None:
            share = percent(round(row.server.accepted_share, 2))
            yield Statement(
                f"{row.target} accepted {share} of the tokens that speculative decoding proposed."
            )


def check_words(row: Row) -> str:
    """Return whether the server's TTFT and the network add up to ours; "" if the server reports no
    TTFT."""
    view = row.server
    if view is None or view.check is None:
        return ""
    check = view.check
    if check.others:
        return (
            f"the server counted {check.server_requests:,} first tokens and this run "
            f"{check.requests:,}, so it served others too. Its mean times are not compared."
        )
    added = f"the server's mean TTFT {number(check.server_ms)} ms"
    if check.network_ms is not None:
        added += f" + network {number(check.network_ms)} ms"
    return f"{added}, mean measured here {number(check.measured_ms)} ms: {_difference(check)}"


def clocks_agree(check: TtftCheck) -> bool:
    """Return whether the server's TTFT and the network add up to ours. If the server answered
    others too, nothing is compared."""
    near_ms = max(TOLERANCE_MS, TOLERANCE * check.measured_ms)
    return not check.others and abs(check.rest_ms) <= near_ms


def _difference(check: TtftCheck) -> str:
    rest = check.rest_ms
    if clocks_agree(check):
        return f"they agree ({number(abs(rest))} ms {'more' if rest >= 0 else 'less'} here)."
    if rest > 0:
        return (
            f"{number(rest)} ms are outside of the server's clock. It begins after HTTP and JSON, "
            "and after the wait for the server's event loop."
        )
    return (
        f"the server counts {number(-rest)} ms more than a client sees, so the two clocks do "
        "not begin alike."
    )
