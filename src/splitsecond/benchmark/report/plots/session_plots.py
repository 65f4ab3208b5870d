"""Plots of sessions: TTFT by turn above its ideal, the slowest session, the share of the prompt
cache over the run."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.report import rows
from splitsecond.benchmark.report.plots.plot_frame import legends, level_slug, target_entries_of
from splitsecond.benchmark.report.plots.request_plots import Bars
from splitsecond.benchmark.report.plots.series import QUEUE_NAMES, joined_ns, steps_of
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.sessions import ExplainedTurn, explained_turns
from splitsecond.benchmark.statistics.sessions import Session, as_requests, sessions_of
from splitsecond.benchmark.statistics.steady import done_ns, due_ns
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.core.pages.axis import Axis, fitted, linear
from splitsecond.core.pages.chart import LINE, ROW, Chart, Plot, Point, picture
from splitsecond.core.pages.figure_cells import number
from splitsecond.core.timing.server_times import duration_ns, step_name

MS_PER_S = 1_000
PLACES = 24
"""Most points of a line by turn; beyond, neighbouring turns share one."""
MIN_TURNS = 3
"""Least number of turns of a point."""
SHARES, MIN_SHARE_TURNS = 24, 8
"""Most points of a line over the run, and the least number of turns of each: the share of a single
turn says little."""
TURNS_SHOWN = 28
"""Most turns of a session that are drawn: the longest ones of it."""
ROW_HEIGHT = ROW + 2
MAX_AGENT = 6
"""Most characters of the name of a sub-agent beside its turn."""
Explained = Mapping[str, Sequence[ExplainedTurn]]
WithIdeal = tuple[list[Point], list[Point]]
"""The line of what was measured, and that of its ideal."""


class TurnPart(Struct, frozen=True, kw_only=True):
    name: str
    begin_s: float
    end_s: float


def session_plots(run: Run, observations: Sequence[Observation]) -> list[Plot]:
    own = [c for c in run.conditions if c.session is not None]
    if not own:
        return []
    sent = grouped(observations, lambda o: o.condition)
    explained = {c.condition: explained_turns(sent[c.condition]) for c in own}
    levels = [level for level in rows.levels(run) if any(c.session for c in level.conditions)]
    return [
        *(plot for level in levels for plot in _by_turn(run, level, explained)),
        *(plot for level in levels for plot in _over_run(run, level, explained, sent)),
        *_slowest(run, own, explained, sent),
    ]


def _by_turn(run: Run, level: rows.LoadLevel, explained: Explained) -> list[Plot]:
    lines = {c.target: _median_ttft(explained.get(c.condition, ())) for c in level.conditions}
    values = [ms for both in lines.values() for line in both for _, ms in line if ms > 0]
    if not values:
        return []
    last = max(x for measured, _ in lines.values() for x, _ in measured)
    x = linear("turn of the session", 1, max(last, 2), grid=False)
    chart = Chart(x, fitted("TTFT, ms", values))
    _add_with_ideal(chart, run, lines)
    return [
        picture(
            chart,
            name=f"turns-{level_slug(level)}",
            section="sessions",
            title=f"TTFT by turn, {level.title.lower()}",
            description="The median TTFT of the first turn of the sessions, of the second and so "
            "on. Dashed below it: what it would be if the prompt cache held all that came before.",
        )
    ]


def _add_with_ideal(chart: Chart, run: Run, lines: Mapping[str, WithIdeal]) -> None:
    entries = target_entries_of(run)
    for target, (measured, ideal) in lines.items():
        chart.add(entries[target], chart.line(measured, tip=target))
        chart.add(entries[target], chart.line(ideal, dash=True, tip=f"{target}, ideal"))


def _median_ttft(explained: Sequence[ExplainedTurn]) -> WithIdeal:
    turns = [each for each in explained if each.turn.ttft_ns]
    with_ideal = [each for each in turns if each.fitted]
    return (
        _medians(turns, [(each.turn.ttft_ns or 0) / NS_PER_S for each in turns]),
        _medians(with_ideal, [each.ideal_s for each in with_ideal]),
    )


def _medians(turns: Sequence[ExplainedTurn], seconds: Sequence[float]) -> list[Point]:
    """Return the median of each turn's `seconds`, in ms, by its number in the main conversation."""
    numbers = np.array([each.turn.turn.turn if each.turn.turn else 0 for each in turns])
    main = np.array(
        [bool(each.turn.turn and not each.turn.turn.branch) for each in turns], dtype=bool
    )
    values = np.array(seconds) * MS_PER_S
    if not main.any():
        return []
    wide = -(-int(numbers[main].max()) // PLACES)
    points = []
    for place in range(0, int(numbers[main].max()), wide):
        own = main & (numbers > place) & (numbers <= place + wide)
        if own.sum() >= MIN_TURNS:
            points.append((float(numbers[own].mean()), float(np.median(values[own]))))
    return points


def _over_run(
    run: Run, level: rows.LoadLevel, explained: Explained, sent: Mapping[str, Sequence[Observation]]
) -> list[Plot]:
    shares: dict[str, WithIdeal] = {}
    flying: dict[str, list[Point]] = {}
    for c in level.conditions:
        requests, turns = as_requests(sent[c.condition]), explained.get(c.condition)
        if requests and turns:
            shift = joined_ns(requests)
            shares[c.target] = _cached_shares(turns, shift)
            flying[c.target] = _in_flight(requests, shift)
    if not flying:
        return []
    end = max(line[-1][0] for line in flying.values())
    most = max(count for line in flying.values() for _, count in line)
    seconds = linear("seconds under this load, its rounds joined", 0, end or 1, grid=False)
    charts = []
    left = Chart(seconds, _share_axis(), height=160).left
    if any(measured for measured, _ in shares.values()):
        upper = Chart(linear("", 0, end or 1, grid=False), _share_axis(), height=160)
        _add_with_ideal(upper, run, shares)
        charts.append(upper)
    below = Axis(
        title="sessions in flight", low=0, high=most * 1.1, ticks=[(0, "0"), (most, f"{most:,.0f}")]
    )
    lower, entries = Chart(seconds, below, height=64, left=left), target_entries_of(run)
    for target, line in flying.items():
        lower.add(entries[target], lower.line(line, steps=True, tip=target), look="thin")
    return [
        picture(
            *charts,
            lower,
            name=f"cached-{level_slug(level)}",
            section="sessions",
            title=f"{'Cached input and sessions' if charts else 'Sessions'} in flight, "
            f"{level.title.lower()}",
            description="The share of the input that came from the prompt cache over the run, "
            "dashed that of a cache without limits, and below it the number of sessions in flight. "
            "The time between rounds is left out.",
        )
    ]


def _cached_shares(explained: Sequence[ExplainedTurn], shift: Mapping[int, int]) -> WithIdeal:
    turns = sorted(explained, key=lambda each: due_ns(each.turn))
    at = [(due_ns(each.turn) + shift[each.turn.round]) / NS_PER_S for each in turns]
    total = [each.total for each in turns]
    return (
        _shares(at, [each.cached for each in turns], total),
        _shares(at, [each.ideal for each in turns], total),
    )


def _in_flight(requests: Sequence[Observation], shift: Mapping[int, int]) -> list[Point]:
    return steps_of(
        sorted(
            ((when + shift[o.round]) / NS_PER_S, change)
            for o in requests
            for when, change in ((o.start_ns, 1), (o.end_ns, -1))
        )
    )


def _share_axis() -> Axis:
    return Axis(
        title="cached share of input",
        low=0,
        high=1,
        ticks=[(s, f"{s:.0%}") for s in (0, 0.25, 0.5, 0.75, 1)],
    )


def _shares(
    at: Sequence[float], parts: Sequence[float | None], wholes: Sequence[float]
) -> list[Point]:
    if None in parts:
        return []
    points = []
    for own in np.array_split(np.arange(len(at)), min(SHARES, max(len(at) // MIN_SHARE_TURNS, 1))):
        whole = sum(wholes[i] for i in own)
        if whole:
            points.append(
                (sum(at[i] for i in own) / len(own), sum(parts[i] or 0.0 for i in own) / whole)
            )
    return points


def _slowest(
    run: Run,
    own: Sequence[ConditionFindings],
    explained: Explained,
    sent: Mapping[str, Sequence[Observation]],
) -> list[Plot]:
    plots = []
    for place, target in enumerate(dict.fromkeys(c.target for c in own)):
        unbroken = [
            (session.last_ns - due_ns(session.turns[0]), c, session)
            for c in own
            if c.target == target
            for session in sessions_of(sent[c.condition])
            if not session.broken
        ]
        if unbroken:
            _, c, session = max(unbroken, key=lambda each: each[0])
            parts = {each.turn.id: each for each in explained[c.condition]}
            plots.append(_waterfall(run, f"session-{place}", c, session, parts))
    return plots


def _waterfall(
    run: Run,
    name: str,
    c: ConditionFindings,
    session: Session,
    explained: Mapping[str, ExplainedTurn],
) -> Plot:
    turns = sorted(session.turns, key=lambda o: done_ns(o) - due_ns(o))[-TURNS_SHOWN:]
    turns.sort(key=due_ns)
    begin = due_ns(session.turns[0])
    x = linear(
        "seconds since its first measured turn",
        0,
        (max(map(done_ns, turns)) - begin) / NS_PER_S * 1.12,
    )
    chart, entries = (
        Chart(x, None, height=len(turns) * ROW_HEIGHT, left=112),
        legends(run)["session"],
    )
    bars = Bars(chart, 2)
    for at, o in enumerate(turns):
        y, steps = at * ROW_HEIGHT, turn_parts(o, explained.get(o.id), begin)
        chart.add(
            None, chart.text(104, chart.top + y + LINE, _turn_name(o), anchor="end", look="name")
        )
        for step in steps:
            bars.bar(step.name, step.begin_s, step.end_s, y)
        tip = [_turn_name(o), *(f"{s.name}: {number(s.end_s - s.begin_s)} s" for s in steps)]
        bars.end_row(
            y, ROW_HEIGHT, steps[-1].end_s, f"{number((done_ns(o) - due_ns(o)) / NS_PER_S)}", tip
        )
    bars.draw(entries)
    some = (
        f"the {len(turns):,} longest of its {len(session.turns):,} turns"
        if len(turns) < len(session.turns)
        else ""
    )
    return picture(
        chart,
        name=name,
        section="slowest-session",
        title=", ".join(
            filter(
                None,
                [f"{c.target}, {rows.load_words(c)}: session {session_name(c, session)}", some],
            )
        ),
        description=f"The slowest session without an error, {some or 'turn by turn'}: the tools "
        "before a turn, the parts of its TTFT by the fit of its row, and its answer. The number is "
        "the seconds from when it was due.",
        legend="session",
        heading=f"The slowest session · {c.target}",
    )


def _queue_ns(o: Observation) -> int:
    reported = (
        duration_ns(name, value)
        for name, value in o.server_timings.items()
        if step_name(name) in QUEUE_NAMES
    )
    return round(sum(ns or 0.0 for ns in reported))


def session_name(c: ConditionFindings, session: Session) -> str:
    return session.name.removeprefix(f"{c.condition}-")


def _turn_name(o: Observation) -> str:
    assert o.turn is not None
    agent = f"agent {o.turn.branch.removeprefix('agent ')[:MAX_AGENT]}, " if o.turn.branch else ""
    return f"{agent}turn {o.turn.turn}"


def turn_parts(o: Observation, explained: ExplainedTurn | None, begin_ns: int) -> list[TurnPart]:
    """Return what a turn does, in order, cut where the first token came.

    The network is the round trip of the connection, and the queue what the server reports; the
    other parts of TTFT are those of the fit.
    """
    due = due_ns(o)
    first = done_ns(o) if o.first_token_ns is None else o.first_token_ns
    wait_ns = o.turn.wait_ns if o.turn else 0
    new_ns, miss_ns = (
        round(s * NS_PER_S)
        for s in ((explained.new_s, explained.miss_s) if explained else (0.0, 0.0))
    )
    other = max(first - due - new_ns - miss_ns, 0)
    ends = {
        "tools": due,
        "network and queue": due + min((o.rtt_ns or 0) + _queue_ns(o), other),
        "other waiting": min(due + other, first),
        "reading new tokens": min(due + other + new_ns, first),
        "cache miss": first,
        "generating": done_ns(o),
    }
    if not miss_ns:
        ends["reading new tokens"] = first
    if not new_ns:
        ends["other waiting"] = min(due + other, first) if miss_ns else first
    parts, at = [], max(due - wait_ns, begin_ns)
    for name, end in ends.items():
        if end > at:
            parts.append(
                TurnPart(
                    name=name, begin_s=(at - begin_ns) / NS_PER_S, end_s=(end - begin_ns) / NS_PER_S
                )
            )
            at = end
    return parts
