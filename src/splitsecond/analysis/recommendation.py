"""Which target to take for which use, by what was measured of each: who is soon enough, who of them is cheapest.

A use bears so long a wait for the first token, at p95 (`timing.uses`). A target keeps to it where the whole 95 %
interval of its p95 lies within; where only the p95 itself does, it seems to; where more than one request in twenty
failed, it does not, whatever the others took. Of those that keep to it, or where none surely does of those that seem
to, the fastest and the cheapest are named, and a policy that chooses among all of them as they stand at the moment.

Speed and price are all that is judged. Whether an answer is good enough for the use, nobody has measured here.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from splitsecond.analysis.production import Speed
from splitsecond.analysis.slo import GOOD
from splitsecond.analysis.verdicts import MISSES
from splitsecond.analysis.wording import number, percent
from splitsecond.timing.uses import USES

SCHEMA = "splitsecond.recommend/1"
BATCH = "batch"
"""The use that waits for nobody: there the price of a token decides, not the time to the first one."""
Keeps = Literal["yes", "unsure", "no"]
_ORDER: dict[Keeps, int] = {"yes": 0, "unsure": 1, "no": 2}


class Candidate(Struct, frozen=True, kw_only=True):
    """One target for one use. `why`: what stood against it, or leaves it unsure; "" for nothing.

    Times are ms, `ci95` the interval of the p95; `total_tps` is the median; the price is that of the mix of input and
    output that the target had, in US dollars.
    """

    target: str
    keeps: Keeps
    why: str = ""
    ttft_p95_ms: float | None
    ci95: tuple[float | None, float | None]
    total_tps: float | None
    usd_per_million: float | None
    requests: int


class Recommendation(Struct, frozen=True, kw_only=True):
    """Of one use. `fastest` and `cheapest` are "" where no target can be recommended; `policy` is what to put into a
    route. `good_ms`: below this the use is served well, not only borne; None: no such line."""

    use: str
    limit_ms: float
    good_ms: float | None = None
    fastest: str = ""
    cheapest: str = ""
    policy: str = ""
    candidates: list[Candidate]


def recommend(speeds: Sequence[Speed], uses: Sequence[str]) -> list[Recommendation]:
    """What to take for each of `uses`, names of `USES`. `speeds` are of targets, one each."""
    return [_for_use(use, USES[use], speeds) for use in uses]


def _for_use(use: str, limit_ms: float, speeds: Sequence[Speed]) -> Recommendation:
    judged = [_candidate(speed, limit_ms) for speed in speeds if speed.ttft_ms.n or speed.failed]
    wait = _by_price if use == BATCH else _by_wait
    ordered = sorted(judged, key=lambda c: (_ORDER[c.keeps], wait(c)))
    surest = next((c.keeps for c in ordered), "no")
    chosen = [c for c in ordered if c.keeps == surest and surest != "no"]
    fastest = min(chosen, key=_by_speed if use == BATCH else _by_wait, default=None)
    cheapest = min((c for c in chosen if c.usd_per_million is not None), key=_by_price, default=None)
    return Recommendation(
        use=use,
        limit_ms=limit_ms,
        good_ms=GOOD.get(use),
        fastest=fastest.target if fastest else "",
        cheapest=cheapest.target if cheapest else "",
        policy=_policy(use, [c.target for c in chosen], priced=cheapest is not None),
        candidates=ordered,
    )


def _candidate(speed: Speed, limit_ms: float) -> Candidate:
    p95 = speed.ttft_ms.p95
    low, high = speed.ttft_ms.ci95.get("p95", (None, None))
    keeps: Keeps = "no"
    if speed.error_share > MISSES:
        why = f"{percent(speed.error_share)} of its requests failed"
    elif p95 is None:
        why = "too many of its requests were closed before their first token to know its p95"
    elif p95 > limit_ms:
        why = f"its p95 is {number(p95)} ms"
    elif high is None:
        keeps, why = "unsure", f"only {speed.ttft_ms.n:,} requests: the p95 may be longer"
    elif high > limit_ms:
        keeps, why = "unsure", f"its p95 may be as long as {number(high)} ms"
    else:
        keeps, why = "yes", ""
    return Candidate(
        target=speed.name,
        keeps=keeps,
        why=why,
        ttft_p95_ms=p95,
        ci95=(low, high),
        total_tps=speed.total_tps.p50,
        usd_per_million=speed.usd_per_million,
        requests=speed.requests,
    )


def _by_wait(c: Candidate) -> float:
    return float("inf") if c.ttft_p95_ms is None else c.ttft_p95_ms


def _by_price(c: Candidate) -> float:
    return float("inf") if c.usd_per_million is None else c.usd_per_million


def _by_speed(c: Candidate) -> float:
    return -(c.total_tps or 0.0)


def _policy(use: str, names: Sequence[str], *, priced: bool) -> str:
    """A policy among `names`; of one target that target."""
    if len(names) < 2:
        return "".join(f'"{name}"' for name in names)
    quoted = ", ".join(f'"{name}"' for name in names)
    if priced:
        return f'cheapest({quoted}, within="{use}")'
    return f"fastest({quoted})" if use == BATCH else f'fastest({quoted}, by="ttft")'
