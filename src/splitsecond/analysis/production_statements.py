"""Production speeds as plain sentences: who is fastest, who serves the same model faster, who has drifted."""

from collections.abc import Sequence

from splitsecond.analysis.production import Speed, same_model
from splitsecond.analysis.wording import change, evidence, listed, number, ratio


def speed_statements(speeds: Sequence[Speed]) -> list[str]:
    """A sentence for each finding. `speeds` as `Traffic.speeds` gives them: the fastest first, the ungraded last."""
    graded = [speed for speed in speeds if speed.grade is not None]
    return [*_grades(graded), *_models(graded), *filter(None, map(_drift, speeds))]


def _grades(graded: Sequence[Speed]) -> list[str]:
    if not graded:
        return []
    best = graded[0]
    said = [f"{best.name} is the fastest: {number(best.total_tps.p50 or 0)} total tokens/s, grade {best.grade}."]
    unsure = [f"{s.name} ({' or '.join(map(str, s.grades))})" for s in graded if len(s.grades) > 1]
    return said + ([f"Near the line between two grades: {listed(unsure)}."] if unsure else [])


def _models(graded: Sequence[Speed]) -> list[str]:
    said = []
    for model, (first, *others) in same_model(graded).items():
        times = [
            f"{ratio((first.total_tps.p50 or 0) / (other.total_tps.p50 or 1))} times as fast in all as at {other.name}"
            if _apart(first, other)
            else f"not surely faster than at {other.name}"
            for other in others
        ]
        said.append(f"{model} at {first.name} is {listed(times)}.")
    return said


def _apart(first: Speed, other: Speed) -> bool:
    """Whether the intervals of the medians do not touch, which is stricter than a test."""
    low, high = first.total_tps.ci95["p50"][0], other.total_tps.ci95["p50"][1]
    return low is not None and high is not None and low > high


def _drift(speed: Speed) -> str:
    drift = speed.drift
    if drift is None or not drift.real or drift.ratio is None:
        return ""
    interval = drift.ci95 and (change(drift.ci95[0] - 1), change(drift.ci95[1] - 1))
    found = evidence(change(drift.ratio - 1), interval, drift.p_value)
    words = "faster" if drift.ratio > 1 else "slower"
    days = f"the last {drift.days[1]} days against the {drift.days[0]} before"
    moved = f"{number(drift.before)} to {number(drift.after)} total tokens/s"
    return f"{speed.name} has become {words}, {moved}{found}: {days}, by daily medians."
