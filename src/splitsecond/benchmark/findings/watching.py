"""Watch: rounds of one small benchmark, hours or days apart, with what is usual, unusual or has
drifted.

A round is a run. Each figure of its rows is added to a control chart of the same row in earlier
rounds. INVALID rows and interrupted rounds are shown, but neither judged nor used to judge others.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.benchmark.findings.gate import STATISTICS
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS, ttft_figure
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.row_fields import ServerView
from splitsecond.benchmark.rows.usable_rows import Place, by_place, row
from splitsecond.benchmark.statistics.control_chart import (
    ChartDrift,
    ControlChart,
    JudgedRound,
    State,
)
from splitsecond.benchmark.statistics.error_share import ErrorCount, ErrorShareModel
from splitsecond.benchmark.statistics.expectation import MIN
from splitsecond.benchmark.statistics.times_model import WINDOW, TimesModel
from splitsecond.core.wording import change, number, percent
from splitsecond.log.statistics.summary import Summary

SCHEMA = "splitsecond.watch/1"


class WatchedFigure(Struct, frozen=True, kw_only=True):
    """A figure that is watched. `worse`: the bad side, above (1) or below (−1). `share`: it is a
    share of requests."""

    name: str
    label: str
    unit: str
    worse: int
    of: Callable[[ConditionFindings], float | None]
    tail: Callable[[ConditionFindings], float | None] = lambda _: None
    share: bool = False

    def formatted(self, value: float) -> str:
        return percent(value) if self.share else f"{number(value)} {self.unit}"


def _ttft(condition: ConditionFindings) -> Summary:
    return ttft_figure(open_loop=condition.concurrency is None).summary(condition)


TTFT = WatchedFigure(
    name="ttft_ms",
    label="TTFT p50",
    unit="ms",
    worse=1,
    of=lambda c: _ttft(c).p50,
    tail=lambda c: _ttft(c).p95,
)
TPS = WatchedFigure(
    name="tps",
    label="TPS p50",
    unit=FIGURES["tps"].unit,
    worse=-1,
    of=lambda c: c.tps.p50,
    tail=lambda c: c.tps.p95,
)
ERRORS = WatchedFigure(
    name="errors",
    label="error share",
    unit="",
    worse=1,
    of=lambda c: c.errors / c.requests if c.requests else None,
    share=True,
)
WATCHED = (TTFT, TPS, ERRORS)
REPORTED: Mapping[str, Callable[[ServerView], float | None]] = {
    "waiting": lambda view: view.waiting,
    "kv_use": lambda view: view.kv_use_max,
    "preemptions": lambda view: view.preemptions,
    "power_w": lambda view: view.power_w,
    "power_capped": lambda view: view.power_capped,
    "heat_capped": lambda view: view.heat_capped,
}
"""What is kept of the server's own view of a round, by term."""


class WatchRound(Struct, frozen=True, kw_only=True):
    at: str
    rows: list[ConditionFindings]
    failed: str = ""
    finished: bool = True

    @classmethod
    def of(cls, run: Run) -> "WatchRound":
        failed = " ".join(run.invalid) if not any(c.requests for c in run.conditions) else ""
        return cls(at=run.began, rows=run.conditions, failed=failed, finished=run.finished)


class SeriesPoint(Struct, kw_only=True):
    """One figure of one round. `tail` is its p95; `low` and `high` bound what is usual at its hour
    (None: unknown).

    `early`: the limits are wide, because the pattern of the day is not known yet.
    """

    at: str
    value: float
    tail: float | None = None
    low: float | None = None
    high: float | None = None
    state: State
    early: bool = False


class DriftPeriod(Struct, frozen=True, kw_only=True):
    """Period in which a figure left its level; `until` None: it lasts. `change` is relative, None
    from a level of 0.

    With `settled`, the figure did not come back: the new level lasted so long that it is usual now.
    `accepted`: somebody has acknowledged the drift.
    """

    since: str
    until: str | None
    before: float
    after: float
    change: float | None
    worse: bool
    settled: bool
    accepted: bool = False

    @property
    def open(self) -> bool:
        """Whether it lasts, or has stayed and nobody has accepted it."""
        return self.until is None or (self.settled and not self.accepted)


class WatchedSeries(Struct, frozen=True, kw_only=True):
    name: str
    target: str
    concurrency: int | None
    rate: float | None
    cache_reuse: bool
    figure: str
    label: str
    unit: str
    points: list[SeriesPoint]
    drifts: list[DriftPeriod]
    workload: str = ""

    @property
    def drifting(self) -> DriftPeriod | None:
        """The last drift, if it is open."""
        return self.drifts[-1] if self.drifts and self.drifts[-1].open else None


class WatchFindings(Struct, frozen=True, kw_only=True):
    """Findings of a watch, for its page and its JSON. `statements`: the drifts as sentences.

    `failed` maps each round that failed as a whole to the reason; `left_out` does the same for the
    rounds of a row that were not judged. `skipped`: how many rounds in a row did not take place, by
    the moment at which the first was due at the present interval. Rounds are identified by the
    moment at which they began (RFC 3339, UTC). `server`: what the server of a row reported in its
    rounds, by the name of the row and by term: each value with its round.
    """

    every_s: float
    rounds: int
    first: str
    last: str
    failed: dict[str, str]
    left_out: dict[str, dict[str, str]] = {}
    skipped: dict[str, int] = {}
    server: dict[str, dict[str, dict[str, float]]] = {}
    lines: list[WatchedSeries]
    statements: list[str]
    schema: str = SCHEMA


class RoundNews(Struct, frozen=True, kw_only=True):
    text: str
    good: bool | None = None


class _Track:
    def __init__(self, watched: WatchedFigure, first: ConditionFindings) -> None:
        self.watched = watched
        self._first = first
        self._points: list[SeriesPoint] = []
        self._chart: ControlChart[Any] = ControlChart(
            ErrorShareModel() if watched.share else TimesModel()
        )

    def add(self, at: str, condition: ConditionFindings) -> RoundNews | None:
        value = self.watched.of(condition)
        if value is None or (value <= 0 and not self.watched.share):
            return None
        hours = datetime.fromisoformat(at).timestamp() / 3600
        judged = self._chart.add(
            hours, ErrorCount(condition.errors, condition.requests) if self.watched.share else value
        )
        point = SeriesPoint(
            at=at, value=value, tail=self.watched.tail(condition), state=judged.state
        )
        if judged.usual:
            point.low, point.high, point.early = (
                judged.usual.low,
                judged.usual.high,
                judged.usual.early,
            )
        self._points.append(point)
        if judged.began:
            for point in self._points[self._chart.drifts[-1].since :]:
                point.state = "drifted"
        return self._news(judged, value)

    def _news(self, judged: JudgedRound, value: float) -> RoundNews | None:
        watched, last = self.watched, self._chart.drifts[-1] if self._chart.drifts else None
        if last is not None and last.until is None:
            drift = self._found(last)
            return RoundNews(text=f"{drift_words(drift, watched)}.", good=not drift.worse)
        if last is not None and judged.ended and last.settled:
            return RoundNews(
                text=f"{watched.label}: {watched.formatted(last.after)} is usual from now on."
            )
        if last is not None and judged.ended:
            return RoundNews(
                text=f"{drift_words(self._found(last), watched)}.", good=last.side == watched.worse
            )
        if judged.side and judged.usual:
            low, high = judged.usual.low, judged.usual.high
            usual = (
                f"up to {watched.formatted(high)}"
                if watched.share
                else f"{number(low)} to {number(high)}"
            )
            text = f"{watched.label} is unusual: {watched.formatted(value)}, usually {usual}."
            return RoundNews(text=text, good=judged.side != watched.worse)
        if last is not None and last.side == watched.worse and (drift := self._found(last)).open:
            return RoundNews(
                text=f"{drift_words(drift, watched)}. `--accept` acknowledges it.", good=False
            )
        return None

    def accept(self) -> None:
        self._chart.accept()

    def _found(self, drift: ChartDrift) -> DriftPeriod:
        until = None
        if drift.until is not None:
            until = self._points[min(drift.until, len(self._points) - 1)].at
        return DriftPeriod(
            since=self._points[drift.since].at,
            until=until,
            before=drift.before,
            after=drift.after,
            change=drift.after / drift.before - 1 if drift.before else None,
            worse=drift.side == self.watched.worse,
            settled=drift.settled,
            accepted=drift.accepted,
        )

    def line(self) -> WatchedSeries:
        first = self._first
        return WatchedSeries(
            name=row(first),
            target=first.target,
            concurrency=first.concurrency,
            rate=first.rate,
            cache_reuse=first.cache_reuse,
            figure=self.watched.name,
            label=self.watched.label,
            unit=self.watched.unit,
            points=self._points,
            drifts=[self._found(drift) for drift in self._chart.drifts],
        )

    @property
    def early(self) -> bool:
        return bool(self._points) and self._points[-1].early

    @property
    def rounds(self) -> int:
        return len(self._points)


def _why_not_judged(condition: ConditionFindings, one: WatchRound) -> str:
    if not condition.requests:
        return " ".join(["not measured.", *condition.notes])
    if not one.finished:
        return "interrupted, so it is not judged."
    return f"INVALID: {' '.join(condition.invalid)}" if condition.invalid else ""


class WatchHistory:
    def __init__(self) -> None:
        self._moments: list[str] = []
        self._failed: dict[str, str] = {}
        self._left_out: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._server: dict[str, dict[str, dict[str, float]]] = {}
        self._tracks: dict[Place, list[_Track]] = {}
        self._past: defaultdict[Place, deque[ConditionFindings]] = defaultdict(
            lambda: deque(maxlen=WINDOW)
        )

    def add(self, one: WatchRound) -> dict[str, list[RoundNews]]:
        self._moments.append(one.at)
        if one.failed:
            self._failed[one.at] = one.failed
        news: dict[str, list[RoundNews]] = {}
        for place, condition in by_place(one.rows).items():
            news[condition.condition] = self._judged(place, condition, one)
        return news

    def _add_reported(self, at: str, name: str, view: ServerView) -> None:
        for term, of in REPORTED.items():
            if (value := of(view)) is not None:
                self._server.setdefault(name, {}).setdefault(term, {})[at] = value

    def accept(self) -> list[str]:
        """Acknowledge all drifts so far, and return those that were open, as sentences."""
        tracks = [track for tracks in self._tracks.values() for track in tracks]
        lines = [track.line() for track in tracks if track.rounds]
        for track in tracks:
            track.accept()
        return drift_statements(
            replace(line, drifts=[line.drifting]) for line in lines if line.drifting
        )

    def _judged(
        self, place: Place, condition: ConditionFindings, one: WatchRound
    ) -> list[RoundNews]:
        if why := _why_not_judged(condition, one):
            if not one.failed:
                self._left_out[row(condition)][one.at] = why
            return [
                RoundNews(text=why, good=None if condition.requests and not one.finished else False)
            ]
        tracks = self._tracks.setdefault(place, [_Track(watched, condition) for watched in WATCHED])
        self._past[place].append(condition)
        if condition.server is not None:
            self._add_reported(one.at, row(condition), condition.server)
        news = [each for track in tracks if (each := track.add(one.at, condition))]
        earlier = max(track.rounds for track in tracks) - 1
        if not news and earlier < MIN:
            return [RoundNews(text=f"learning what is usual: round {earlier + 1} of {MIN}.")]
        early = any(track.early for track in tracks)
        return news or [
            RoundNews(
                text="as usual, by the wide limits of the first days." if early else "as usual."
            )
        ]

    def findings(self, every_s: float) -> WatchFindings:
        lines = [
            track.line() for tracks in self._tracks.values() for track in tracks if track.rounds
        ]
        return WatchFindings(
            every_s=every_s,
            rounds=len(self._moments),
            first=self._moments[0] if self._moments else "",
            last=self._moments[-1] if self._moments else "",
            failed=self._failed,
            left_out=dict(self._left_out),
            skipped=_skipped(self._moments, every_s),
            server=self._server,
            lines=lines,
            statements=drift_statements(lines),
        )

    def usual(self, requested: Sequence[ConditionFindings]) -> list[ConditionFindings]:
        """Return a baseline for gates: each requested row, with the median of the last rounds for
        every figure.

        Rows with fewer than `MIN` rounds are left out, because what is usual is not yet known.
        """
        return [
            _usual(past)
            for place in by_place(requested)
            if len(past := self._past.get(place, ())) >= MIN
        ]


def _skipped(moments: Sequence[str], every_s: float) -> dict[str, int]:
    skipped: dict[str, int] = {}
    for before, after in pairwise(map(datetime.fromisoformat, moments)):
        missing = round((after - before).total_seconds() / every_s) - 1 if every_s else 0
        if missing > 0:
            skipped[(before + timedelta(seconds=every_s)).isoformat(timespec="milliseconds")] = (
                missing
            )
    return skipped


def drift_words(drift: DriftPeriod, watched: WatchedFigure) -> str:
    moved = "" if drift.change is None or watched.share else f" ({change(drift.change)})"
    what = f"from {watched.formatted(drift.before)} to {watched.formatted(drift.after)}{moved}"
    if drift.until is None or drift.open:
        stays = ", and stays there" if drift.settled else ""
        return f"{watched.label} has drifted since {minute(drift.since)}, {what}{stays}"
    how = "stayed there" if drift.settled else f"came back on {minute(drift.until)}"
    return f"{watched.label} drifted on {minute(drift.since)}, {what}, and {how}"


def minute(at: str) -> str:
    return at[:16].replace("T", " ")


def drift_statements(lines: Iterable[WatchedSeries]) -> list[str]:
    drifts = [(not drift.open, drift.since, line, drift) for line in lines for drift in line.drifts]
    drifts.sort(key=lambda one: one[1], reverse=True)
    drifts.sort(key=lambda one: one[0])
    by_name = {watched.name: watched for watched in WATCHED}
    return [
        f"{line.name}: {drift_words(drift, by_name[line.figure])}, for the "
        f"{'worse' if drift.worse else 'better'}."
        for _, _, line, drift in drifts
    ]


def _usual(past: Sequence[ConditionFindings]) -> ConditionFindings:
    changes: dict[str, Any] = {
        name: _middle([total.value(each) for each in past])
        for name, total in TOTALS.items()
        if total.unit != "requests"
    }
    for name, figure in FIGURES.items():
        spreads = [figure.summary(each) for each in past]
        figures = {
            statistic: _middle([getattr(each, statistic) for each in spreads])
            for statistic in STATISTICS
        }
        changes[name] = Summary(n=sum(each.n for each in spreads), **figures)  # type: ignore[arg-type]
    return replace(past[-1], **changes)


def _middle(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return median(measured) if measured else None
