"""Claims of articles, what repeated runs measured about them, and the page that shows both."""

import math
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from splitsecond.core.pages.axis import linear
from splitsecond.core.pages.chart import LINE, Chart, LegendEntry, picture
from splitsecond.core.pages.png import standalone
from splitsecond.log.statistics.student import t_quantile

PICTURES = "pictures/claims"
DOUBT = 0.05
NAME_WIDTH = 31
"""Characters of a line of a case's name beside a plot."""
UNCHANGED = {"low": 0.95, "high": 1.05}
"""What "unchanged" and "constant" mean for a ratio."""


class Part(Struct, frozen=True, kw_only=True):
    """One statement of a claim that can be measured: a value of `low` to `high` in `unit`, called
    `words` in a table.

    A range has the ends that the article writes. A single number stands for what rounds to it: 0.7
    is 0.65 to 0.75.
    """

    words: str
    unit: str
    low: float = 0.0
    high: float = math.inf

    def verdict(self, interval: tuple[float, float]) -> str:
        """Return where an interval lies: "as claimed", "less", "more", or "cannot tell" if it
        contains an end."""
        low, high = interval
        if high < self.low:
            return "less"
        if low > self.high:
            return "more"
        return "as claimed" if low >= self.low and high <= self.high else "cannot tell"


class Claim(Struct, frozen=True, kw_only=True):
    """A claim in the `words` of its `source`, and its parts. The plot shows the cases in the unit
    of the first part."""

    name: str
    title: str
    words: str
    source: str
    parts: tuple[Part, ...]


class Measured(Struct, frozen=True, kw_only=True):
    """One case of an experiment in one run: a value, and other values (`seen`) that fill the braces
    of `details`.

    `part` is what the claim says about this case; None: nothing, as about a baseline. `unit` is
    then that of the value.
    """

    case: str
    value: float
    part: Part | None = None
    unit: str = ""
    details: str = ""
    seen: tuple[float, ...] = ()


class Experiment(Struct, frozen=True, kw_only=True):
    """A claim, one run of its cases in a folder for files, and the condition under which the claim
    holds."""

    claim: Claim
    measure: Callable[[Path], Awaitable[list[Measured]]]
    conclusion: str


class Case(Struct, frozen=True, kw_only=True):
    """One case in repeated runs: its mean, and the 95% interval of the mean."""

    case: str
    part: Part | None
    unit: str
    value: float
    interval: tuple[float, float]
    details: str

    @property
    def verdict(self) -> str:
        return self.part.verdict(self.interval) if self.part else "–"


def repeated(runs: Sequence[Sequence[Measured]]) -> list[Case]:
    """Return the cases of at least two runs."""
    return [_case(of_case) for of_case in zip(*runs, strict=True)]


def _case(runs: Sequence[Measured]) -> Case:
    values, first = np.array([run.value for run in runs]), runs[0]
    mean = float(values.mean())
    margin = t_quantile(DOUBT, len(runs) - 1) * float(values.std(ddof=1)) / math.sqrt(len(runs))
    return Case(
        case=first.case,
        part=first.part,
        unit=first.part.unit if first.part else first.unit,
        value=mean,
        interval=(mean - margin, mean + margin),
        details=first.details.format(*np.mean([run.seen for run in runs], axis=0))
        if first.seen
        else first.details,
    )


def chart(claim: Claim, cases: Sequence[Case]) -> str:
    """Return an SVG file: bars of the measured values with their intervals, each beside the range
    that is claimed."""
    unit, height = claim.parts[0].unit, 26
    shown = [case for case in cases if case.unit == unit]
    ends = [part.high for part in claim.parts if part.unit == unit and part.high < math.inf]
    axis = linear(
        unit, 0, 1.15 * max(*ends, *(case.interval[1] for case in shown), claim.parts[0].low)
    )
    drawn = Chart(axis, None, height=height * len(shown), left=230)
    legend = {
        label: LegendEntry(label=label, index=index)
        for index, label in enumerate(("measured", "the claim"))
    }
    for at, case in enumerate(shown):
        top = height * at
        if case.part:
            reach = (case.part.low, min(case.part.high, axis.high), top)
            drawn.add(legend["the claim"], drawn.bars([reach], height - 2), look="dim")
        drawn.add(legend["measured"], drawn.bars([(0, case.value, top + 6)], height - 12))
        drawn.add(None, drawn.span(*case.interval, top + height / 2))
        end = max(case.value, case.interval[1])
        drawn.add(
            None, drawn.text(drawn.across(end) + 5, drawn.top + top + 17, f"{case.value:,.3g}")
        )
        names = textwrap.wrap(case.case, NAME_WIDTH)
        for line, name in enumerate(names):
            drawn.add(
                None, drawn.name(name, top + height / 2 + LINE * (line - (len(names) - 1) / 2))
            )
    words = {"section": "", "title": claim.title, "description": claim.words}
    return standalone(picture(drawn, name=claim.name, **words), legend)


def section(experiment: Experiment, cases: Sequence[Case]) -> str:
    """Return the part of the page about one claim."""
    claim = experiment.claim
    lines = "\n".join(map(_line, cases))
    return f"""## {claim.title}

> {claim.words} ({claim.source})

| case | claimed | measured | 95% interval | verdict | |
|---|---|---|---|---|---|
{lines}

{experiment.conclusion}

![{claim.title}: measured values beside the claim](../{PICTURES}/{claim.name}.svg)
"""


def _line(case: Case) -> str:
    cells = (
        case.case,
        _claimed(case),
        _value(case),
        _interval(case),
        _bold(case.verdict),
        case.details,
    )
    return f"| {' | '.join(cells)} |"


def _claimed(case: Case) -> str:
    part = case.part
    if part is None:
        return "–"
    if part.high == math.inf:
        return f"{part.words}: at least {part.low:g}"
    return (
        f"{part.words}: below {part.high:g}"
        if part.low == 0
        else f"{part.words}: {part.low:g} to {part.high:g}"
    )


def _value(case: Case) -> str:
    return f"{case.value:,.4g}{'' if case.unit.startswith('%') else ' '}{case.unit}"


def _interval(case: Case) -> str:
    low, high = case.interval
    return f"{low:,.4g} to {high:,.4g}" if low < high else "–"


def _bold(verdict: str) -> str:
    return f"**{verdict}**" if verdict != "–" else verdict
