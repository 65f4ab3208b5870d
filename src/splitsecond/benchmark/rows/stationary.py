"""Whether the server was in a steady state while it was measured: the checks that call a row "not
stationary".

Each round of an open loop begins with an empty server, whose queue grows to its steady length. In
heavy traffic it forgets its length with the time constant 4 × rate × variance of the wait (Abate
and Whitt, "Transient behavior of regulated Brownian motion", 1987; for random arrivals and lengths,
with constant lengths up to twice that). A few rounds cannot show a trend, but they show the wait:
the part of TTFT that a request shares with the next one, without slow times of the whole server,
which lengthen the streaming of responses in the same ratio.
"""

import math
from collections.abc import Sequence

import numpy as np

from splitsecond.benchmark.rows.check_inputs import CheckInputs
from splitsecond.benchmark.rows.figures import ttft_figure, wait_figure
from splitsecond.benchmark.statistics.steady import TimeWindows, done_ns, due_ns, mean_in_flight
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.grouping import grouped
from splitsecond.core.wording import change as signed
from splitsecond.core.wording import number
from splitsecond.log.statistics.summary import MIN_ROUNDS, Floats

NOT_STATIONARY = "not stationary"
MIN_WINDOW_RESPONSES = 12
"""Least measured time or warm-up of a round of an open loop, in the responses of the row: a queue
that is still growing makes them long against a round that was planned by a single response."""
MIN_WARMUP, GOOD_WARMUP = 5, 8
"""Least warm-up of a round, and the one to use, in time constants of the queue. A round that is too
short shows about half of the time constant."""
START_SHARE = 0.02
"""Largest time constant that needs no warm-up, as a share of the measured time of a round."""
ALIKE = 0.5
"""Least correlation of the TTFT of successive requests in a queue. Of requests that differ by
chance it is 0, of those that share slow minutes about 0.3."""
TREND = 0.15
"""Largest change from the first half of a window to the second half in a steady state."""
TREND_T = 4.6
"""Least ratio of such a change's mean over the rounds to its standard error: with five rounds,
steady states exceed it once in a hundred times (Student's t with four degrees of freedom)."""


def not_stationary(inputs: CheckInputs) -> str:
    # prompts grow with the turns of a session, and TTFT with them
    if inputs.findings.session is not None:
        return ""
    return _window_too_short(inputs) or _changed(inputs) or _slow_queue(inputs)


def from_empty(inputs: CheckInputs) -> str:
    window_s, warmup_s = _window_and_warmup_s(inputs)
    if inputs.asked.rate is None or not window_s:
        return ""
    return (
        f"the percentiles describe {number(window_s)} s of each round, after "
        f"{number(warmup_s)} s from an empty server."
    )


def _window_too_short(inputs: CheckInputs) -> str:
    window_s, warmup_s = _window_and_warmup_s(inputs)
    answered = [done_ns(o) - due_ns(o) for o in inputs.answered]
    response_s = float(np.mean(answered)) / NS_PER_S if answered else 0.0
    if inputs.asked.rate is None or max(window_s, warmup_s) >= MIN_WINDOW_RESPONSES * response_s:
        return ""
    return (
        f"{NOT_STATIONARY}: a round measures {number(window_s)} s, which is only "
        f"{number(window_s / response_s)} times as long as a response under this load (least: "
        f"{MIN_WINDOW_RESPONSES}), so its queue may still grow. Use a lower rate, or a larger -n "
        "and --warmup."
    )


def _changed(inputs: CheckInputs) -> str:
    windows, curve = inputs.load.steady, inputs.load.curve
    middle = (windows.begin + windows.end) // 2
    halves = [
        (
            TimeWindows(windows.begin[i : i + 1], middle[i : i + 1]),
            TimeWindows(middle[i : i + 1], windows.end[i : i + 1]),
        )
        for i in range(len(middle))
    ]
    figure = wait_figure(inputs.findings)
    timed = [(due_ns(o), value) for o in inputs.answered if (value := figure.value(o))]

    def mean_of_figure(window: TimeWindows) -> float | None:
        inside = [value for at, value in timed if window.begin[0] <= at <= window.end[0]]
        return float(np.mean(inside)) if inside else None

    def mean_level(window: TimeWindows) -> float | None:
        return mean_in_flight(curve, window)

    for what, mean in (
        ("the number of requests in flight", mean_level),
        (figure.label, mean_of_figure),
    ):
        pairs = [(mean(before), mean(after)) for before, after in halves]
        ratios = [after / before for before, after in pairs if before and after is not None]
        if change := _trend([math.log(ratio) for ratio in ratios if ratio > 0]):
            return (
                f"{NOT_STATIONARY}: from the first half of a round to the second, {what} changed "
                f"by {signed(change)} on average, so the figures depend on how long a round is. "
                "The server may not be able to handle the load."
            )
    return ""


def _trend(logs: Sequence[float]) -> float:
    if len(logs) < MIN_ROUNDS:
        return 0.0
    mean, error = float(np.mean(logs)), float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return math.expm1(mean) if abs(mean) > max(math.log1p(TREND), TREND_T * error) else 0.0


def _slow_queue(inputs: CheckInputs) -> str:
    rate = inputs.asked.rate
    if rate is None or inputs.searched:
        return ""
    window_s, warmup_s = _window_and_warmup_s(inputs)
    constant_s = _queue_s(inputs, rate)
    if constant_s <= max(warmup_s / MIN_WARMUP, window_s * START_SHARE):
        return ""
    return (
        f"{NOT_STATIONARY}: requests wait in a queue that changes over about {number(constant_s)} "
        f"s, and each round is measured only {number(warmup_s)} s after an empty server, so TTFT "
        "is likely too low. Use a lower rate, or --warmup "
        f"{math.ceil(rate * GOOD_WARMUP * constant_s):,}."
    )


def _queue_s(inputs: CheckInputs, rate: float) -> float:
    """Return the time constant of the queue in seconds; 0: requests do not wait for each other."""
    figure = ttft_figure(open_loop=True)
    timed = [
        (o.round, due_ns(o), ttft_ms, (o.last_token_ns - o.first_token_ns) / NS_PER_MS)
        for o in inputs.answered
        if (ttft_ms := figure.value(o))
        and o.first_token_ns is not None
        and o.last_token_ns is not None
    ]
    by_round = [np.array(sorted(each)) for each in grouped(timed, lambda one: one[0]).values()]
    if not by_round:
        return 0.0
    ttft_ms, streaming_ms = np.concatenate(by_round)[:, 2:].T
    pairs = np.concatenate([np.column_stack((each[:-1, 2], each[1:, 2:])) for each in by_round])
    if not len(pairs):
        return 0.0
    wait = _shared(pairs[:, 0], pairs[:, 1], ttft_ms, ttft_ms)
    if wait <= ALIKE * float(ttft_ms.var()):
        return 0.0
    slower = max(_shared(pairs[:, 0], pairs[:, 2], ttft_ms, streaming_ms), 0.0)
    if slower:
        wait -= slower * float(ttft_ms.mean() / streaming_ms.mean())
    return 4 * rate * max(wait, 0.0) / 1000**2


def _shared(before: Floats, after: Floats, of_before: Floats, of_after: Floats) -> float:
    """Return the covariance of a figure of requests with one of their successors, around the means
    of all requests."""
    return float(((before - of_before.mean()) * (after - of_after.mean())).mean())


def _window_and_warmup_s(inputs: CheckInputs) -> tuple[float, float]:
    """Return the mean measured time of a round, and the time from its first request to it, in
    seconds."""
    windows, starts = inputs.load.steady, inputs.load.starts
    if not len(windows.begin) or not len(starts):
        return 0.0, 0.0
    begin = starts[np.maximum(np.searchsorted(starts, windows.begin, side="right") - 1, 0)]
    both = (windows.end - windows.begin).mean(), (windows.begin - begin).mean()
    return float(both[0]) / NS_PER_S, float(both[1]) / NS_PER_S
