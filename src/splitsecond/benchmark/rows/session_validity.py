from splitsecond.benchmark.rows.check_inputs import ERROR_SHARE, CheckInputs
from splitsecond.benchmark.rows.lateness import dispatch_late_ns
from splitsecond.benchmark.statistics.sessions import critical_path, sessions_of
from splitsecond.benchmark.statistics.steady import done_ns, due_ns
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.wording import counted, counted_as, listed, number, percent
from splitsecond.log.statistics.summary import MIN_CLUSTERS, MIN_ROUNDS

BROKEN_SHARE = 0.1
"""Share of sessions that may break: the turns after it are those of the others only."""
UNPRIMED_SHARE, UNPRIMED_RATIO = 0.2, 3.0
"""Share of first turns that may miss a cache that was primed, and how many times that of later
turns it may be: what misses as often in later turns is the provider's cache, not the priming."""
NAMES_SHOWN = 3


def sessions_late(inputs: CheckInputs) -> str:
    """Return whether turns left late. It does not change TTFT, but the time of sessions."""
    if inputs.findings.session is None:
        return ""
    paths = [critical_path(session.turns) for session in sessions_of(inputs.measured)]
    late_ns = sum(dispatch_late_ns(o) or 0 for path in paths for o in path)
    length_ns = sum(done_ns(path[-1]) - due_ns(path[0]) for path in paths)
    if late_ns <= ERROR_SHARE * length_ns:
        return ""
    mean_ms = late_ns / sum(map(len, paths)) / NS_PER_MS
    return (
        f"client overloaded: turns were sent {number(mean_ms)} ms late on average, so session time "
        f"is {percent(late_ns / length_ns)} too long (allowed: {percent(ERROR_SHARE)}). Use more "
        "workers or a less busy machine."
    )


def primed_badly(inputs: CheckInputs) -> str:
    found = inputs.findings.session
    if found is None or not found.primed:
        return ""
    first = len(found.unprimed) / found.primed
    later = (found.misses - len(found.unprimed)) / max(found.reusing - found.primed, 1)
    if first <= UNPRIMED_SHARE or first <= UNPRIMED_RATIO * later:
        return ""
    more = len(found.unprimed) - NAMES_SHOWN
    shown = [
        name.removeprefix(f"{inputs.asked.condition}-") for name in found.unprimed[:NAMES_SHOWN]
    ]
    names = [*shown, *([f"{more:,} more"] if more > 0 else [])]
    how = "reports no cached tokens and takes" if found.cache_by == "usage" else "takes"
    return (
        f"the cache was primed badly in {len(found.unprimed):,} of {found.primed:,} sessions "
        f"({listed(names)}): their "
        f"first turn {how} as long as a fresh prompt. Later turns missed in {percent(later)}."
    )


def sessions_broke(inputs: CheckInputs) -> str:
    found = inputs.findings.session
    ended = 0 if found is None else found.finished + found.broken
    if found is None or found.broken <= BROKEN_SHARE * ended:
        return ""
    return (
        f"{found.broken:,} of {ended:,} sessions that ended broke "
        f"({counted(inputs.findings.error_kinds)}), so later "
        "turns are those of the other sessions only."
    )


def few_sessions(inputs: CheckInputs) -> str:
    found = inputs.findings.session
    if found is None or inputs.findings.ttft_ms.rounds or found.sessions >= MIN_CLUSTERS:
        return ""
    return (
        f"{counted_as(found.sessions, 'session is', 'sessions are')} too few for intervals: it "
        f"takes {MIN_CLUSTERS}, or {MIN_ROUNDS} rounds."
    )
