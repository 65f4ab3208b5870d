"""Rows of findings from the observations of a run.

A measured request that failed counts as slower than all others. A request that the user cancelled
is neither an error nor a success: it counts as load while it was in flight, and nowhere else.

The percentiles of a row that several nodes sent are those of all requests together, never averages.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict, replace

from splitsecond.benchmark.rows.check_inputs import CheckInputs
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS, ended, successful
from splitsecond.benchmark.rows.lateness import instrument_of, ordered_ms
from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings
from splitsecond.benchmark.rows.row_cost import with_cost
from splitsecond.benchmark.rows.row_fields import NodeFindings
from splitsecond.benchmark.rows.sessions import session_findings
from splitsecond.benchmark.rows.slo import Slo, share_of
from splitsecond.benchmark.rows.throughput import per_second
from splitsecond.benchmark.rows.usable_rows import load_order
from splitsecond.benchmark.rows.validity import invalid_of_node, invalid_reasons, notes
from splitsecond.benchmark.statistics.sessions import session_load
from splitsecond.benchmark.statistics.steady import (
    MeasuredLoad,
    TimeWindows,
    begin_ns,
    ended_in,
    in_flight,
    mean_in_flight,
    measured_load,
    tokens_in,
)
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import S_PER_HOUR, Prices
from splitsecond.core.observation import LOAD_ROLES, Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.timing.server_times import duration_ns, step_name
from splitsecond.core.wording import level, percent
from splitsecond.log.statistics.summary import Floats, percentile, ratio_interval

MAX_EFFICIENCY = 1.1
"""Most batching efficiency, divided by the concurrency. The bound is 1; the rest is allowed for
chance."""


def condition_findings(
    condition: AskedCondition,
    observations: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    slo: Slo | None = None,
    prices: Prices | None = None,
    of_round: int | None = None,
    *,
    searched: bool = False,
    summaries: bool = True,
) -> ConditionFindings:
    """Return the row of `condition`, from its own observations and readings.

    Observations with another role than measured, warm-up or cool-down count for the cost only.
    `batching_efficiency` needs other rows and stays None here. In intervals, a round counts as at
    most `of_round` independent requests. `searched`: the row is a step of a capacity search, which
    decides by rounds that are short on purpose. Without `summaries`, it has only what the verdict
    on the step needs: no summary of a figure, no token throughput and no interval of a fit.
    """
    sent = [o for o in observations if o.role in LOAD_ROLES]
    measured = ended(sent)
    ok = successful(measured)
    load = _load(condition, sent, readings)
    prices = prices or {}
    ended_per_s = request_rate(sent, measured, load, closed_loop=condition.concurrency is not None)
    error_kinds, error_examples = failures_by_kind(measured)

    findings = ConditionFindings(
        **_of_settings(condition),
        requests=len(measured),
        errors=sum(error_kinds.values()),
        error_kinds=error_kinds,
        error_examples=error_examples,
        warmups=sum(o.role == "warmup" for o in sent),
        cooldowns=sum(o.role == "cooldown" for o in sent),
        requests_per_s=ended_per_s * len(ok) / len(measured) if ended_per_s else ended_per_s,
        steady_s=load.steady.length_ns / NS_PER_S or None,
        **(_token_throughput(condition, sent, measured, load) if summaries else {}),
        goodput=slo.goodput(measured, ended_per_s, open_loop=condition.open_loop, of_round=of_round)
        if slo
        else None,
        **_token_counts(ok),
        **checked(ok, of_round),
        phases_ms={} if condition.inputs else phases_ms(ok),
        server_ms=server_ms(ok),
        session=session_findings(sent, prices, intervals=summaries),
        instrument=instrument_of(measured, readings, load, tokens_in(sent, load.whole)),
        **{
            name: figure.summarise(measured, of_round)
            for name, figure in FIGURES.items()
            if summaries
        },
    )
    inputs = CheckInputs(
        asked=condition,
        findings=findings,
        measured=measured,
        answered=ok,
        load=load,
        readings=readings,
        cancelled=sum(o.role == "measured" and o.outcome == "cancelled" for o in sent),
        searched=searched,
    )
    nodes = node_findings(inputs, sent)
    findings = replace(
        findings,
        nodes=nodes,
        invalid=invalid_reasons(inputs),
        notes=[*notes(inputs), *_notes_of_nodes(nodes)],
    )
    return with_cost(
        findings, observations, prices, hours=load.whole.length_ns / NS_PER_S / S_PER_HOUR
    )


def _of_settings(condition: AskedCondition) -> dict[str, Any]:
    left_out = ("output_tokens", "shared_blocks", "usage")
    return {name: value for name, value in asdict(condition).items() if name not in left_out}


def _load(
    condition: AskedCondition, sent: Sequence[Observation], readings: Sequence[InstrumentReading]
) -> MeasuredLoad:
    if condition.concurrency is not None and any(o.turn for o in sent):
        return session_load(sent, condition.concurrency, readings)
    return measured_load(sent, condition.concurrency, readings)


def _notes_of_nodes(nodes: Sequence[NodeFindings]) -> list[str]:
    return [
        f"the part of node {each.node} is INVALID: {reason}"
        for each in nodes
        for reason in each.invalid
    ]


def request_rate(
    sent: Sequence[Observation],
    measured: Sequence[Observation],
    load: MeasuredLoad,
    *,
    closed_loop: bool,
) -> float | None:
    """Return how many requests ended per second, failed ones included; None if none was measured,
    or the load was never at its target.

    In a closed loop: requests in flight ÷ mean time of a measured request (Little's law). Counting
    those that ended in the steady window would count the warm-ups and cool-downs that are shorter:
    up to 15% too many. In an open loop, and of sessions, which pause between requests: those that
    ended in the window ÷ its length.
    """
    if not measured:
        return None
    busy_ns = sum(o.end_ns - o.start_ns for o in measured)
    if closed_loop and busy_ns and not any(o.turn for o in sent):
        in_window = mean_in_flight(load.curve, load.steady)
        return None if in_window is None else per_second(in_window * len(measured), busy_ns)
    done = [o for o in sent if o.outcome != "cancelled"]
    return per_second(ended_in(done, load.steady), load.steady.length_ns)


def _token_throughput(
    condition: AskedCondition,
    sent: Sequence[Observation],
    measured: Sequence[Observation],
    load: MeasuredLoad,
) -> dict[str, Any]:
    if condition.inputs:
        return {}
    return {
        "output_tokens_per_s": per_second(tokens_in(sent, load.steady), load.steady.length_ns),
        "output_tokens_per_s_whole": per_second(tokens_in(sent, load.whole), load.whole.length_ns),
        **throughput_by_round(sent, measured, load.steady),
    }


def _token_counts(ok: Sequence[Observation]) -> dict[str, Any]:
    return {
        "input_tokens": _mean([o.input_tokens for o in ok]),
        "output_tokens": _mean([o.output_tokens for o in ok]),
        "cached_tokens": _mean([o.cached_tokens for o in ok]),
        "reasoning_tokens": _mean([o.reasoning_tokens for o in ok]),
        "tokens_per_event": tokens_per_event(ok),
        "token_source": ", ".join(sorted({o.token_source for o in ok if o.token_source})),
    }


def node_findings(inputs: CheckInputs, sent: Sequence[Observation]) -> list[NodeFindings]:
    names = {o.node for o in sent} | {reading.node for reading in inputs.readings}
    return [
        _part(name, inputs, [o for o in sent if o.node == name]) for name in sorted(names - {""})
    ]


def _part(name: str, inputs: CheckInputs, sent: Sequence[Observation]) -> NodeFindings:
    load = inputs.load
    if sent:
        load = replace(load, curve=in_flight(sent, open_loop=inputs.asked.open_loop))
    own = replace(
        inputs,
        measured=[o for o in inputs.measured if o.node == name],
        answered=[o for o in inputs.answered if o.node == name],
        readings=[reading for reading in inputs.readings if reading.node == name],
        load=load,
    )
    ttft_ms = ordered_ms([o.ttft_ns for o in own.answered if o.ttft_ns is not None])
    return NodeFindings(
        node=name,
        requests=len(own.measured),
        errors=len(own.measured) - len(own.answered),
        ttft_p50_ms=percentile(ttft_ms, 0.5) if len(ttft_ms) else None,
        clock_offset_ms=own.readings[0].clock_offset_ns / NS_PER_MS if own.readings else None,
        clock_error_ms=max(
            (reading.clock_error_ns / NS_PER_MS for reading in own.readings), default=None
        ),
        instrument=instrument_of(own.measured, own.readings, load, tokens_in(sent, load.whole)),
        invalid=invalid_of_node(own),
    )


def throughput_by_round(
    sent: Sequence[Observation], measured: Sequence[Observation], steady: TimeWindows
) -> dict[str, Any]:
    """Return the system tokens/s of each round and the 95% interval of their mean, as fields of a
    row.

    A steady window belongs to the round during which it has its middle.
    """
    spans: dict[int, tuple[int, int]] = {}
    for o in measured:
        first, last = spans.get(o.round, (begin_ns(o), o.end_ns))
        spans[o.round] = min(first, begin_ns(o)), max(last, o.end_ns)
    amounts: dict[int, tuple[float, float]] = {}
    for number, (first, last) in spans.items():
        middle = (steady.begin + steady.end) // 2
        inside = (middle >= first) & (middle <= last)
        windows = TimeWindows(steady.begin[inside], steady.end[inside])
        if number and windows.length_ns:
            own = [
                o for o in sent if o.end_ns >= windows.begin[0] and begin_ns(o) <= windows.end[-1]
            ]
            amounts[number] = tokens_in(own, windows), windows.length_ns / NS_PER_S
    tokens, seconds = (np.array([pair[i] for pair in amounts.values()]) for i in (0, 1))
    return {
        "output_tokens_per_s_ci95": ratio_interval(tokens, seconds),
        "output_tokens_per_s_rounds": {
            number: amount / s for number, (amount, s) in amounts.items()
        },
    }


def failures_by_kind(measured: Sequence[Observation]) -> tuple[dict[str, int], dict[str, str]]:
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for o in measured:
        if o.outcome == "failed":
            kind = o.fault.kind if o.fault else "unknown"
            counts[kind] += 1
            examples.setdefault(kind, o.fault.message if o.fault else "")
    return dict(counts.most_common()), {kind: text for kind, text in examples.items() if text}


def tokens_per_event(ok: Sequence[Observation]) -> float | None:
    counts = [
        (n, len(o.token_at)) for o in ok if (n := o.streamed_tokens) is not None and o.token_at
    ]
    events = sum(events for _, events in counts)
    return sum(n for n, _ in counts) / events if events else None


def phases_ms(ok: Sequence[Observation]) -> dict[str, float]:
    """Return the mean time of each phase of a request, in ms; together they add up to connecting
    plus E2E.

    "network" is the round-trip time of the connection, missing if it is unknown; "provider" is the
    rest of the TTFT; "streaming" runs from the first token to the last.
    """
    streamed = [o for o in ok if o.ttft_ns is not None and o.e2e_ns is not None]
    if not streamed:
        return {}
    ttft = _floats([o.ttft_ns for o in streamed])
    network = np.minimum(_floats([o.rtt_ns or 0 for o in streamed]), ttft)
    phases = {
        "dns": _floats([o.dns_ns for o in streamed]),
        "tcp": _floats([o.tcp_ns for o in streamed]),
        "tls": _floats([o.tls_ns for o in streamed]),
        "network": network,
        "provider": ttft - network,
        "streaming": _floats([o.e2e_ns for o in streamed]) - ttft,
    }
    if all(o.rtt_ns is None for o in streamed):
        del phases["network"]
    return {name: float(times.mean()) / NS_PER_MS for name, times in phases.items()}


def server_ms(ok: Sequence[Observation]) -> dict[str, float]:
    reported: defaultdict[str, list[float]] = defaultdict(list)
    for o in ok:
        for name, value in o.server_timings.items():
            if (took_ns := duration_ns(name, value)) is not None:
                reported[step_name(name)].append(took_ns / NS_PER_MS)
    return {name: float(np.median(values)) for name, values in reported.items()}


def _floats(values: Sequence[int | None]) -> Floats:
    return np.array(values, dtype=np.float64)


def _mean(values: Sequence[int | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def condition_rows(
    planned: Sequence[AskedCondition],
    observations: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    *,
    slo: Slo | None = None,
    prices: Prices | None = None,
    of_round: int | None = None,
    searched: bool = False,
) -> list[ConditionFindings]:
    """Return a row for each condition of `planned`, in that order, also if it has no observations.

    Targets in `prices` get their cost. `of_round` and `searched`: see `condition_findings`.
    """
    observed = grouped(observations, lambda o: o.condition)
    read = grouped(readings, lambda reading: reading.condition)
    rows = [
        condition_findings(
            a, observed[a.condition], read[a.condition], slo, prices, of_round, searched=searched
        )
        for a in planned
    ]
    computed = [total for total in TOTALS.values() if total.of]
    return [
        replace(row, **{total.name: total.value(row) for total in computed})
        for row in with_fallen(with_batching_efficiency(rows))
    ]


def with_batching_efficiency(rows: Sequence[ConditionFindings]) -> list[ConditionFindings]:
    """Return the rows with each target's system throughput divided by its own at concurrency 1, if
    both are known.

    No server gives more than the concurrency times as many tokens. A ratio slightly above it is
    chance and counts as the concurrency; beyond `MAX_EFFICIENCY`, one of the two rows is wrong, and
    the ratio stays None.
    """
    alone = {_key(row): row.output_tokens_per_s for row in rows if row.concurrency == 1}
    return [
        replace(row, batching_efficiency=min(row.output_tokens_per_s / one, row.concurrency))
        if row.concurrency is not None
        and row.output_tokens_per_s is not None
        and (one := alone.get(_key(row)))
        and row.output_tokens_per_s <= MAX_EFFICIENCY * row.concurrency * one
        else row
        for row in rows
    ]


def checked(ok: Sequence[Observation], of_round: int | None) -> dict[str, Any]:
    """Return the fields of a row about the answers that were checked."""
    answers = [o for o in ok if o.valid is not None]
    if not answers:
        return {}
    within = [(o.round, bool(o.valid)) for o in answers]
    return {
        "checked": len(answers),
        "valid_share": sum(each for _, each in within) / len(answers),
        "valid_share_ci95": share_of(answers, within, of_round),
    }


def with_fallen(rows: Sequence[ConditionFindings]) -> list[ConditionFindings]:
    """Return the rows, INVALID where the share of valid answers is surely below that of the same
    target at its lightest load: where their intervals do not touch."""
    lightest = {
        key: min(own, key=load_order)
        for key, own in grouped((row for row in rows if row.checked), _key).items()
    }
    return [_judged(row, lightest.get(_key(row))) for row in rows]


def _key(row: ConditionFindings) -> tuple[str, bool, str]:
    return row.target, row.cache_reuse, row.workload


def _judged(row: ConditionFindings, first: ConditionFindings | None) -> ConditionFindings:
    if first is None or row.valid_share is None or first.valid_share is None:
        return row
    high, low = row.valid_share_ci95[1], first.valid_share_ci95[0]
    if high is None or low is None or high >= low:
        return row
    reason = (
        f"the answers are worse under this load: {percent(row.valid_share)} are valid, "
        f"{percent(first.valid_share)} {level(first)}. This speed is not comparable."
    )
    return replace(row, invalid=[*row.invalid, reason])
