"""The driver of a run without a fixed number of requests: rounds follow until a goal is reached.

The goal is a precision of each condition's figures, a duration of the run, or both, whichever comes first. A condition
that is precise enough takes no part in further rounds. A round begins only if it is likely to end in time, as long as
the longest one before.
"""

from collections.abc import Callable, Iterator

from splitsecond import clock
from splitsecond.analysis.precision import Unmet
from splitsecond.loadgen.block import RequestBlock
from splitsecond.loadgen.plan import ROUNDS, RunPlan

MOST_ROUNDS = 1000
"""Most rounds of a run."""

Judge = Callable[[str], list[Unmet]]
"""Returns the figures of a condition that are not precise enough yet."""


def rounds_until(
    plan: RunPlan, lane: list[RequestBlock], judge: Judge | None, duration_ns: int | None
) -> Iterator[RequestBlock]:
    """Yield the blocks of `lane`, and of further rounds like its last one, until the goal is reached.

    `judge` decides about the precision from round `ROUNDS` on (None: it has no part). `duration_ns` counts from now.
    """
    begun_ns = clock.now_ns()
    longest_ns, precise = 0, set[str]()
    blocks: list[RequestBlock] = []
    for number in range(1, MOST_ROUNDS + 1):
        planned = [block for block in lane if block.round == number]
        blocks = [b for b in planned or plan.next_round(blocks, number) if b.condition not in precise]
        round_ns = clock.now_ns()
        if duration_ns is not None and round_ns + longest_ns > begun_ns + duration_ns:
            return
        yield from blocks
        longest_ns = max(longest_ns, clock.now_ns() - round_ns)
        if judge is not None and number >= ROUNDS:
            precise |= {block.condition for block in blocks if not judge(block.condition)}
        if precise >= {block.condition for block in blocks}:
            return
