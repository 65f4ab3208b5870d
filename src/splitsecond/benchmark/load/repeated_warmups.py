"""How many warm-ups a plan sends where responses are short.

A closed loop measures as soon as nearly all slots have had a first token (`block.FILLED`). The
slots start over the time of one TTFT, so filling them takes about two. A slot whose warm-up, of
random length, ends before that sends another one, because the load must stay up. With responses
that take many times their TTFT that is rare; with a few tokens each slot sends about two.
"""

from collections.abc import Mapping

import msgspec

from splitsecond.benchmark.load.block import FILLED
from splitsecond.benchmark.load.calibration import Calibrated
from splitsecond.benchmark.load.plan import Condition, RunPlan


def with_repeated_warmups(plan: RunPlan, piloted: Mapping[str, Calibrated]) -> RunPlan:
    """Return the plan with the warm-ups that are expected to be sent, for estimates. `piloted` has
    the times of a request alone; under load more are repeated."""
    conditions = [_expected(each, piloted.get(each.target)) for each in plan.conditions]
    return msgspec.structs.replace(plan, conditions=conditions)


def _expected(condition: Condition, pilot: Calibrated | None) -> Condition:
    slots = condition.load.concurrency or 0
    if pilot is None or not pilot.ttft_ns or not pilot.response_ns or slots < 2:
        return condition
    ratio = (pilot.response_ns - pilot.ttft_ns) / pilot.ttft_ns
    warmups = round(condition.warmups * (1 + repeated_share(ratio)))
    return msgspec.structs.replace(condition, warmups=warmups)


def repeated_share(ratio: float) -> float:
    """Return the share of warm-ups that end before the slots are filled. `ratio`: time of a
    response after its first token ÷ TTFT.

    A slot starts at p and its warm-up lasts 1 + u × `ratio`, in TTFTs, with p and u uniform in 0 to
    1: it ends before `FILLED` + 1 if p + u × `ratio` is below `FILLED`.
    """
    if ratio <= FILLED:
        return FILLED - max(ratio, 0.0) / 2
    return FILLED**2 / (2 * ratio)
