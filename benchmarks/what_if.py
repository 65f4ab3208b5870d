"""What-if answers beside the truth: `python -m benchmarks.what_if` (an hour on one core; `--jobs
16`: some minutes).

In a simulated world, today's policy makes a log, and the other policy is run over the same calls in
truth, by the same providers at the same moments. `what_if` sees only the log. For each figure the
interval of the difference should contain the true difference, for the calls that the answer rests
on. Prompts, answers, slow spells, outages and chance are those of the seed; sessions go on when
they have their answer, in truth and in the log.
"""

import argparse
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from msgspec import Struct

from benchmarks.what_if_worlds import HOURS, SETTINGS, TARGETS, World, requests
from splitsecond.replay.answer import Comparison
from splitsecond.routing.construction.expression import parse

SAME = 0.002
"""Share of today's figure. An interval that misses the truth by less counts as right."""
FAMILY = ("ttft_p50_ms", "ttft_p95_ms", "total_p50_ms", "total_p95_ms", "usd_per_1000", "failed")


PAIRS: tuple[tuple[str, str], ...] = (
    ('fastest("a/m", "b/m")', 'hedge("a/m", "b/m")'),
    ('fastest("a/m", "b/m")', 'weighted("a/m", "b/m")'),
    ('weighted("a/m", "b/m")', 'fastest("a/m", "b/m")'),
    ('weighted("a/m", "b/m")', 'hedge("a/m", "b/m", extra_load=0.1)'),
    ('weighted("a/m", "b/m", weights="3,1")', 'fallback("a/m", "b/m", ttft="1s")'),
    ('race("a/m", "b/m")', 'fallback("a/m", "b/m")'),
    ('hedge("a/m", "b/m", extra_load=0.1)', 'fallback("a/m", "b/m")'),
)


class Judged(Struct, frozen=True, kw_only=True):
    """One answer beside the truth: for each figure the interval of the difference, the estimate,
    the truth, and the figure of today."""

    setting: str
    today: str
    other: str
    seed: int
    refused: str = ""
    coverage: float = 0.0
    figures: dict[str, tuple[float, float, float, float, float]] = {}


def judge(setting: str, today: str, other: str, seed: int, hours: float = HOURS) -> Judged:
    about = SETTINGS[setting]
    calls = requests(seed, sessions=about.sessions, hours=hours)
    world = World(about, calls, seed, hours)
    logged, before, order = world.run(today)
    _, truth, _ = World(about, calls, seed, hours).run(other, known=True)
    found = Comparison(logged, world.info, any_load=about.any_load)
    same: dict[str, Any] = {"setting": setting, "today": today, "other": other, "seed": seed}
    identity = found.identity(parse(today))
    if not identity.agrees:
        return Judged(**same, refused=f"identity: {', '.join(identity.differs)}")
    replayed = found.replayed(parse(other))
    answer = found.answer(other, replayed, found.drawn(parse(other)))
    if answer.refused:
        return Judged(**same, refused="coverage", coverage=answer.coverage.share)
    covered = np.zeros(len(order), bool)
    covered[order[found.covered(replayed)]] = True
    today_figures, true_figures = (each.figures(covered, len(TARGETS)) for each in (before, truth))
    figures = {}
    for each, was, true in zip(
        answer.figures, today_figures.tolist(), true_figures.tolist(), strict=True
    ):
        low, high = each.ci95
        if (
            low is not None
            and high is not None
            and each.difference is not None
            and math.isfinite(true - was)
        ):
            figures[each.name] = low, high, each.difference, true - was, was
    return Judged(**same, coverage=answer.coverage.share, figures=figures)


def tables(found: Sequence[Judged]) -> str:
    """Return the table of the document: how often the interval has the truth, and how often the
    sign is wrong."""
    lines = [
        "| world | answers | no answer | interval has the truth | wrong "
        "sign | error of TTFT p50, p95 |",
        "|---|---|---|---|---|---|",
    ]
    for name in [*SETTINGS, ""]:
        here = [each for each in found if name in ("", each.setting)]
        if not here:
            continue
        given = [each for each in here if not each.refused]
        judged = [
            figure for each in given for name, figure in each.figures.items() if name in FAMILY
        ]
        inside = sum(
            low - SAME * abs(was) <= true <= high + SAME * abs(was)
            for low, high, _, true, was in judged
        )
        wrong = sum(
            (low > 0 and true < 0) or (high < 0 and true > 0) for low, high, _, true, was in judged
        )
        errors = [
            np.median(
                [
                    abs(f[2] - f[3]) / f[4]
                    for each in given
                    if (f := each.figures.get(figure)) is not None
                ]
                or [np.nan]
            )
            for figure in FAMILY[:2]
        ]
        n = max(len(judged), 1)
        lines.append(
            f"| {name or 'all'} | {len(given)} | {len(here) - len(given)} | {inside / n:.1%} of "
            f"{len(judged)} "
            f"| {wrong / n:.1%} | {', '.join(f'{each:.1%}' for each in errors)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=HOURS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    pairs = [
        (setting, *pair, seed, options.hours)
        for setting in SETTINGS
        if options.only in setting
        for pair in PAIRS
        for seed in seeds
    ]
    found = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for each in pool.map(judge, *zip(*pairs, strict=True)):
            found.append(each)
            if not options.show:
                continue
            print(
                f"{each.setting} {each.seed}: {each.today} -> {each.other}: {each.coverage:.0%} "
                f"{each.refused}"
            )
            for name, (low, high, difference, true, was) in each.figures.items():
                mark = "" if low <= true <= high else " <--"
                print(
                    f"    {name:14} {was:10.4g} {true:+10.4g} in {difference:+10.4g} [{low:+.4g}, "
                    f"{high:+.4g}]{mark}"
                )
    print(tables(found))


if __name__ == "__main__":
    main()
