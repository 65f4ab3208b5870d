"""The points of a plot, computed from observations and few enough to fit in a page that opens on a
phone.

Nothing here grows with the number of tokens, and only up to a bound with the number of requests.
All values are in milliseconds or tokens per second and describe the requests that succeeded, as the
tables do.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.rows.figures import successful, wait_figure
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.server_view.samples import ServerSample, ServerSeries, source_with
from splitsecond.benchmark.server_view.terms import TERMS
from splitsecond.benchmark.statistics.steady import begin_ns
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import LOAD_ROLES, Observation
from splitsecond.core.timing.server_times import duration_ns, step_name
from splitsecond.log.statistics.summary import Floats

CURVE_POINTS = 110
DOTS = 120
SLOWEST = 10
BAND = (5, 95)

STAGES = {
    "dns": "DNS",
    "tcp": "TCP",
    "tls": "TLS",
    "network": "network",
    "provider": "provider",
    "streaming": "streaming",
}
"""The stages of `ConditionFindings.phases_ms`, in order, and their names in a report."""

SPLIT = ("network", "queue", "prefill", "rest")
"""The parts of TTFT where a server reports how long a request waited in its queue, or how long its
prefill took."""
QUEUE_NAMES = frozenset({"queue", "load"})
PREFILL_NAMES = frozenset({"prompt", "prompt_eval"})
"""What servers call them: Groq and Cerebras queue and prompt, llama.cpp prompt, Ollama load and
prompt_eval."""

STEPS = (
    "waiting to leave",
    "connecting",
    "until the response headers",
    "until the first token",
    "streaming",
)
"""What a single request does, in order. Counted from the end, steps and stages of the same place
share a colour."""

TURN_PARTS = (
    "tools",
    "network and queue",
    "other waiting",
    "reading new tokens",
    "cache miss",
    "generating",
)
"""What a turn of a session does, in order."""

Samples = Mapping[str, Sequence[Observation]]


class Step(Struct, frozen=True, kw_only=True):
    target: str
    which: str
    name: str
    begin_ms: float
    end_ms: float


def stages_of(run: Run) -> list[str]:
    return [
        stage
        for stage in STAGES
        if any(condition.phases_ms.get(stage) for condition in run.conditions)
    ]


def samples(run: Run, observations: Iterable[Observation]) -> dict[str, list[Observation]]:
    by_condition: dict[str, list[Observation]] = {
        condition.condition: [] for condition in run.conditions
    }
    for observation in successful(observations):
        if observation.condition in by_condition:
            by_condition[observation.condition].append(observation)
    return by_condition


def ttft_values(condition: ConditionFindings, observed: Sequence[Observation]) -> Floats:
    return wait_figure(condition).sample(observed).values


def ecdf(values: Floats) -> list[tuple[float, float]]:
    n = len(values)
    if n == 0:
        return []
    ordered = np.sort(values)
    indices = (
        np.arange(n)
        if n < CURVE_POINTS
        else np.linspace(0, n - 1, CURVE_POINTS - 1).round().astype(int)
    )
    return [(float(ordered[0]), 0.0), *((float(ordered[i]), (i + 1) / n) for i in indices.tolist())]


def band(values: Floats) -> tuple[float, float] | None:
    if not len(values):
        return None
    low, high = np.percentile(values, BAND)
    return float(low), float(high)


class LoadOverTime(Struct, frozen=True, kw_only=True):
    """The course of one condition, its rounds joined: the time between them is left out.

    `ttft`: pairs of the second at which a request was sent and its TTFT in ms, by the moment from
    which `rows.ttft` counts. `in_flight`: pairs of a second and the requests in flight from then
    on. `rounds`: where rounds begin, s. `server`: by term, pairs of a second and the server's value
    then; preemptions are counted from 0 on.
    """

    ttft: list[tuple[float, float]]
    in_flight: list[tuple[float, float]]
    rounds: list[float]
    server: dict[str, list[tuple[float, float]]] = {}


STRIPS = {
    "waiting": "waiting",
    "kv_use": "KV cache in use",
    "preemptions": "preemptions",
    "power_w": "power, W",
    "power_capped": "slowed by the power cap",
    "heat_capped": "slowed by heat",
}
"""What a server reported that is drawn over time, from top to bottom, with its name there."""


def over_time(
    condition: ConditionFindings,
    observations: Sequence[Observation],
    server: ServerSeries | None = None,
) -> LoadOverTime:
    figure = wait_figure(condition)
    by_round: dict[int, list[Observation]] = {}
    for o in observations:
        if o.role in LOAD_ROLES and o.start_ns:
            by_round.setdefault(o.round, []).append(o)
    ttft, changes, rounds, blocks, shift_ns = [], [], [], [], 0
    for _, block in sorted(by_round.items(), key=lambda item: min(map(begin_ns, item[1]))):
        begin = min(map(begin_ns, block))
        rounds.append(shift_ns / NS_PER_S)
        for o in block:
            at = (begin_ns(o) - begin + shift_ns) / NS_PER_S
            changes += [(at, 1), ((o.end_ns - begin + shift_ns) / NS_PER_S, -1)]
            value = figure.value(o)
            if o.role == "measured" and o.ok and value is not None:
                ttft.append((at, value))
        end = max(o.end_ns for o in block)
        blocks.append((begin, end, shift_ns - begin))
        shift_ns += end - begin
    sources = server.of_target(condition.target) if server else []
    reported = {term: points for term in STRIPS if (points := _reported(sources, term, blocks))}
    return LoadOverTime(
        ttft=thinned(sorted(ttft)),
        in_flight=steps_of(sorted(changes)),
        rounds=rounds,
        server=reported,
    )


def _reported(
    sources: Sequence[Sequence[ServerSample]], term: str, blocks: Sequence[tuple[int, int, int]]
) -> list[tuple[float, float]]:
    """Return the values of a term in the blocks of a row, which are (begin, end, what to add to a
    time), in ns.

    A counter shows by how much it grew in these blocks.
    """
    own = [sample for sample in source_with(term, sources) if term in sample.values]
    points: list[tuple[float, float]] = []
    grown = 0.0
    for begin, end, shift in blocks:
        inside = [s for s in own if begin <= s.at_ns <= end]
        if TERMS[term].kind == "counter":  # its readings at the edges belong to the block
            around = (
                [s for s in own if s.at_ns < begin][-1:]
                + inside
                + [s for s in own if s.at_ns > end][:1]
            )
            for before, sample in pairwise(around):
                grown += max(sample.values[term] - before.values[term], 0.0)
                points.append(((min(sample.at_ns, end) + shift) / NS_PER_S, grown))
        else:
            points += [
                ((sample.at_ns + shift) / NS_PER_S, sample.values[term]) for sample in inside
            ]
    if len(points) <= CURVE_POINTS:
        return points
    indices = np.linspace(0, len(points) - 1, CURVE_POINTS).round().astype(int)
    return [points[i] for i in indices.tolist()]


def joined_ns(requests: Sequence[Observation]) -> dict[int, int]:
    """Return for each round what to add to its times, so that rounds follow each other at once,
    from 0."""
    shift, end = {}, 0
    for number, own in sorted(grouped(requests, lambda o: o.round).items()):
        begin = min(o.start_ns for o in own)
        shift[number] = end - begin
        end += max(o.end_ns for o in own) - begin
    return shift


def thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= DOTS:
        return points
    slow = sorted(points, key=lambda point: point[1])[-DOTS // 10 :]
    others = np.linspace(0, len(points) - 1, DOTS - len(slow)).round().astype(int)
    return sorted({*slow, *(points[i] for i in others.tolist())})


def steps_of(changes: list[tuple[float, int]]) -> list[tuple[float, float]]:
    if not changes:
        return []
    part = (changes[-1][0] - changes[0][0]) / DOTS or 1.0
    largest: dict[int, float] = {}
    count = 0.0
    for at, change in changes:
        count += change
        place = int((at - changes[0][0]) / part)
        largest[place] = max(largest.get(place, 0.0), count)
    points: list[tuple[float, float]] = []
    for place, value in largest.items():
        if not points or value != points[-1][1]:
            points.append((changes[0][0] + place * part, value))
    return [*points, (changes[-1][0], points[-1][1])]


def split(condition: ConditionFindings, observed: Sequence[Observation]) -> dict[str, float]:
    """Return the parts of TTFT in ms: by the times in the responses, or else by the histograms of
    the server."""
    return _split_by_responses(observed) or _split_by_server(condition)


def _split_by_server(condition: ConditionFindings) -> dict[str, float]:
    """Divide the server's TTFT in the proportion of its queue and its prefill, which it counts of
    whole responses."""
    view = condition.server
    if (
        view is None
        or view.check is None
        or view.check.others
        or view.queue_ms is None
        or not view.prefill_ms
    ):
        return {}
    check = view.check
    queue_ms = check.server_ms * view.queue_ms / (view.queue_ms + view.prefill_ms)
    parts = (check.network_ms or 0.0, queue_ms, check.server_ms - queue_ms, max(check.rest_ms, 0.0))
    return dict(zip(SPLIT, parts, strict=True))


def _split_by_responses(observed: Sequence[Observation]) -> dict[str, float]:
    parts: list[tuple[float, ...]] = []
    for o in observed:
        times: dict[str, float] = {}
        for name, value in o.server_timings.items():
            if (took_ns := duration_ns(name, value)) is not None:
                times[step_name(name)] = took_ns / NS_PER_MS
        if o.ttft_ms is None or not times.keys() & (QUEUE_NAMES | PREFILL_NAMES):
            continue
        queue, prefill = (
            sum(times.get(name, 0.0) for name in names) for names in (QUEUE_NAMES, PREFILL_NAMES)
        )
        network = min((o.rtt_ns or 0) / NS_PER_MS, o.ttft_ms)
        parts.append((network, queue, prefill, max(o.ttft_ms - network - queue - prefill, 0.0)))
    return dict(zip(SPLIT, np.mean(parts, axis=0).tolist(), strict=True)) if parts else {}


def waterfall(target: str, observed: Sequence[Observation]) -> list[Step]:
    whole = by_duration(observed)
    if not whole:
        return []
    chosen = {"typical": whole[(len(whole) - 1) // 2], "slowest": whole[-1]}
    if len(whole) == 1:
        del chosen["slowest"]
    return [step for which, one in chosen.items() for step in steps(target, which, one)]


def by_duration(observed: Sequence[Observation]) -> list[Observation]:
    return sorted(
        (o for o in observed if o.last_token_ns is not None and o.sent_ns is not None),
        key=_duration,
    )


def _begin(observation: Observation) -> int:
    assert observation.sent_ns is not None
    return observation.due_ns or observation.start_ns or observation.sent_ns


def _duration(observation: Observation) -> int:
    assert observation.last_token_ns is not None
    return observation.last_token_ns - _begin(observation)


def steps(target: str, which: str, one: Observation) -> list[Step]:
    begin, sent = _begin(one), one.sent_ns or 0
    connecting = min(one.dns_ns + one.tcp_ns + one.tls_ns, max(sent - begin, 0))
    ends = (sent - connecting, sent, one.head_ns or sent, one.first_token_ns, one.last_token_ns)
    timeline, at = [], begin
    for name, end in zip(STEPS, ends, strict=True):
        if end is not None and end > at:
            span = {"begin_ms": (at - begin) / NS_PER_MS, "end_ms": (end - begin) / NS_PER_MS}
            timeline.append(Step(target=target, which=which, name=name, **span))
            at = end
    return timeline
