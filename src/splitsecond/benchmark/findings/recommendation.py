"""Recommendation of targets for a use, from measured requests: of a run, or of the gateway's log.

A target meets the limit of a use (`core.timing.uses`) if the whole 95% interval of its percentile
does, and misses it if none of the interval does; between the two, the requests cannot tell yet. One
with more than one failed request in twenty misses it.

A run judges targets at its heaviest load where many users wait at once; at the lightest for
completion, because one user waits for one request; for a batch, where a dollar buys most tokens,
and among such loads at the one with the highest throughput. A target without a usable row there is
judged at its nearest lighter load, and its verdict is "unsure" at best.

In a log, prices are compared at the mix of input and output of all targets, and the time of an
agent is computed from the medians of TTFT and TPS.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.benchmark.findings.evidence import Evidence
from splitsecond.benchmark.findings.verdicts import MISSES
from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.records import Recommendation, TargetRating
from splitsecond.benchmark.rows.slo import limited
from splitsecond.core.errors import CallerFault
from splitsecond.core.grouping import grouped
from splitsecond.core.timing.uses import USES, Use
from splitsecond.core.wording import Statement, change, counted_as, listed, number, percent
from splitsecond.log.statistics.summary import PERCENTILES, Interval, advised

SCHEMA = "splitsecond.recommend/2"
Keeps = Literal["yes", "unsure", "no"]
SAME_VALUE = 0.98
"""Share of the most tokens per dollar that counts as the same: prompts and responses differ a
little between rows."""
MIN_REQUESTS = 20
"""Below so many requests, a target is not recommended."""
_ORDER: dict[str, int] = {"yes": 0, "unsure": 1, "no": 2}


class AtLoad(Struct, frozen=True):
    """A load at which targets are to be judged: a concurrency (`closed`), or a rate in
    requests/s."""

    amount: float
    closed: bool

    def __str__(self) -> str:
        return f"concurrency {self.amount:g}" if self.closed else f"{self.amount:g} requests/s"


def recommend(
    evidence: Sequence[Sequence[Evidence]],
    uses: Sequence[str] = tuple(USES),
    at: AtLoad | None = None,
) -> list[Recommendation]:
    """Return the recommendation for each of `uses` on each workload. `at`: the load that decides
    all uses; None: that of the use. Workloads that were not measured at `at` are left out.

    Raises `CallerFault` if no target was measured at `at`.
    """
    measured = _measured(evidence)
    if at is not None and at not in measured:
        raise CallerFault(
            f"no target was measured at {at}",
            kind="no_load",
            hint=f"Targets were measured at {listed([str(each) for each in measured])}.",
        )
    by_workload = grouped(evidence, lambda loads: loads[0].workload)
    return [
        _for_use(name, workload, own, at)
        for name in uses
        for workload, own in (by_workload or {"": []}).items()
        if at is None or at in _measured(own)
    ]


def _measured(evidence: Sequence[Sequence[Evidence]]) -> list[AtLoad]:
    return sorted({_load_at(each) for loads in evidence for each in loads}, key=_by_load)


def _for_use(
    name: str, workload: str, evidence: Sequence[Sequence[Evidence]], at: AtLoad | None
) -> Recommendation:
    use = USES[name]
    heaviest = at or max(_measured(evidence), key=_by_load, default=None)
    rated = [_rated(each, use, at, heaviest) for each in evidence]
    apart = _counted_differently(rated, evidence, use) | _of_unknown_ability(rated, evidence)
    rated = [
        replace(r, keeps="unsure", why=apart[r.target]) if r.target in apart else r for r in rated
    ]
    ordered = sorted(
        rated, key=lambda r: (_ORDER[r.keeps], r.target in apart, _beyond(use, r), *_rank(r, use))
    )
    comparable = [r for r in ordered if r.target not in apart]
    chosen = _chosen(use, comparable)
    by_name = sorted((r for r in chosen if r.quality is not None), key=lambda r: r.target)
    cheapest = _least(chosen, lambda r: r.usd_per_million)
    return Recommendation(
        use=name,
        workload=workload,
        limits=use.limits,
        percentile=use.percentile,
        good_ms=use.good_ms,
        by=use.by,
        fastest=chosen[0].target if chosen else "",
        cheapest=cheapest,
        smallest=_least(by_name, lambda r: r.billions),
        policy=_policy(name, use, [r.target for r in chosen], priced=bool(cheapest)),
        would_change=_would_change(use, chosen, [r for r in comparable if r not in chosen]),
        candidates=ordered,
        may_be_first=_may_be_first(use, comparable) if chosen else [],
        quality_front=_quality_front(ordered, use),
    )


def _chosen(use: Use, ranked: Sequence[TargetRating]) -> list[TargetRating]:
    """Return those that can be recommended: none is surer to meet the limit than they are."""
    surest = ranked[0].keeps if ranked else "no"
    return [
        r
        for r in ranked
        if r.keeps == surest != "no" and r.requests >= MIN_REQUESTS and not _beyond(use, r)
    ]


def _quality_front(rated: Sequence[TargetRating], use: Use) -> list[str]:
    """Return the scored targets that no other beats by the figure of the use and by its score; none
    below two targets."""
    _, of, _ = _RANKED[use.by]
    scored = [(r, _rank(r, use), r.quality) for r in rated if r.quality is not None and of(r)]
    if len(scored) < 2:
        return []
    best = [
        (r, rank)
        for r, rank, score in scored
        if not any(
            other_rank <= rank and other >= score and (other_rank, other) != (rank, score)
            for _, other_rank, other in scored
        )
    ]
    return [r.target for r, _ in sorted(best, key=lambda pair: pair[1])]


def quality_sentence(choice: Recommendation) -> str:
    if not choice.quality_front:
        return ""
    label, of, words = _RANKED[choice.by]
    rated = {r.target: r for r in choice.candidates}
    front = [
        f"{name} ({label} {words(of(rated[name]) or 0.0)}, score {rated[name].quality:g})"
        for name in choice.quality_front
    ]
    return f"No other target beats {listed(front, 'or')} in both {label} and score."


def quality_points(choice: Recommendation) -> tuple[str, list[tuple[str, float, float]]]:
    """Return the name of the figure of a use, and target, figure and score of each target that has
    both."""
    label, of, _ = _RANKED[choice.by]
    points = [
        (r.target, value, r.quality)
        for r in choice.candidates
        if r.quality is not None and (value := of(r))
    ]
    return label, points


def _least(ratings: Sequence[TargetRating], of: Callable[[TargetRating], float | None]) -> str:
    values = [(value, at, r.target) for at, r in enumerate(ratings) if (value := of(r)) is not None]
    return min(values)[2] if values else ""


def _rated(
    loads: Sequence[Evidence], use: Use, at: AtLoad | None, heaviest: AtLoad | None
) -> TargetRating:
    verdicts = [_verdict(each, use) for each in loads]
    place, required = _judged_load(loads, verdicts, use, at, heaviest)
    judged, (keeps, why) = loads[place], verdicts[place]
    if required is not None and keeps != "no":
        keeps, why = "unsure", f"it has no valid row at {required}"
    reached = next((i for i, (each, _) in enumerate(verdicts) if each == "no"), len(loads))
    value, interval = _limited(judged, use)
    return TargetRating(
        target=judged.target,
        keeps=keeps,
        why=why,
        load=judged.load,
        up_to=loads[reached - 1].load if reached and use.limit is not None else "",
        value=value,
        ci95=interval,
        ttft_p95_ms=judged.figures["ttft_ms"].p95,
        tps=judged.figures["tps"].p50,
        agent_ms=judged.figures["agent_ms"].p50,
        tokens_per_s=judged.tokens_per_s,
        tokens_per_usd=judged.tokens_per_usd,
        usd_per_million=judged.usd_per_million,
        quality=judged.quality,
        billions=judged.billions,
        requests=judged.requests,
        rows=[each.row for each in loads if each.row],
        rank_ci95=_rank_interval(judged, use),
    )


def _judged_load(
    loads: Sequence[Evidence],
    verdicts: Sequence[tuple[Keeps, str]],
    use: Use,
    at: AtLoad | None,
    heaviest: AtLoad | None,
) -> tuple[int, AtLoad | None]:
    """Return which of `loads` decides, and the load that should decide if the target was not
    measured at it."""
    if at is None and use.limit is None:
        return _cheapest_load(loads, verdicts), None
    if heaviest is None or (at is None and use.alone):
        return 0, None
    lighter = [i for i, each in enumerate(loads) if _by_load(_load_at(each)) <= _by_load(heaviest)]
    place = max(lighter, default=0)
    return place, None if _load_at(loads[place]) == heaviest else heaviest


def _load_at(evidence: Evidence) -> AtLoad:
    return AtLoad(evidence.amount, evidence.closed)


def _by_load(load: AtLoad) -> tuple[bool, float]:
    return not load.closed, load.amount


def _rank_interval(evidence: Evidence, use: Use) -> Interval:
    if use.by != "tokens_per_usd":
        return evidence.figures[use.by].interval("p95" if use.by == "ttft_ms" else "p50")
    value, speed, (low, high) = (
        evidence.tokens_per_usd,
        evidence.tokens_per_s,
        evidence.tokens_per_s_ci95,
    )
    if value and evidence.by_token:
        return value * SAME_VALUE, value / SAME_VALUE
    if not speed or low is None or high is None:
        return None, None
    return (low, high) if value is None else (value * low / speed, value * high / speed)


def _may_be_first(use: Use, ordered: Sequence[TargetRating]) -> list[str]:
    """Return the first target, and those that chance may have put behind it."""
    first, *others = ordered
    return [
        first.target,
        *(r.target for r in others if not (_is_out(r, first, use) or _behind(r, first, use))),
    ]


def _is_out(r: TargetRating, first: TargetRating, use: Use) -> bool:
    """Return whether the target cannot be first, as it misses the limit that the first target meets
    for certain."""
    # the last: it is out for another reason
    if r.keeps != "no" or r.value is None or _within(use, r.value):
        return r.keeps == "no"
    best = r.ci95[1 if use.limit and use.limit[0] == "tps" else 0]
    return first.keeps == "yes" and best is not None and not _within(use, best)


def _behind(r: TargetRating, first: TargetRating, use: Use) -> bool:
    (low, high), (first_low, first_high) = r.rank_ci95, first.rank_ci95
    if use.by in ("tps", "tokens_per_usd"):
        return high is not None and first_low is not None and high < first_low
    return low is not None and first_high is not None and low > first_high


def _cheapest_load(loads: Sequence[Evidence], verdicts: Sequence[tuple[Keeps, str]]) -> int:
    able = [i for i, (keeps, _) in enumerate(verdicts) if keeps != "no"]
    most = max((loads[i].tokens_per_usd or 0.0 for i in able), default=0.0)
    equal = [i for i in able if (loads[i].tokens_per_usd or 0.0) >= SAME_VALUE * most]
    return max(equal, key=lambda i: loads[i].tokens_per_s or 0.0, default=0)


def _counted_differently(
    rated: Sequence[TargetRating], evidence: Sequence[Sequence[Evidence]], use: Use
) -> dict[str, str]:
    """Return the targets that cannot be ranked beside the others, as their tokens are counted
    differently, and why.

    Those whose tokens the server counted (`usage`) are ranked.
    """
    source_of = {loads[0].target: loads[0].token_source for loads in evidence}
    able = [source for r in rated if r.keeps != "no" and (source := source_of[r.target])]
    if use.by == "ttft_ms" or not able:
        return {}
    first = max(able, key=lambda source: (source == "usage", able.count(source)))
    return {
        r.target: f"its tokens are counted by {source}, those of others by {first}"
        for r in rated
        if r.keeps != "no" and (source := source_of[r.target]) not in ("", first)
    }


def _of_unknown_ability(
    rated: Sequence[TargetRating], evidence: Sequence[Sequence[Evidence]]
) -> dict[str, str]:
    unknown = {loads[0].target: loads[0].unknown for loads in evidence}
    return {r.target: why for r in rated if r.keeps != "no" and (why := unknown[r.target])}


def _limited(evidence: Evidence, use: Use) -> tuple[float | None, Interval]:
    if use.limit is None:
        return None, (None, None)
    summary = evidence.figures[_figure(use)]
    value: float | None = getattr(summary, use.percentile)
    return value, summary.interval(use.percentile)


def _figure(use: Use) -> str:
    return limited(use.limit[0], open_loop=False).name if use.limit else ""


def _verdict(evidence: Evidence, use: Use) -> tuple[Keeps, str]:
    if evidence.refused:
        return "no", evidence.refused
    if evidence.error_share > MISSES:
        return "no", f"{percent(evidence.error_share)} of its requests failed"
    if evidence.requests < MIN_REQUESTS:
        return (
            "unsure",
            f"only {counted_as(evidence.requests, 'request')}, fewer than {MIN_REQUESTS}",
        )
    if use.limit is None:
        return "yes", ""
    name, limit = use.limit
    figure, at = FIGURES[_figure(use)], use.percentile
    value, (low, high) = _limited(evidence, use)
    if value is None:
        return "no", f"its {figure.label} {at} is unknown"
    sign = -1 if figure.higher_is_better else 1
    best, worst = (high, low) if figure.higher_is_better else (low, high)
    if sign * value > sign * limit:
        measured = f"its {figure.label} {at} is {figure_words(name, value)}"
        if best is None or sign * best > sign * limit:
            return "no", measured
        return "unsure", f"{measured}, and may be {figure_words(name, best)}"
    if worst is None:
        more = advised(PERCENTILES[at])
        return (
            "unsure",
            f"its {figure.label} {at} has no interval yet; "
            f"{counted_as(more, 'request')} give it one",
        )
    if sign * worst > sign * limit:
        return "unsure", f"its {figure.label} {at} may be {figure_words(name, worst)}"
    return "yes", ""


def figure_words(name: str, value: float) -> str:
    if name == "agent":
        return f"{number(value / 1000)} s"
    return f"{number(value)} {'tokens/s' if name == 'tps' else 'ms'}"


def limit_words(use: str, *, brief: bool = False) -> str:
    needs = USES[use]
    if needs.limit is None:
        return "tokens per dollar" if brief else "no user waits: tokens per dollar decide"
    name, limit = needs.limit
    least, most = ("≥", "≤") if brief else ("at least", "within")
    how = least if name == "tps" else most
    return f"{FIGURES[_figure(needs)].label} {needs.percentile} {how} {figure_words(name, limit)}"


def _rank(r: TargetRating, use: Use) -> tuple[float, float]:
    _, of, _ = _RANKED[use.by]
    value = of(r)
    if use.by in ("ttft_ms", "agent_ms"):
        return (float("inf") if value is None else value), 0.0
    return -(value or 0.0), -(r.tokens_per_s or 0.0) if use.by == "tokens_per_usd" else 0.0


_RANKED: dict[str, tuple[str, Callable[[TargetRating], float | None], Callable[[float], str]]] = {
    "ttft_ms": ("TTFT p95", lambda r: r.ttft_p95_ms, lambda v: f"{number(v)} ms"),
    "agent_ms": ("agent time", lambda r: r.agent_ms, lambda v: f"{number(v / 1000)} s"),
    "tps": ("TPS", lambda r: r.tps, lambda v: f"{number(v)} tokens/s"),
    "tokens_per_usd": ("tokens per dollar", lambda r: r.tokens_per_usd, number),
}


def _would_change(
    use: Use, chosen: Sequence[TargetRating], others: Sequence[TargetRating]
) -> list[str]:
    sentences = _runner_up(use, chosen)
    lighter = [r for r in others if r.keeps == "no" and r.up_to and r.up_to != r.load]
    sentences += [f"{r.target} meets the limit up to {r.up_to}, not at {r.load}." for r in lighter]
    unsure = [r for r in (*chosen, *others) if r.keeps == "unsure"]
    if unsure:
        sentences.append(f"More requests would decide on {listed([r.target for r in unsure])}.")
    return sentences + _nearest_miss(use, others)


def _nearest_miss(use: Use, others: Sequence[TargetRating]) -> list[str]:
    if use.limit is None:
        return []
    name, limit = use.limit
    missed = {
        r.target: abs(r.value / limit - 1)
        for r in others
        if r.keeps == "no" and r.value is not None and _beyond(use, r)
    }
    if not missed:
        return []
    near = min(missed, key=lambda target: missed[target])
    return [f"{near} misses the limit of {figure_words(name, limit)} by {percent(missed[near])}."]


def _runner_up(use: Use, chosen: Sequence[TargetRating]) -> list[str]:
    label, of, words = _RANKED[use.by]
    if use.by == "tokens_per_usd" and not any(map(of, chosen)):
        label, of, words = "throughput", lambda r: r.tokens_per_s, lambda v: f"{number(v)} tokens/s"
    if len(chosen) < 2 or not (best := of(chosen[0])) or not (second := of(chosen[1])):
        return []
    worse = {"TPS": "falls", "throughput": "falls", "tokens per dollar": "fall"}.get(label, "rises")
    return [
        f"{chosen[1].target} would be first if the {label} of {chosen[0].target} {worse} from "
        f"{words(best)} to {words(second)} ({change(second / best - 1)})."
    ]


def _within(use: Use, value: float) -> bool:
    name, limit = use.limit or ("", 0.0)
    return value >= limit if name == "tps" else value <= limit


def _beyond(use: Use, r: TargetRating) -> bool:
    return r.value is not None and not _within(use, r.value)


def _policy(name: str, use: Use, targets: Sequence[str], *, priced: bool) -> str:
    quoted = [target if "(" in target else f'"{target}"' for target in targets]
    if len(quoted) < 2:
        return "".join(quoted)
    branches = ", ".join(quoted)
    if priced and use.by == "tokens_per_usd":
        return f"cheapest({branches})"
    if priced and use.by == "ttft_ms":
        return f'cheapest({branches}, within="{name}")'
    by = {"ttft_ms": ', by="ttft"', "tps": ', by="tps"'}.get(use.by, "")
    return f"fastest({branches}{by})"


def use_statements(
    choices: Sequence[Recommendation], use: str, period: str = ""
) -> list[Statement]:
    """Return what is best for `use`. `period`: the time that it is about, "" if it holds for other
    times too."""
    return [
        Statement(_use_sentence(each, period), detail=True)
        for each in choices
        if each.use == use and each.fastest
    ]


def asked_for(choice: Recommendation) -> str:
    """Return the use in words, with the workload where a run has several: "voice on workload
    8k"."""
    return f"{choice.use} on workload {choice.workload}" if choice.workload else choice.use


def _use_sentence(choice: Recommendation, period: str) -> str:
    label, of, words = _RANKED[choice.by]
    best, count, use = choice.candidates[0], len(choice.candidates), asked_for(choice)
    value = of(best)
    at = f" at {best.load}" if best.load else ""
    figure = f" ({label} {words(value)}{at})" if value is not None else ""
    limit = "" if best.keeps == "yes" else f", but it may not meet {limit_words(choice.use)}"
    within, tense = (f" in {period}", "was") if period else ("", "is")
    if choice.is_clear:
        return f"For {use}, {best.target} {tense} the best of {count}{figure}{within}{limit}."
    may = f"{listed(choice.may_be_first, 'or')} may {'have been' if period else 'be'} first"
    return f"For {use}, no target {tense} clearly the best of {count}{within}: {may}."
