"""Rounds of one small benchmark, hours or days apart: what is usual of each target, what was not, what has drifted.

A round is a run. Of each of its rows the medians of TTFT and of TPS and the share of errors are put on a control chart
(`control_chart`), which knows the same row of the rounds before. A row that is INVALID, or a round that did not come to
its end, is shown and judged by nothing: not by the past, and the future not by it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.analysis.control_chart import (
    BACK,
    LEAST,
    WINDOW,
    Chart,
    Drift,
    Errors,
    ErrorShares,
    Judged,
    State,
    Times,
)
from splitsecond.analysis.figures import FIGURES, ttft_figure
from splitsecond.analysis.findings import ConditionFindings, Run, Spread
from splitsecond.analysis.gate import SPREADS, STATISTICS, TOTALS
from splitsecond.analysis.wording import Place, by_place, change, number, percent, row

SCHEMA = "splitsecond.watch/1"


class Watched(Struct, frozen=True, kw_only=True):
    """A figure that is watched. `worse`: the side that is bad news, above (1) or below (−1). `share`: of requests."""

    name: str
    label: str
    unit: str
    worse: int
    of: Callable[[ConditionFindings], float | None]
    tail: Callable[[ConditionFindings], float | None] = lambda _: None
    share: bool = False

    def told(self, value: float) -> str:
        """A value with its unit."""
        return percent(value) if self.share else f"{number(value)} {self.unit}"


def _ttft(found: ConditionFindings) -> Spread:
    spread: Spread = getattr(found, ttft_figure(open_loop=found.concurrency is None).name)
    return spread


TTFT = Watched(
    name="ttft_ms", label="TTFT p50", unit="ms", worse=1, of=lambda c: _ttft(c).p50, tail=lambda c: _ttft(c).p95
)
TPS = Watched(
    name="tps", label="TPS p50", unit=FIGURES["tps"].unit, worse=-1, of=lambda c: c.tps.p50, tail=lambda c: c.tps.p95
)
ERRORS = Watched(
    name="errors",
    label="error share",
    unit="",
    worse=1,
    of=lambda c: c.errors / c.requests if c.requests else None,
    share=True,
)
WATCHED = (TTFT, TPS, ERRORS)


class Round(Struct, frozen=True, kw_only=True):
    """One round: when it began (RFC 3339), its rows, and why it failed as a whole, "" if it did not."""

    at: str
    rows: list[ConditionFindings]
    failed: str = ""
    finished: bool = True

    @classmethod
    def of(cls, run: Run) -> "Round":
        """The round that a run is."""
        failed = " ".join(run.invalid) if not any(c.requests for c in run.conditions) else ""
        return cls(at=run.began, rows=run.conditions, failed=failed, finished=run.finished)


class Point(Struct, kw_only=True):
    """One figure of one round. `tail` is its p95; `low` and `high` bound what was usual then, None while unknown."""

    at: str
    value: float
    tail: float | None = None
    low: float | None = None
    high: float | None = None
    state: State


class DriftFound(Struct, frozen=True, kw_only=True):
    """A figure that left its level, from when until when (None: it is under way). `change` is relative, None from 0.

    With `settled` it did not come back, but has lasted so long that it is what is usual.
    """

    since: str
    until: str | None
    before: float
    after: float
    change: float | None
    worse: bool
    settled: bool


class Line(Struct, frozen=True, kw_only=True):
    """One figure of one row over all rounds. `name` is the row's, `figure` a key of run.json."""

    name: str
    target: str
    concurrency: int | None
    rate: float | None
    cache_reuse: bool
    figure: str
    label: str
    unit: str
    points: list[Point]
    drifts: list[DriftFound]

    @property
    def drifting(self) -> DriftFound | None:
        """The drift that is under way."""
        return self.drifts[-1] if self.drifts and self.drifts[-1].until is None else None


class WatchFindings(Struct, frozen=True, kw_only=True):
    """What a watch found out, as its page and its JSON have it. `statements`: its drifts in sentences.

    `failed` maps the beginning of each round that failed as a whole to why it did. Wherever a round is named, it is by
    the moment at which it began (RFC 3339, UTC).
    """

    every_s: float
    rounds: int
    first: str
    last: str
    failed: dict[str, str]
    lines: list[Line]
    statements: list[str]
    schema: str = SCHEMA


class News(Struct, frozen=True, kw_only=True):
    """What the last round says of one row's figure against the past. `good`: for the better; None: neither."""

    text: str
    good: bool | None = None


class _Track:
    """One figure of one row: its chart, and the points on it."""

    def __init__(self, watched: Watched, first: ConditionFindings) -> None:
        self.watched = watched
        self._first = first
        self._points: list[Point] = []
        self._times: Chart[float] = Chart(Times())
        self._errors: Chart[Errors] = Chart(ErrorShares())

    def add(self, at: str, found: ConditionFindings) -> News | None:
        """The next round. None where there is nothing to tell."""
        value = self.watched.of(found)
        if value is None or (value <= 0 and not self.watched.share):
            return None
        if self.watched.share:
            judged = self._errors.add(Errors(found.errors, found.requests))
        else:
            judged = self._times.add(value)
        low, high = judged.band.far if judged.band else (None, None)
        self._points.append(
            Point(at=at, value=value, tail=self.watched.tail(found), low=low, high=high, state=judged.state)
        )
        if judged.began:
            for point in self._points[self._drifts[-1].since :]:
                point.state = "drifted"
        return self._news(judged, value)

    @property
    def _drifts(self) -> list[Drift]:
        return self._errors.drifts if self.watched.share else self._times.drifts

    def _news(self, judged: Judged, value: float) -> News | None:
        watched, last = self.watched, self._drifts[-1] if self._drifts else None
        if last is not None and last.until is None:
            found = self._found(last)
            return News(text=f"{drift_words(found, watched)}.", good=not found.worse)
        if last is not None and last.until == len(self._points) and last.settled:
            return News(text=f"{watched.label}: {watched.told(last.after)} is what is usual from here on.")
        if last is not None and last.until == len(self._points) - BACK and not last.settled:
            return News(text=f"{drift_words(self._found(last), watched)}.", good=last.side == watched.worse)
        if judged.side and judged.band:
            low, high = judged.band.far
            usual = f"up to {watched.told(high)}" if watched.share else f"{number(low)} to {number(high)}"
            text = f"{watched.label} is unusual: {watched.told(value)}, usual is {usual}."
            return News(text=text, good=judged.side != watched.worse)
        return None

    def _found(self, drift: Drift) -> DriftFound:
        until = None
        if drift.until is not None:
            until = self._points[min(drift.until, len(self._points) - 1)].at
        return DriftFound(
            since=self._points[drift.since].at,
            until=until,
            before=drift.before,
            after=drift.after,
            change=drift.after / drift.before - 1 if drift.before else None,
            worse=drift.side == self.watched.worse,
            settled=drift.settled,
        )

    def line(self) -> Line:
        """All of it."""
        first = self._first
        return Line(
            name=row(first),
            target=first.target,
            concurrency=first.concurrency,
            rate=first.rate,
            cache_reuse=first.cache_reuse,
            figure=self.watched.name,
            label=self.watched.label,
            unit=self.watched.unit,
            points=self._points,
            drifts=[self._found(drift) for drift in self._drifts],
        )

    @property
    def rounds(self) -> int:
        """How many have a point."""
        return len(self._points)


class History:
    """Rounds in their order, judged as they are added."""

    def __init__(self) -> None:
        self._moments: list[str] = []
        self._failed: dict[str, str] = {}
        self._tracks: dict[Place, list[_Track]] = {}
        self._past: defaultdict[Place, deque[ConditionFindings]] = defaultdict(lambda: deque(maxlen=WINDOW))

    def add(self, one: Round) -> dict[str, list[News]]:
        """What the round says of each of its rows, by condition, against those before it."""
        self._moments.append(one.at)
        if one.failed:
            self._failed[one.at] = one.failed
        told: dict[str, list[News]] = {}
        for place, found in by_place(one.rows).items():
            told[found.condition] = self._judged(place, found, one)
        return told

    def _judged(self, place: Place, found: ConditionFindings, one: Round) -> list[News]:
        if not found.requests:
            return [News(text=" ".join(["not measured.", *found.notes]), good=False)]
        if not one.finished:
            return [News(text="not measured to its end, so it is not judged.")]
        if found.invalid:
            return [News(text=f"INVALID: {' '.join(found.invalid)}", good=False)]
        tracks = self._tracks.setdefault(place, [_Track(watched, found) for watched in WATCHED])
        self._past[place].append(found)
        news = [said for track in tracks if (said := track.add(one.at, found))]
        known = max(track.rounds for track in tracks) - 1
        if not news and known < LEAST:
            return [News(text=f"what is usual is known after {LEAST} rounds; this is number {known + 1}.")]
        return news or [News(text="as usual.")]

    def findings(self, every_s: float) -> WatchFindings:
        """All of it. Rows are in the order in which they were first seen."""
        lines = [track.line() for tracks in self._tracks.values() for track in tracks if track.rounds]
        return WatchFindings(
            every_s=every_s,
            rounds=len(self._moments),
            first=self._moments[0] if self._moments else "",
            last=self._moments[-1] if self._moments else "",
            failed=self._failed,
            lines=lines,
            statements=statements(lines),
        )

    def usual(self, asked: Sequence[ConditionFindings]) -> list[ConditionFindings]:
        """For a gate to compare with: each row asked for, every figure the median of the last rounds.

        Without those rows that have fewer than `LEAST` rounds, which say nothing of what is usual.
        """
        return [_usual(past) for place in by_place(asked) if len(past := self._past.get(place, ())) >= LEAST]


def drift_words(found: DriftFound, watched: Watched) -> str:
    """A drift in words: "TTFT p50 has drifted since 2026-11-21 19:00, from 182 ms to 245 ms (+35 %)"."""
    moved = "" if found.change is None or watched.share else f" ({change(found.change)})"
    what = f"from {watched.told(found.before)} to {watched.told(found.after)}{moved}"
    if found.until is None:
        return f"{watched.label} has drifted since {minute(found.since)}, {what}"
    how = "stayed there" if found.settled else f"came back on {minute(found.until)}"
    return f"{watched.label} drifted on {minute(found.since)}, {what}, and {how}"


def minute(at: str) -> str:
    """A moment of RFC 3339, for a person: "2026-11-21 19:00"."""
    return at[:16].replace("T", " ")


def statements(lines: Iterable[Line]) -> list[str]:
    """The drifts in sentences: those under way first, then the last ones first."""
    said = [(drift.until is not None, drift.since, line, drift) for line in lines for drift in line.drifts]
    said.sort(key=lambda one: one[1], reverse=True)
    said.sort(key=lambda one: one[0])
    by_name = {watched.name: watched for watched in WATCHED}
    return [
        f"{line.name}: {drift_words(drift, by_name[line.figure])}, for the {'worse' if drift.worse else 'better'}."
        for _, _, line, drift in said
    ]


def _usual(past: Sequence[ConditionFindings]) -> ConditionFindings:
    changes: dict[str, Any] = {name: _middle([getattr(each, name) for each in past]) for name in TOTALS}
    for name in SPREADS:
        spreads: list[Spread] = [getattr(each, name) for each in past]
        figures = {statistic: _middle([getattr(each, statistic) for each in spreads]) for statistic in STATISTICS}
        changes[name] = Spread(n=sum(each.n for each in spreads), **figures)  # type: ignore[arg-type]
    return msgspec.structs.replace(past[-1], **changes)


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
