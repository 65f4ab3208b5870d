"""How far apart the rounds of a run are, and so about which time its figures speak.

A slow time is forgotten from one round to the next if rounds are three times as far apart as it
lasts. Longer ones make neighbouring rounds alike, and intervals too narrow. So a run whose rounds
follow each other describes its own minutes and nothing else (`benchmarks/coverage.py`).
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import median, median_low

from msgspec import Struct

from splitsecond.benchmark.statistics.steady import begin_ns
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import LOAD_ROLES, Observation
from splitsecond.core.wording import Statement, number, percent
from splitsecond.log.statistics.summary import MIN_ROUNDS

CLAIM_APART_S = 150.0
"""Least distance of rounds of a run that says anything about other minutes: of two equal targets
with slow minutes, it then names one first in about 6% of runs."""
APART_PER_SLOW = 3
CLAIM = "--over 15m"
CLAIM_OF_FILES = "files of several days"
"""What it takes for results of other tools, which have no rounds."""
RARE_SHARE, RARE_DOUBT = 0.2, 0.05
"""Share of the time of a slow state that a report warns of, where more than this share of runs has
no round in it."""
REQUESTS_OF_ROUND = 5
"""Most independent requests that a round counts as in an interval, where rounds are so few that
they may well miss such a state: of 200 requests in six rounds, intervals then hold in 97% of runs,
and without it in 81%."""
LONG_S = 120


class RoundSpread(Struct, frozen=True, kw_only=True):
    """Rounds of a run in time.

    `apart_s`: from the start of a round, warm-ups included, to the start of the next one: the
    median. Null: there is one round. `rounds` of a row: the median, the lower one of two.
    `period_s`: from the first measured request to the end of the last.
    """

    apart_s: float | None
    rounds: int
    period_s: float

    @property
    def claims(self) -> bool:
        """Whether the run says anything about other minutes."""
        if self.apart_s is None or self.rounds < MIN_ROUNDS:
            return False
        return round(self.apart_s) >= CLAIM_APART_S  # a planned round begins milliseconds late

    @property
    def misses_states(self) -> bool:
        """Whether a state that holds `RARE_SHARE` of the time may well be in no round."""
        return self._unseen >= RARE_DOUBT

    @property
    def requests_of_round(self) -> int | None:
        """Most independent requests that a round counts as in intervals; None: as many as it has.

        The intervals of a run without claims describe its own time only.
        """
        return REQUESTS_OF_ROUND if self.claims and self.misses_states else None

    @property
    def _unseen(self) -> float:
        return (1 - RARE_SHARE) ** self.rounds

    @property
    def longest_slow_s(self) -> float:
        """The longest slow time that intervals contain."""
        return (self.apart_s or 0.0) / APART_PER_SLOW

    def period(self, *, short: bool = True) -> str:
        """Format the time that was measured: "these 42 s", or "these 42 seconds"."""
        if self.period_s < LONG_S:
            return f"these {_rounded(self.period_s)} {'s' if short else 'seconds'}"
        return f"these {_rounded(self.period_s / 60)} {'min' if short else 'minutes'}"

    def advice(self, *, of_tool: bool) -> str:
        """Say what it takes to say something about other minutes. `of_tool`: another tool's."""
        if of_tool:
            return f"For a claim about other minutes: {CLAIM_OF_FILES} (compare --before --after)."
        several_runs = "" if self.apart_s is not None else "several runs, or if it is no trace, "
        return f"For a claim about other minutes: {several_runs}{CLAIM}."

    @property
    def only(self) -> str:
        """The beginning of what a run without claims says: "These 42 seconds only"; "" for a run
        with claims."""
        return "" if self.claims else f"{self.period(short=False).capitalize()} only"


def round_spread(observations: Iterable[Observation]) -> RoundSpread | None:
    """Return how the measured requests lie in time; None without any."""
    begins: dict[int, int] = {}
    rows: defaultdict[str, set[int]] = defaultdict(set)
    first_ns, last_ns = None, 0
    for o in observations:
        if o.role not in LOAD_ROLES:
            continue
        start_ns = begin_ns(o)
        begins[o.round] = min(start_ns, begins.get(o.round, start_ns))
        if o.role == "measured":
            rows[o.condition].add(o.round)
            first_ns, last_ns = min(start_ns, first_ns or start_ns), max(last_ns, o.end_ns)
    if first_ns is None:
        return None
    apart = [b - a for a, b in pairwise(sorted(begins.values()))]
    return RoundSpread(
        apart_s=median(apart) / NS_PER_S if apart else None,
        rounds=median_low(map(len, rows.values())),
        period_s=(last_ns - first_ns) / NS_PER_S,
    )


def spread_statement(spread: RoundSpread, *, of_tool: bool = False) -> Statement:
    """Return what the intervals of a run contain, and what to do for more. `of_tool`: another tool
    measured it."""
    advice = spread.advice(of_tool=of_tool)
    if spread.apart_s is None:
        one = f"{spread.only}: one round shows no slow times."
        return Statement(f"{one} {advice}", f"{one}\n{advice}")
    began = f"ounds began {_rounded(spread.apart_s)} s apart"
    contain = f"slow times longer than {_rounded(spread.longest_slow_s)} s are in no interval"
    if not spread.claims:
        return Statement(
            f"{spread.only}: r{began}, so {contain}. {advice}",
            f"{spread.only}: r{began}.\n{contain.capitalize()}.\n{advice}",
        )
    if not spread.misses_states:
        return Statement(f"R{began}: {contain}.")
    missed = percent(round(spread._unseen, 2))
    rare = (
        f"a state that holds {percent(RARE_SHARE)} of the time is in no round of {missed} of runs"
    )
    return Statement(
        f"R{began}: {contain}, and {rare}, so p95 has one bound at most.",
        f"R{began}: {contain}.\n{rare.capitalize()},\nso p95 has one bound at most.",
    )


def _rounded(value: float) -> str:
    if value >= 10:
        return f"{value:,.0f}"
    return number(round(value, 1) if value > 0.1 else float(f"{value:.1g}"))
