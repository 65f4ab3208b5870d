"""Capacity of a server: the verdict on each step of a search, and the conclusion from all steps.

`proportion` decides whether the share of requests that meet the limits is surely as high as
required, by the scatter between batches of requests (`batches_of`). Failures count as independent,
so that a search soon stops sending to a server that fails; a refusal of excess load (429, 503) only
missed its limit. An INVALID row shows nothing about the server, unless it is only not stationary:
then the load may fail, but never holds.

Where sessions fail, what the server computes again, although its prompt cache should have had it,
tells eviction from computing. The server's own series tells the other causes (`causes`). The knee
is the lightest load for which every clearly heavier one has little more throughput.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from splitsecond.benchmark.findings.causes import (
    cause_of_row,
    evidence,
    throttled_by,
    with_evidence,
)
from splitsecond.benchmark.rows.figures import ended, ttft_figure
from splitsecond.benchmark.rows.records import (
    Capacity,
    CapacityCause,
    CapacityStep,
    ConditionFindings,
)
from splitsecond.benchmark.rows.slo import Slo
from splitsecond.benchmark.rows.stationary import NOT_STATIONARY
from splitsecond.benchmark.rows.usable_rows import load_of
from splitsecond.benchmark.statistics.search import Edges, Verdict, edges
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import usd
from splitsecond.core.observation import Observation
from splitsecond.core.wording import (
    Statement,
    change,
    counted,
    counted_as,
    in_a_line,
    level,
    limits,
    listed,
    load,
    number,
    percent,
    ratio,
)
from splitsecond.log.statistics.proportion import Batches, decided
from splitsecond.log.statistics.summary import MIN_ROUNDS

SHEDDING = ("http_429", "http_503", "overloaded")
"""Kinds of errors by which a server, or our own limit on requests in flight, refuses excess
load."""
HEAVIER = 1.25
"""From this multiple of a load on, throughput should be higher if more is available."""
RECOMPUTED = 0.5
"""Tokens that a load adds to those that are computed again, as a multiple of the new ones, by which
it is eviction that fails it."""
SATURATED = 1 / 3
"""Throughput that grows like this power of the load, or less, grows slowly: a quarter more with
twice the load."""
SAME_THROUGHPUT = 0.05
"""Growth beyond the knee up to which throughput is saturated."""

PASSED: tuple[Verdict, ...] = ("holds", "promising")

Row = ConditionFindings


def batches_of(observations: Sequence[Observation], slo: Slo, *, open_loop: bool) -> Batches:
    """Return the measured requests of a step in consecutive batches: its rounds, at least
    `MIN_ROUNDS` batches.

    Fewer rounds are divided into parts of equal size, but not those of sessions: all turns of a
    round belong to the same few sessions, whose prompts fit into the server's cache together, or do
    not.
    """
    ordered = sorted(ended(observations), key=lambda o: (o.round, o.due_ns or o.start_ns))
    rounds = grouped(ordered, lambda o: o.round)
    whole = len(rounds) >= MIN_ROUNDS or any(o.turn for o in ordered)
    parts = 1 if whole else math.ceil(MIN_ROUNDS / max(len(rounds), 1))
    batches = [
        [
            slo.met_by(o, open_loop=open_loop)
            for o in sent[len(sent) * part // parts : len(sent) * (part + 1) // parts]
        ]
        for sent in rounds.values()
        for part in range(parts)
    ]
    batches = [batch for batch in batches if batch]
    return Batches([sum(batch) for batch in batches], [len(batch) for batch in batches], parts == 1)


def judge(row: Row, batches: Batches, share: float) -> Verdict:
    """Return whether at least `share` of the requests (`batches_of`) met their limits (see
    `search.Verdict`)."""
    sent = row.goodput.sent if row.goodput else 0
    shed = sum(count for kind, count in row.error_kinds.items() if kind in SHEDDING)
    if decided(sent - row.errors + shed, sent, share) == "below":
        return "breaks"
    if decided(sent - row.errors, sent, share) == "below":
        return "fails"
    if row.goodput is None or any(not reason.startswith(NOT_STATIONARY) for reason in row.invalid):
        return "invalid"
    decision = batches.decided(share)
    if decision == "below":
        return "fails"
    if row.invalid or row.goodput.met < share * sent:
        return "undecided"
    return "holds" if decision == "above" else "promising"


def capacity_of(
    rows: Sequence[Row], observations: Sequence[Observation], slo: Slo, share: float
) -> Capacity | None:
    if not rows:
        return None
    judged = [
        _step(row, [o for o in observations if o.condition == row.condition], slo, share)
        for row in rows
    ]
    verdicts = {step.load: verdict for step, verdict in judged}
    bounds = edges(verdicts)
    return Capacity(
        target=rows[0].target,
        limits=slo.limits,
        use=slo.use,
        share=share,
        open_loop=rows[0].concurrency is None,
        steps=[step for step, _ in judged],
        holds=bounds.holds,
        ceiling=bounds.ceiling,
        why=verdicts[bounds.ceiling] if bounds.ceiling is not None else "",
        undecided=bounds.undecided,
        likely=max(
            (each for each in bounds.undecided if verdicts[each] == "promising"), default=None
        ),
        cause=_cause_at_ceiling(bounds, verdicts, rows),
        knee=knee_of([row for row in rows if not row.invalid]),
    )


def _step(
    row: Row, observations: Sequence[Observation], slo: Slo, share: float
) -> tuple[CapacityStep, Verdict]:
    missed: Counter[str] = Counter()
    for o in ended(observations):
        missed.update(slo.missed_by(o, open_loop=row.concurrency is None) if o.ok else ("errors",))
    met, sent = (row.goodput.met, row.goodput.sent) if row.goodput else (0, 0)
    batches = batches_of(observations, slo, open_loop=row.concurrency is None)
    verdict = judge(row, batches, share)
    step = CapacityStep(
        condition=row.condition,
        load=load_of(row),
        verdict=verdict,
        met=met,
        sent=sent,
        share_ci98=batches.bounds,
        missed=dict(missed.most_common()),
    )
    return step, verdict


def _cause_at_ceiling(
    bounds: Edges, verdicts: Mapping[float, Verdict], rows: Sequence[Row]
) -> CapacityCause:
    """Return what limits the server at the ceiling, compared with the heaviest load that passed."""
    if not bounds.ceiling:
        return ""
    by_load = {load_of(row): row for row in rows}
    lighter = [each for each in (bounds.holds, *bounds.undecided) if each is not None]
    passed = [by_load[each] for each in lighter if verdicts[each] in PASSED]
    return cause_of(by_load[bounds.ceiling], passed[-1] if passed else None)


def cause_of(failed: Row, passed: Row | None) -> CapacityCause:
    """Return what limits the server: eviction, by the usage of sessions, before what its own series
    shows."""
    more, less = computed_again(failed), computed_again(passed) if passed is not None else None
    both_known = more is not None and less is not None
    if more is not None and less is not None and more - less >= RECOMPUTED:
        return "eviction"
    return cause_of_row(failed) or ("computing" if both_known else "")


def computed_again(row: Row) -> float | None:
    """Return the tokens that should have been in the prompt cache and were not ÷ the new ones; None
    if unknown."""
    if row.session is None:
        return None
    cached, ideal = row.session.cached_share.value, row.session.ideal_cached_share.value
    return None if cached is None or ideal is None or ideal == 1 else (ideal - cached) / (1 - ideal)


def knee_of(rows: Sequence[Row]) -> float | None:
    speeds = {load_of(row): row.output_tokens_per_s for row in rows if row.output_tokens_per_s}
    for lighter, speed in sorted(speeds.items()):
        heavier = [
            (other / lighter, more / speed)
            for other, more in speeds.items()
            if other >= HEAVIER * lighter
        ]
        if heavier and all(growth < times**SATURATED for times, growth in heavier):
            return lighter
    return None


def capacity_statements(search: Capacity, rows: Sequence[Row]) -> list[Statement]:
    by_load = {load_of(row): row for row in rows}
    steps = {step.load: step for step in search.steps}
    sentences = [
        Statement(
            " ".join(_capacity(search, by_load, steps)),
            "\n".join(_capacity(search, by_load, steps, short=True)),
        )
    ]
    if search.ceiling is not None:
        sentences += _bottleneck(search.why, steps[search.ceiling], by_load[search.ceiling])
        sentences += _cause(search, by_load[search.ceiling], by_load)
    if search.holds is not None:
        sentences.append(_at_capacity(by_load[search.holds]))
    return sentences + _saturation(search, by_load)


def _capacity(
    search: Capacity,
    rows: Mapping[float, Row],
    steps: Mapping[float, CapacityStep],
    *,
    short: bool = False,
) -> list[str]:
    target, lightest = search.target, min(steps)
    within = (
        f"with {limits(search.limits)} in {percent(search.share)}{'' if short else ' of requests'}"
    )
    ceiling = (
        steps[search.ceiling] if search.ceiling is not None and search.why != "invalid" else None
    )
    likely = search.likely if search.holds is not None else None
    unsure = [_with_count(steps[each]) for each in search.undecided if each != likely]
    undecided = (
        [in_a_line("Undecided: ", unsure) if short else f"Undecided: {listed(unsure)}."]
        if unsure
        else []
    )
    if search.holds is not None:
        handled = (
            f"{load(rows[search.holds], short=short)} {within} ({_count(steps[search.holds])})"
        )
        end = _end(search, ceiling, short=short)
        also = [] if likely is None else [f"Likely also {_with_count(steps[likely])}."]
        return [f"{target} handles {handled}{end}.", *also, *undecided]
    if unsure:
        certain = f"It is not certain that {target} handles any load {within}"
        if ceiling is None:
            return [f"{certain}.", *undecided]
        too_much = f"{_with_count(ceiling)} is too much."
        return (
            [f"{certain}.", *undecided, too_much]
            if short
            else [f"{certain}; {too_much}", *undecided]
        )
    if search.why == "invalid":
        return [
            f"The capacity of {target} is unknown: the figures "
            f"{level(rows[lightest], short=short)} are INVALID."
        ]
    return [
        f"{target} does not even handle {load(rows[lightest], short=short)} {within} "
        f"({_count(steps[lightest])})."
    ]


def _end(search: Capacity, ceiling: CapacityStep | None, *, short: bool) -> str:
    """Return where the loads end that a target handles: at one that is too much, or with the
    search."""
    if ceiling:
        return f", not {_with_count(ceiling)}"
    if search.undecided or search.ceiling is not None:
        return ""
    if short:
        return ", the --to limit"
    return ", the heaviest load of this search: use --to for heavier ones"


def _with_count(step: CapacityStep) -> str:
    return f"{step.load:g} ({_count(step)})"


def _count(step: CapacityStep) -> str:
    return f"{step.met:,} of {step.sent:,}"


def _bottleneck(why: str, step: CapacityStep, row: Row) -> list[Statement]:
    where, short = level(row).capitalize(), load(row, short=True)
    if why == "invalid":
        return [
            Statement(
                f"{where} the figures are INVALID, so it is unknown whether that load is handled: "
                f"{row.invalid[0]}",
                f"{short} is INVALID: {row.invalid[0]}",
            )
        ]
    if why == "breaks":
        failed = f"{row.errors:,} of {counted_as(row.requests, 'request')} failed"
        kinds = counted(row.error_kinds)
        return [
            Statement(
                f"{where} the server broke, and the search ended: {failed} ({kinds}).",
                f"{short}, the server broke: {failed} ({kinds}).",
            )
        ]
    if not step.missed:
        return []
    (first, most), *others = step.missed.items()
    shares = [f"{most:,} of {counted_as(step.sent, 'request')} missed {_limit(first)}"]
    shares += [f"{count:,} missed {_limit(name)}" for name, count in others]
    bottleneck = f"The bottleneck is {_limit(first)}:"
    return [
        Statement(
            f"{bottleneck} {level(row)}, {listed(shares)}.",
            in_a_line(f"{bottleneck} at {short}, ", shares),
        )
    ]


def _cause(search: Capacity, failed: Row, rows: Mapping[float, Row]) -> list[Statement]:
    own = _own_cause(search, failed)
    if search.cause in ("memory", "slots", "throttling"):
        return own
    session, again = failed.session, computed_again(failed)
    passed = search.likely or search.holds
    if not search.cause or session is None or again is None or passed is None:
        return own
    gave, before = (
        percent(round(each.session.cached_of_ideal.value or 0.0, 2)) if each.session else ""
        for each in (failed, rows[passed])
    )
    ratios, short = (
        f"cache gave {gave} of the ideal {level(failed, short=form)}, {before} "
        f"{level(rows[passed], short=form)}"
        for form in (False, True)
    )
    if search.cause == "computing":
        cause = "The cause is computing, not eviction"
        return [Statement(f"{cause}: the prompt {ratios}.", f"{cause}: the {short}.")]
    missed = f"{session.misses:,} of {counted_as(session.reusing, 'turn')} missed it"
    computed = f"{number(again)} cached tokens were computed again for each new one"
    return [
        Statement(
            f"The cause is eviction: the prompt {ratios}. There {missed}, and {computed}.",
            f"The cause is eviction: the {short}.\n{missed}; {computed}.",
        )
    ]


def _own_cause(search: Capacity, failed: Row) -> list[Statement]:
    view = failed.server
    if view is None or search.cause in ("", "eviction"):
        return []
    cause = {
        "memory": "The KV cache is full, so requests wait",
        "slots": "Requests wait for a free place in the batch",
        "throttling": "The GPUs are throttled",
        "computing": "No request waits, so computing takes the time",
    }[search.cause]
    reported = [*evidence(view), *throttled_by(view)]
    return [with_evidence(f"{cause} {level(failed)}", reported)]


def _limit(name: str) -> str:
    return "a response" if name == "errors" else name.upper()


def _at_capacity(row: Row) -> Statement:
    ttft = ttft_figure(open_loop=row.concurrency is None).summary(row)
    parts = [
        f"{number(row.output_tokens_per_s)} system tokens/s" if row.output_tokens_per_s else "",
        f"{number(row.goodput.per_s)} good requests/s" if row.goodput and row.goodput.per_s else "",
        f"TTFT p95 {number(ttft.p95)} ms" if ttft.p95 is not None else "",
        f"TPS p50 {number(row.tps.p50)}" if row.tps.p50 is not None else "",
    ]
    delivers = ", ".join(filter(None, parts))
    cost = usd(row.usd_per_million_output) if row.usd_per_million_output is not None else ""
    return Statement(
        f"{level(row).capitalize()} it delivers "
        f"{delivers}{f', {cost} per million output tokens' if cost else ''}.",
        f"{load(row, short=True)}: {delivers}{f', {cost}/M output' if cost else ''}.",
    )


def _saturation(search: Capacity, rows: Mapping[float, Row]) -> list[Statement]:
    speeds = {
        at: row.output_tokens_per_s
        for at, row in rows.items()
        if row.output_tokens_per_s and not row.invalid
    }
    if len(speeds) < 2:
        return []
    most = max(speeds, key=lambda at: speeds[at])
    if search.knee is None:
        return [
            Statement(
                f"System tokens/s grow up to {load(rows[most])}: "
                f"{number(speeds[most])}{_batching(rows[most])}."
            )
        ]
    knee = f"{number(speeds[search.knee])}{_batching(rows[search.knee])}"
    grown = speeds[most] / speeds[search.knee] - 1
    if grown < SAME_THROUGHPUT:
        return [Statement(f"System tokens/s saturate at {load(rows[search.knee])}: {knee}.")]
    beyond = f"{number(speeds[most])} at {load(rows[most])} ({change(grown)})"
    return [
        Statement(
            f"System tokens/s grow slowly beyond {load(rows[search.knee])}: {knee}, and {beyond}."
        )
    ]


def _batching(row: Row) -> str:
    gained = row.batching_efficiency if row.concurrency != 1 else None
    return f", {ratio(gained)} times those of concurrency 1" if gained else ""
