"""Production speed of targets against what is known of them elsewhere: a run, or published figures.

Both sides have a median with its 95% interval. The logarithm of their ratio has the half-width √(a²
+ b²) of both (Zou and Donner, Statistics in Medicine, 2008), and Student's t has the degrees of
freedom of the periods of the log. A published figure has no interval; of a published range, the
nearer end counts. All figures of a report are tested together (Holm).

What else could explain a difference is stated: longer prompts, longer responses, another load,
another way to count tokens.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core.catalog.model import Figure, PublishedSpeed
from splitsecond.core.catalog.model_names import model_name
from splitsecond.core.catalog.provider import provider, split_target
from splitsecond.core.errors import CallerFault
from splitsecond.core.wording import Statement, listed, number, ratio
from splitsecond.log.production.speed import ProductionSpeed
from splitsecond.log.statistics.sample_comparison import (
    MIN_LOG_RATIO,
    SampleComparison,
    holm_levels,
)
from splitsecond.log.statistics.student import MAX_FREEDOM, t_quantile
from splitsecond.log.statistics.summary import DOUBT, Interval, Summary

MAX_NAMES = 3
"""Targets that the sentence for all of them names of each verdict."""
MAX_SAME = 1.25
"""Ratio up to which an interval that contains 1 means the same; a wider one means nothing yet."""
OTHER_LENGTH, OTHER_LOAD = 1.5, 2.0
"""Ratios from which on lengths and loads are stated as another explanation."""
FIGURES = {"ttft_ms": ("TTFT", "ms"), "tps": ("TPS", ""), "total_tps": ("total TPS", "")}
"""Figures that are compared, at p50, with their names and units."""

FigureVerdict = Literal["slower", "faster", "same", "unclear"]
_GROUPS: Mapping[FigureVerdict, str] = {
    "slower": "Slower in production",
    "faster": "faster",
    "same": "the same",
    "unclear": "cannot tell",
}
"""The groups of the sentence for all targets, in their order."""


class KnownFigure(Struct, frozen=True):
    """A median with the bounds of its interval (None: unknown), or without a median a published
    range."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, summary: Summary) -> "KnownFigure | None":
        return None if summary.p50 is None else cls(summary.p50, *summary.interval("p50"))

    @property
    def words(self) -> str:
        if self.value is not None:
            return number(self.value)
        low, high = self.low or 0.0, self.high or math.inf
        if math.isinf(high):
            return f"over {number(low)}"
        return f"{number(low)} to {number(high)}" if low else f"under {number(high)}"


class KnownSpeed(Struct, frozen=True, kw_only=True):
    """What is known of a target outside of production, from one `source`.

    `figures` are by the names of `FIGURES`. `in_flight`: requests at a time; `load` says it in
    words. `few_rounds`: the intervals of a run describe its own seconds only.
    """

    target: str
    source: str
    load: str = ""
    figures: dict[str, KnownFigure]
    in_flight: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    token_source: str = ""
    few_rounds: bool = False


class FigureAgainst(Struct, frozen=True, kw_only=True):
    """One figure in production and elsewhere. `ratio` is production / elsewhere, with its 95%
    interval; of a published range it is that to the nearer end, 1 within the range. `p_value` is
    adjusted for all figures of the report. `verdict`: "slower", "faster", "same" or "unclear", of
    production."""

    figure: str
    production: float | None
    known: KnownFigure
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    p_value: float | None = None
    verdict: FigureVerdict = "unclear"

    @property
    def words(self) -> str:
        """What the figure says: "TTFT slower, 410 against 230 ms (1.78 times, 95% …)"."""
        name, unit = FIGURES[self.figure]
        values = f"{number(self.production)} against {self.known.words}"
        values += f" {unit}" if unit else ""
        if self.ratio is None or self.ci95 is None:
            return f"{name} cannot tell yet, {values}: too few responses for an interval"
        low, high = map(ratio, self.ci95)
        times = f"({ratio(self.ratio)} times, 95% interval {low} to {high})"
        if self.verdict == "same":
            if self.known.value is None:
                return f"{name} within the published range, {values}"
            within = math.ceil(100 * max(abs(bound - 1) for bound in self.ci95))
            return f"{name} the same within {within}%, {values}"
        verdict = "cannot tell" if self.verdict == "unclear" else self.verdict
        return f"{name} {verdict}, {values} {times}"


class SpeedAgainst(Struct, frozen=True, kw_only=True):
    """Production speed of a target against one source. `differs`: what else differs and could
    explain the verdict. `statement`: the conclusion in a sentence."""

    target: str
    source: str
    load: str = ""
    figures: list[FigureAgainst]
    differs: list[str] = []
    statement: str = ""

    @property
    def verdict(self) -> FigureVerdict:
        return _overall(self.figures)


def _overall(figures: Sequence[FigureAgainst]) -> FigureVerdict:
    """Return the verdict of all figures: slower or faster if at least one is, and none is the
    contrary."""
    verdicts = {each.verdict for each in figures}
    if verdicts >= {"slower", "faster"}:
        return "unclear"
    for verdict in ("slower", "faster"):
        if verdict in verdicts:
            return verdict
    return "same" if verdicts == {"same"} else "unclear"


def speeds_against(
    speeds: Sequence[ProductionSpeed], references: Sequence[KnownSpeed]
) -> list[SpeedAgainst]:
    """Compare each target with each source that knows it, in the order of `speeds`."""
    pairs = [(speed, each) for speed in speeds for each in references if each.target == speed.name]
    tested = [
        (speed, each, figure, _tested(speed, getattr(speed, figure), each.figures[figure]))
        for speed, each in pairs
        for figure in FIGURES
        if figure in each.figures and getattr(speed, figure).p50 is not None
    ]
    levels = holm_levels(
        {at: test.doubt_of(0.0) for at, (*_, test) in enumerate(tested) if test is not None}
    )
    judged = [
        (each, _judged(speed, figure, each.figures[figure], test, levels.get(at, (1.0, 0.0))[0]))
        for at, (speed, each, figure, test) in enumerate(tested)
    ]
    comparisons = []
    for speed, each in pairs:
        figures = [figure for of, figure in judged if of is each]
        if not figures:
            continue
        one = SpeedAgainst(
            target=speed.name,
            source=each.source,
            load=each.load,
            figures=figures,
            differs=_differences(speed, each, figures),
        )
        comparisons.append(replace(one, statement=_statement(one)))
    return comparisons


def _tested(
    speed: ProductionSpeed, own: Summary, reference: KnownFigure
) -> SampleComparison | None:
    """Return the ratio of production to the known figure on the scale of logarithms; None without
    an interval."""
    half = _half(own.interval("p50"))
    value, other = _nearest(own.p50 or 0.0, reference), 0.0
    if reference.value is not None and reference.low is not None:
        bounds = _half((reference.low, reference.high))
        if bounds is None:
            return None
        other = bounds
    if half is None or not own.p50 or not value:
        return None
    freedom = max(speed.periods - 1, 1) if speed.periods else MAX_FREEDOM
    return SampleComparison(
        first=value, second=own.p50, log_ratio=math.log(own.p50 / value),
        error=math.hypot(half, other) / t_quantile(DOUBT, freedom), freedom=freedom,
    )  # fmt: skip


def _half(bounds: Interval) -> float | None:
    low, high = bounds
    return math.log(high / low) / 2 if low and high else None


def _nearest(own: float, reference: KnownFigure) -> float:
    if reference.value is not None:
        return reference.value
    return min(max(own, reference.low or 0.0), reference.high or math.inf)


def _judged(
    speed: ProductionSpeed,
    figure: str,
    reference: KnownFigure,
    test: SampleComparison | None,
    p_value: float,
) -> FigureAgainst:
    own: Summary = getattr(speed, figure)
    comparison = FigureAgainst(figure=figure, production=own.p50, known=reference)
    if test is None:
        return comparison
    times, ci95 = math.exp(test.log_ratio), test.interval(DOUBT)
    comparison = replace(comparison, ratio=times, ci95=ci95, p_value=p_value)
    if p_value < DOUBT and abs(test.log_ratio) >= MIN_LOG_RATIO:
        slower = (times > 1) == (figure == "ttft_ms")
        return replace(comparison, verdict="slower" if slower else "faster")
    within = max(ci95[1], 1 / ci95[0]) <= MAX_SAME
    inside = reference.value is None and times == 1
    return replace(comparison, verdict="same" if within or inside else "unclear")


def _differences(
    speed: ProductionSpeed, reference: KnownSpeed, figures: Sequence[FigureAgainst]
) -> list[str]:
    """Return what differs in a direction that could explain the verdict."""
    overall = _overall(figures)
    verdicts = {
        each.figure: each.verdict for each in figures if overall in (each.verdict, "unclear")
    }
    differences = []
    prompts = _times(speed.input_tokens, reference.input_tokens)
    if _explains(prompts, OTHER_LENGTH, verdicts.get("ttft_ms")):
        differences.append(
            f"prompts have {_sides(speed.input_tokens, reference.input_tokens)} tokens"
        )
    # a longer response dilutes the wait, so it makes total TPS higher
    shorter = _times(reference.output_tokens, speed.output_tokens)
    if _explains(shorter, OTHER_LENGTH, verdicts.get("total_tps")):
        differences.append(
            f"responses have {_sides(speed.output_tokens, reference.output_tokens)} tokens"
        )
    own = max(speed.in_flight or 0.0, 1.0)  # a request is never alone with less than itself
    load = _times(own, reference.in_flight)
    if any(_explains(load, OTHER_LOAD, verdict) for verdict in verdicts.values()):
        differences.append(f"the load is {_sides(own, reference.in_flight)} requests at a time")
    token_source = max(speed.token_source, key=lambda each: speed.token_source[each], default="")
    if reference.token_source and token_source and token_source != reference.token_source:
        differences.append(f"tokens are counted by {token_source} against {reference.token_source}")
    if reference.few_rounds and {"slower", "faster"} & set(verdicts.values()):
        differences.append(
            "the run has fewer than five rounds, so it describes only its own minutes"
        )
    return differences


def _times(own: float | None, other: float | None) -> float | None:
    return own / other if own and other else None


def _explains(times: float | None, least: float, verdict: FigureVerdict | None) -> bool:
    """Return whether `times` as much work could make production slower, or look the same. `verdict`
    None: the figure was not compared."""
    if times is None or verdict is None or max(times, 1 / times) < least:
        return False
    return verdict == "same" or (verdict != "unclear" and (times > 1) == (verdict == "slower"))


def _sides(own: float | None, other: float | None) -> str:
    return f"{number(own)} against {number(other)}"


def _statement(comparison: SpeedAgainst) -> str:
    place = f"{comparison.source}{f' {comparison.load}' if comparison.load else ''}"
    words = "; ".join(each.words for each in comparison.figures)
    weaker = f" This may explain it: {listed(comparison.differs)}." if comparison.differs else ""
    return f"{comparison.target} in production, against {place}: {words}.{weaker}"


def against_statements(
    comparisons: Sequence[SpeedAgainst], targets: Sequence[str] = ()
) -> list[Statement]:
    """Return one sentence for all targets, then one for each of them, then those of `targets` that
    nothing is known of."""
    if not comparisons:
        return []
    times = Counter(each.target for each in comparisons)
    groups = {
        words: [_named(each, times) for each in comparisons if each.verdict == verdict]
        for verdict, words in _GROUPS.items()
    }
    parts = [f"{words}: {_some(names)}" for words, names in groups.items() if names]
    first = "; ".join(parts)
    unknown = [target for target in targets if target not in times]
    return [
        Statement(f"{first[0].upper()}{first[1:]}."),
        *(Statement(each.statement) for each in comparisons),
        *(
            [Statement(f"Not compared, as only the log has them: {_some(unknown)}.")]
            if unknown
            else []
        ),
    ]


def _named(comparison: SpeedAgainst, times: Mapping[str, int]) -> str:
    return (
        f"{comparison.target} ({comparison.source})"
        if times[comparison.target] > 1
        else comparison.target
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return listed([*names[:MAX_NAMES], *([f"{more:,} more"] if more > 0 else [])])


def published_speeds(targets: Iterable[str]) -> list[KnownSpeed]:
    """Return what the catalogue's sources publish of the targets' models at the same provider, for
    the lightest load of each source."""
    return [speed for target in targets for speed in _of_target(target)]


def _of_target(target: str) -> list[KnownSpeed]:
    try:
        name, model = split_target(target)
        models = provider(name).models
    except CallerFault:  # the user's own server: no speed of it is published
        return []
    lightest: dict[str, PublishedSpeed] = {}
    for own, entry in models.items():
        if model_name(own) == model_name(model):
            for speed in sorted(entry.speeds, key=lambda each: each.concurrency or 0):
                lightest.setdefault(speed.source, speed)
    speeds = [_known(target, speed) for speed in lightest.values()]
    return [each for each in speeds if each.figures]


def _known(target: str, speed: PublishedSpeed) -> KnownSpeed:
    figures = {name: _figure(getattr(speed, name)) for name in FIGURES}
    return KnownSpeed(
        target=target,
        source=f"{_publisher(speed.source)}, {speed.date}",
        load=f"at concurrency {speed.concurrency}" if speed.concurrency else "",
        figures={name: figure for name, figure in figures.items() if figure is not None},
        in_flight=speed.concurrency,
    )


def _publisher(source: str) -> str:
    """Return the name before the title and the sections."""
    return source.partition(",")[0].partition(" (")[0]


def _figure(published: Figure | None) -> KnownFigure | None:
    if published is None:
        return None
    return KnownFigure(None, *published) if isinstance(published, tuple) else KnownFigure(published)
