"""The precision that a run measures to: how wide the 95% interval of each figure may be.

The half-width of an interval shrinks with the square root of the number of rounds.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

from splitsecond.benchmark.rows.figures import FIGURES, ttft_figure
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.core.errors import CallerFault
from splitsecond.core.wording import counted_as, percent

DEFAULT = ("ttft_ms.p50", "tps.p50")
"""The figures that are meant by a share alone. In an open loop, TTFT counts from when the request
was due."""
PERCENTILES = ("p50", "p95", "p99", "mean")
_EXPECTED = "a share such as 5%, or figures such as ttft_ms.p95=5%,tps.p50=3%"


class Precision(Struct, frozen=True):
    """Largest half-width of the 95% interval of each figure, relative to it: {"ttft_ms.p50":
    0.05}."""

    wanted: Mapping[str, float]


class Unmet(Struct, frozen=True, kw_only=True):
    """A figure that is not known precisely enough: `reached` is its half-width (infinite: no
    interval)."""

    label: str
    reached: float
    wanted: float

    def rounds_needed(self, rounds: int) -> int | None:
        return (
            None
            if math.isinf(self.reached)
            else math.ceil(rounds * (self.reached / self.wanted) ** 2)
        )


def parse_precision(text: str) -> Precision:
    """Parse ``5%``, or figures with their own: ``ttft_ms.p95=5%,tps.p50=3%``. Raises
    `CallerFault`."""
    if "=" not in text:
        return Precision(dict.fromkeys(DEFAULT, _share(text, text)))
    shares = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        figure, _, percentile = name.strip().partition(".")
        if figure not in FIGURES or percentile not in PERCENTILES:
            raise _wrong(text)
        shares[f"{figure}.{percentile}"] = _share(share, text)
    return Precision(shares)


def _share(share: str, text: str) -> float:
    try:
        value = float(share.strip().removesuffix("%")) / (100 if share.strip().endswith("%") else 1)
    except ValueError:
        raise _wrong(text) from None
    if not 0 < value < 1:
        raise _wrong(text)
    return value


def _wrong(text: str) -> CallerFault:
    return CallerFault(
        f"precision: got {text!r}, expected {_EXPECTED}", kind="bad_option", param="precision"
    )


def unmet(row: ConditionFindings, precision: Precision) -> list[Unmet]:
    misses = []
    for name, limit in precision.wanted.items():
        figure_name, _, percentile = name.partition(".")
        figure = FIGURES[figure_name]
        if figure_name == "ttft_ms":
            figure = ttft_figure(open_loop=row.concurrency is None)
        summary = figure.summary(row)
        value = getattr(summary, percentile)
        if not value:
            continue
        low, high = summary.interval(percentile)
        reached = math.inf if low is None or high is None else (high - low) / 2 / value
        if reached > limit:
            misses.append(
                Unmet(label=f"{figure.label} {percentile}", reached=reached, wanted=limit)
            )
    return misses


def in_words(each: Unmet, rounds: int, requests: int) -> str:
    reached = (
        "without an interval" if math.isinf(each.reached) else f"known to ±{percent(each.reached)}"
    )
    words = (
        f"{each.label} is {reached} after {counted_as(rounds, 'round')}, the goal was "
        f"±{percent(each.wanted)}"
    )
    needed = each.rounds_needed(rounds)
    if needed is None:
        return f"{words}."
    takes = (
        f"{counted_as(needed, 'round')}, "
        f"{counted_as(math.ceil(requests / rounds * needed), 'measured request')}"
    )
    return f"{words}: that takes about {takes}."
