from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from splitsecond.benchmark.rows.figures import ended
from splitsecond.benchmark.rows.records import ConditionFindings, Forecast, Run
from splitsecond.benchmark.statistics.forecast import Outcomes, fallback, hedge, quantile, race
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import CallerFault
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import cost_usd
from splitsecond.core.observation import Observation
from splitsecond.core.wording import Statement, evidence, level, number, ratio
from splitsecond.log.statistics.resampling import resamples
from splitsecond.log.statistics.summary import Floats, Interval, finite, needed
from splitsecond.routing.construction.expression import Expression, TargetName, parse, targets
from splitsecond.routing.machinery.settings import Duration, Share
from splitsecond.routing.policies.hedge import EXTRA_LOAD

SUPPORTED = {
    "race": frozenset[str](),
    "fallback": frozenset({"ttft"}),
    "hedge": frozenset({"extra_load"}),
}
Place = tuple[int | None, float | None, str]


def add_forecasts(run: Run, observations: Sequence[Observation]) -> None:
    run.forecasts = []
    for text in dict.fromkeys(row.target for row in run.conditions if "(" in row.target):
        try:
            forecast_policies(run, observations, [text])
        except CallerFault:  # its targets have no rows, or it is another kind of policy
            continue


def forecast_policies(
    run: Run, observations: Sequence[Observation], policies: Sequence[str]
) -> None:
    """Put forecasts of `policies` into a run, with their sentences. Raises `CallerFault` for one
    that cannot be."""
    for policy in map(parse, policies):
        if any(earlier.policy == repr(policy) for earlier in run.forecasts):
            continue
        forecasts = _forecasts(policy, run, observations)
        run.forecasts += forecasts
        run.state(map(_statement, forecasts))


def _forecasts(policy: Expression, run: Run, observations: Sequence[Observation]) -> list[Forecast]:
    _check(policy)
    names = targets(policy)
    rows: defaultdict[Place, dict[str, ConditionFindings]] = defaultdict(dict)
    for row in run.conditions:
        if not row.invalid and not row.cache_reuse:
            rows[row.concurrency, row.rate, row.workload][row.target] = row
    places = [candidate for candidate in rows.values() if all(name in candidate for name in names)]
    if not places:
        raise CallerFault(
            f"cannot forecast {policy!r}: the run has no load with a valid row for each of "
            f"{', '.join(names)}",
            kind="bad_forecast",
        )
    sent = grouped(ended(observations), lambda o: o.condition)
    return [
        candidate
        for place in places
        if (candidate := _forecast(policy, names, place, sent)) is not None
    ]


def _check(policy: Expression) -> None:
    if isinstance(policy, TargetName):
        return
    unknown = [name for name, _ in policy.settings if name not in SUPPORTED.get(policy.policy, ())]
    if policy.policy not in SUPPORTED or policy.named or unknown:
        what = (
            f"{policy.policy} with {', '.join(unknown)}"
            if policy.policy in SUPPORTED
            else policy.policy
        )
        raise CallerFault(
            f"cannot forecast {what}",
            kind="bad_forecast",
            hint="A forecast knows race(a, b), fallback(a, b, ttft=...) and hedge(a, b, "
            "extra_load=...).",
        )
    for part in policy.parts:
        _check(part)


def _forecast(
    policy: Expression,
    names: Sequence[str],
    rows: Mapping[str, ConditionFindings],
    sent: Mapping[str, Sequence[Observation]],
) -> Forecast | None:
    each = [sent.get(rows[name].condition, ()) for name in names]
    pairs, rounds = _paired(each)
    if not len(rounds):
        return None
    outcomes = {
        name: _outcomes(responses, rows[name].price)
        for name, responses in zip(names, pairs, strict=True)
    }
    responses = _evaluate(policy, outcomes)
    drawn = resamples(rounds, np.random.default_rng(0))
    between: dict[float, Interval] = {
        q: _interval([quantile(responses.ttft_ms[i], q) for i in drawn])
        if len(rounds) >= needed(q)
        else (None, None)
        for q in (0.5, 0.95)
    }
    measured = rows.get(repr(policy))
    cost = (
        float(responses.usd[np.isfinite(responses.ttft_ms)].mean())
        if np.isfinite(responses.ttft_ms).any()
        else np.nan
    )
    return Forecast(
        policy=repr(policy),
        load=level(rows[names[0]]),
        rows=[rows[name].condition for name in names],
        pairs=len(rounds),
        ttft_p50_ms=finite(quantile(responses.ttft_ms, 0.5)),
        ttft_p50_ci95=between[0.5],
        ttft_p95_ms=finite(quantile(responses.ttft_ms, 0.95)),
        ttft_p95_ci95=between[0.95],
        e2e_p50_ms=finite(quantile(responses.e2e_ms, 0.5)),
        failed_share=float(np.isinf(responses.ttft_ms).mean()),
        usd_per_request=finite(cost),
        measured_ttft_p50_ms=measured.ttft_ms.p50 if measured else None,
        measured_ttft_p95_ms=measured.ttft_ms.p95 if measured else None,
        measured_usd_per_request=measured.usd_per_request if measured else None,
    )


def _paired(each: Sequence[Sequence[Observation]]) -> tuple[list[list[Observation]], list[int]]:
    by_round = [grouped(sorted(sent, key=lambda o: o.start_ns), lambda o: o.round) for sent in each]
    pairs: list[list[Observation]] = [[] for _ in each]
    rounds: list[int] = []
    for name in sorted(set.intersection(*(set(of_target) for of_target in by_round))):
        count = min(len(of_target[name]) for of_target in by_round)
        rounds += [name] * count
        for paired, of_target in zip(pairs, by_round, strict=True):
            paired += of_target[name][:count]
    return pairs, rounds


def _outcomes(sent: Sequence[Observation], price: Price | None) -> Outcomes:
    def column(values: Sequence[float | None], unknown: float) -> Floats:
        return np.array([unknown if value is None else value for value in values])

    prompts = [
        price.cost_usd(input_tokens=o.input_tokens, output_tokens=0)
        if price and o.input_tokens is not None
        else None
        for o in sent
    ]
    return Outcomes(
        ttft_ms=column([o.ttft_ms if o.ok else None for o in sent], np.inf),
        e2e_ms=column([o.e2e_ms if o.ok else None for o in sent], np.inf),
        failed_ms=column(
            [None if o.ok else (o.end_ns - o.start_ns) / NS_PER_MS for o in sent], np.inf
        ),
        usd=column([cost_usd(o, price) for o in sent], np.nan),
        closed_usd=column(prompts, np.nan),
    )


def _evaluate(policy: Expression, outcomes: Mapping[str, Outcomes]) -> Outcomes:
    if isinstance(policy, TargetName):
        return outcomes[policy.name]
    branches = [_evaluate(branch, outcomes) for branch in policy.branches]
    settings = dict(policy.settings)
    match policy.policy:
        case "race":
            return race(branches)
        case "hedge":
            extra_load = settings.get("extra_load")
            share = EXTRA_LOAD if extra_load is None else Share.parse("extra_load", extra_load)
            return hedge(branches[0], branches[1], share.value)
        case _:
            limit = settings.get("ttft")
            return fallback(
                branches, np.inf if limit is None else Duration.parse("ttft", limit).ns / NS_PER_MS
            )


def _interval(draws: Sequence[float]) -> Interval:
    if not draws:
        return None, None
    return finite(quantile(np.array(draws), 0.025)), finite(quantile(np.array(draws), 0.975))


def _statement(forecast: Forecast) -> Statement:
    def figure(
        name: str, value: float | None, ci95: tuple[float | None, float | None], *, short: bool
    ) -> str:
        low, high = ci95
        between = None if low is None or high is None else (number(low), number(high))
        return f"{name} {number(value)} ms{evidence('', between, short=short)}"

    ttft, short = (
        [
            figure("p50", forecast.ttft_p50_ms, forecast.ttft_p50_ci95, short=brief),
            figure("p95", forecast.ttft_p95_ms, forecast.ttft_p95_ci95, short=brief),
        ]
        for brief in (False, True)
    )
    few = f" (the interval of p95 needs {needed(0.95)})" if forecast.pairs < needed(0.95) else ""
    beside = ""
    if forecast.measured_ttft_p50_ms is not None:
        beside = (
            f"; measured: p50 {number(forecast.measured_ttft_p50_ms)} ms, p95 "
            f"{number(forecast.measured_ttft_p95_ms)} ms"
        )
        if forecast.usd_per_request and forecast.measured_usd_per_request:
            times = ratio(forecast.measured_usd_per_request / forecast.usd_per_request)
            beside += f", at {times} times the cost of the forecast"
    pairs = f"from {forecast.pairs:,} requests to each of its targets"
    return Statement(
        f"{forecast.load.capitalize()}, {forecast.policy} would give TTFT {' and '.join(ttft)}, "
        f"{pairs}{few}{beside}.",
        f"{forecast.load.capitalize()}, {forecast.policy} would give\nTTFT {' and '.join(short)},\n"
        f"{pairs}{few}{beside.replace('; ', ';' + chr(10))}.",
    )
