"""Figures of a row of sessions: what its turns wait for, what its prompt cache gives, and what
misses cost.

Tokens are the provider's, where it counts them: new and reusable tokens of the plan are scaled to
its input tokens. If it reports cached tokens in no turn, the plan says what could be reused, and
TTFT tells what was.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.row_fields import Estimated, SessionFindings, TurnClass
from splitsecond.benchmark.statistics.sessions import (
    Session,
    SessionTime,
    session_groupings,
    session_times,
    sessions_of,
)
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.money.cost import Prices, costs_usd
from splitsecond.core.observation import Observation, SessionTurn
from splitsecond.log.statistics.jackknife import Flags, intervals_of_estimates
from splitsecond.log.statistics.prefill import MAD, MIN_SCALE, PrefillModel, fitted_parts
from splitsecond.log.statistics.summary import (
    Floats,
    RoundNumbers,
    grouped_ratio_interval,
    grouped_share_interval,
)

MIN_CACHEABLE = 1_024
"""Least ideal, in tokens, of a turn that can miss: many providers cache from this length on."""
MISSED = 0.5
"""Share of its ideal that a turn finds in the cache at least, or it is a miss."""
TELLING = 6.0
"""Least distance between a fresh and a reused TTFT, in scales of a session's turns, from which one
tells which it was: half of it, where the two are parted, is three scales from either."""
OWN_SPEED = 4
"""Least number of turns for the usual speed of a session."""
TURNS = (1, 2)
NEW_TOKENS = (0, 1_000, 4_000, 16_000)
CACHED_TOKENS = (0, 1_024, 16_000, 64_000)
"""Where classes of turns begin."""
MS_PER_S = NS_PER_S / NS_PER_MS
THOUSAND = 1_000


class Turns(Struct, frozen=True):
    """Turns that were answered, as columns. Tokens are the provider's: `total` of input, of these
    `ideal` that a cache without limits has.

    `cached` are those that it had: as reported, or by the plan (then `reported` is False). `ttft_s`
    0: none. `session` numbers their sessions.
    """

    total: Floats
    ideal: Floats
    cached: Floats
    ttft_s: Floats
    session: RoundNumbers
    reported: bool

    def where(self, which: Flags) -> "Turns":
        columns = (name for name in self.__struct_fields__ if name != "reported")
        return replace(self, **{name: getattr(self, name)[which] for name in columns})

    @property
    def could_reuse(self) -> Flags:
        return self.ideal >= MIN_CACHEABLE


_NO_TURN = SessionTurn(session="")


def turns_of(answered: Sequence[Observation]) -> Turns:
    plan = [o.turn or _NO_TURN for o in answered]
    planned = np.array([turn.new_tokens + turn.reusable_tokens for turn in plan], dtype=float)
    reusable = np.array([turn.reusable_tokens for turn in plan], dtype=float)
    counts = [o.input_tokens for o in answered]
    total = np.array(
        [p if n is None else n for p, n in zip(planned, counts, strict=True)], dtype=float
    )
    ideal = np.divide(reusable * total, planned, out=np.zeros(len(planned)), where=planned > 0)
    reported = any(o.cached_tokens for o in answered)
    cached = np.array([o.cached_tokens or 0 for o in answered], dtype=float) if reported else ideal
    ttft_s = np.array([(o.ttft_ns or 0) / NS_PER_S for o in answered])
    names = np.array([turn.session for turn in plan])
    session = np.unique(names, return_inverse=True)[1]
    return Turns(total, ideal, np.minimum(cached, total), ttft_s, session, reported)


def model_of(turns: Turns) -> PrefillModel | None:
    return models_of(turns, np.ones((1, len(turns.total)), dtype=bool))[0]


def models_of(turns: Turns, parts: Flags) -> list[PrefillModel | None]:
    """Return the model of each part of the turns, which a row of `parts` flags."""
    has_ttft = turns.ttft_s > 0
    timed = turns.where(has_ttft)
    return fitted_parts(timed.total - timed.cached, timed.cached, timed.ttft_s, parts[:, has_ttft])


def judged_misses(turns: Turns, model: PrefillModel | None) -> tuple[Flags, Flags]:
    """Return two masks of turns: whether a hit or a miss is known, and whether it was a miss.

    Where the provider reports no cached tokens, TTFT tells, if that of a fresh prompt is far enough
    from that of a reused one for what the turns of a session scatter.
    """
    if turns.reported:
        return turns.could_reuse, turns.could_reuse & (turns.cached < MISSED * turns.ideal)
    nothing = np.zeros(len(turns.total), dtype=bool)
    if model is None:
        return nothing, nothing
    fresh, reused = fresh_and_reused_s(turns, model)
    timed = turns.could_reuse & (turns.ttft_s > 0) & (reused > 0) & (fresh > reused)
    distance, above = nothing * 0.0, nothing * 0.0
    distance[timed] = np.log(fresh[timed] / reused[timed])
    above[timed] = np.log(turns.ttft_s[timed] / reused[timed])
    for session in np.unique(turns.session[timed]):
        own = timed & (turns.session == session)
        if own.sum() >= OWN_SPEED:
            above[own] -= np.median(above[own])
    scale = (
        max(MAD * float(np.median(np.abs(above[timed]))), MIN_SCALE) if timed.any() else MIN_SCALE
    )
    is_known = timed & (distance > TELLING * scale)
    return is_known, is_known & (above > distance / 2)


def fresh_and_reused_s(turns: Turns, model: PrefillModel) -> tuple[Floats, Floats]:
    """Return the TTFT of the turns with nothing of their prompt in the cache, and with all of their
    ideal."""
    nothing = np.zeros(len(turns.total))
    return model.ttft_s(turns.total, nothing), model.ttft_s(turns.total - turns.ideal, turns.ideal)


def session_findings(
    sent: Sequence[Observation], prices: Prices, *, intervals: bool = True
) -> SessionFindings | None:
    """Return the figures of the sessions among `sent`, which are of one row; None if it has none.

    Without `intervals`, those of the fit are left out: they take long for very many sessions.
    """
    sessions = sessions_of(sent)
    if not sessions:
        return None
    measured = [o for session in sessions for o in session.turns]
    succeeded = [o for session in sessions for o in (*session.priming, *session.turns) if o.ok]
    is_measured = np.array([o.role == "measured" for o in succeeded], dtype=bool)
    answered = [o for o in succeeded if o.role == "measured"]
    basis = turns_of(succeeded)
    turns, model = basis.where(is_measured), model_of(basis)
    known_well, miss = (each & is_measured for each in judged_misses(basis, model))
    by, could = session_groupings(answered), known_well[is_measured]
    times = session_times(sent)
    spent, spent_by_round = _times(times)
    costs, costs_by_round = _costs(times, prices)
    cached, cached_by_round = _cached(turns, answered, by)
    fit = _FitFindings(
        model, basis, is_measured, miss, session_groupings(succeeded) if intervals else []
    )
    return SessionFindings(
        sessions=len(sessions),
        turns=len(measured),
        **_ended(times),
        **_priming(sessions, succeeded, known_well, miss & _slow_as_fresh(basis, model)),
        cache_by="usage" if basis.reported else "times" if model else "",
        **spent,
        **cached,
        misses=int(miss.sum()),
        reusing=int(could.sum()),
        miss_share=_share(miss[is_measured][could], [each[could] for each in by]),
        **fit.fields(),
        **costs,
        classes=_classes(turns, measured, answered),
        by_round=spent_by_round | costs_by_round | cached_by_round,
    )


class ExplainedTurn(Struct, frozen=True):
    """Where the TTFT of a turn comes from, in seconds, by the fit of its row.

    `ideal_s`: TTFT with all of its ideal in the cache; `new_s`: the part for new tokens; `miss_s`:
    what it takes longer because it missed the cache; 0: it did not, or nothing tells. `total`,
    `ideal` and `cached`: tokens; `cached` None: not reported.
    """

    turn: Observation
    total: float
    ideal: float
    cached: float | None
    ideal_s: float = 0.0
    new_s: float = 0.0
    miss_s: float = 0.0
    fitted: bool = False


def explained_turns(sent: Sequence[Observation]) -> list[ExplainedTurn]:
    """Return the answered measured turns of the sessions of a row, with what explains their
    TTFT."""
    succeeded = [
        o for session in sessions_of(sent) for o in (*session.priming, *session.turns) if o.ok
    ]
    if not succeeded:
        return []
    turns = turns_of(succeeded)
    model = model_of(turns)
    ideal_s = new_s = miss_s = np.zeros(len(succeeded))
    if model is not None:
        _, miss = judged_misses(turns, model)
        absent = np.where(miss, turns.ideal - turns.cached if turns.reported else turns.ideal, 0.0)
        ideal_s = fresh_and_reused_s(turns, model)[1]
        new_s = (turns.total - turns.ideal) * max(model.new, 0.0)
        miss_s = absent * max(model.new - model.reused, 0.0)
    return [
        ExplainedTurn(
            turn=o,
            total=float(turns.total[at]),
            ideal=float(turns.ideal[at]),
            cached=float(turns.cached[at]) if turns.reported else None,
            ideal_s=float(ideal_s[at]),
            new_s=float(new_s[at]),
            miss_s=float(miss_s[at]),
            fitted=model is not None,
        )
        for at, o in enumerate(succeeded)
        if o.role == "measured"
    ]


def _ratio(amounts: Floats, sizes: Floats, by: Sequence[RoundNumbers]) -> Estimated:
    whole = float(sizes.sum())
    return (
        Estimated(float(amounts.sum()) / whole, grouped_ratio_interval(amounts, sizes, by))
        if whole
        else Estimated()
    )


def _share(met: Flags, by: Sequence[RoundNumbers]) -> Estimated:
    return (
        Estimated(float(met.mean()), grouped_share_interval(met, by)) if len(met) else Estimated()
    )


Fields = dict[str, Any]
RoundParts = dict[int, tuple[float, float]]


def _ended(times: Sequence[SessionTime]) -> Fields:
    """Return how many sessions were finished and broken, and the share of the first, as fields."""
    over = [each for each in times if each.finished or each.broken]
    return {
        "finished": sum(each.finished for each in times),
        "broken": sum(each.broken for each in times),
        "ok_share": _share(
            np.array([each.finished for each in over], dtype=bool),
            session_groupings([each.session.any_request for each in over]),
        ),
    }


def _cached(
    turns: Turns, answered: Sequence[Observation], by: Sequence[RoundNumbers]
) -> tuple[Fields, dict[str, RoundParts]]:
    """Return the share of the input that could be cached and, if reported, that was, as fields, and
    by round."""
    fields = {"ideal_cached_share": _ratio(turns.ideal, turns.total, by)}
    if not turns.reported:
        return fields, {}
    fields["cached_share"] = _ratio(turns.cached, turns.total, by)
    fields["cached_of_ideal"] = _ratio(turns.cached, turns.ideal, by)
    return fields, {"cached_of_ideal": _by_round(turns.cached, turns.ideal, answered)}


def _times(times: Sequence[SessionTime]) -> tuple[Fields, dict[str, RoundParts]]:
    """Return the mean session time and what it is spent on, as fields, and by round."""
    begins = [each.session.any_request for each in times]
    by = session_groupings(begins)
    finished = np.array(_finished_by_chance(times), dtype=float)
    parts = np.array([(each.waiting_s, each.generating_s, each.tools_s) for each in times])
    whole, waiting = parts.sum(axis=1), parts[:, 0]
    fields = {
        "session_s": _per_finished(whole, finished, by),
        "waiting_s": _per_finished(waiting, finished, by),
        "waiting_share": _ratio(waiting, whole, by),
        "generating_share": _ratio(parts[:, 1], whole, by),
        "tools_share": _ratio(parts[:, 2], whole, by),
    }
    return fields, {
        "session_s": _by_round(whole, finished, begins),
        "session_waiting_s": _by_round(waiting, finished, begins),
    }


def _finished_by_chance(times: Sequence[SessionTime]) -> list[bool]:
    """Return which sessions count as finished: not those that end a round, unless no other was
    finished."""
    finished = [each.finished and not each.ends_round for each in times]
    return finished if any(finished) else [each.finished for each in times]


def _per_finished(amounts: Floats, finished: Floats, by: Sequence[RoundNumbers]) -> Estimated:
    # what scatters is the number of finished sessions
    return _inverse(_ratio(finished, amounts, by))


def _by_round(amounts: Floats, sizes: Floats, of: Sequence[Observation]) -> RoundParts:
    rounds = np.array([o.round for o in of])
    return {
        int(number): (float(amounts[rounds == number].sum()), float(sizes[rounds == number].sum()))
        for number in np.unique(rounds)
        if number
    }


def _costs(times: Sequence[SessionTime], prices: Prices) -> tuple[Fields, dict[str, RoundParts]]:
    """Return the cost of the turns ÷ the sessions that were finished while turns were measured, as
    fields, and by round."""
    price = prices.get(times[0].session.any_request.target)
    if price is None or not price.by_token:
        return {}, {}
    ends = dict(zip((each.session.name for each in times), _finished_by_chance(times), strict=True))
    owned = [
        (each.session, o)
        for each in times
        for o in each.session.requests
        if o.outcome != "cancelled"
    ]
    turns = [o for _, o in owned]
    finished = np.array(
        [ends[session.name] and o is session.requests[0] for session, o in owned], dtype=float
    )
    fresh = [
        replace(o, cached_tokens=0, cache_write_tokens=0, cache_write_1h_tokens=0) for o in turns
    ]
    fields, parts = {}, {}
    for name, billed in (("usd", turns), ("usd_uncached", fresh)):
        costs = [cost for _, cost, _ in costs_usd(billed, prices.get)]
        if None not in costs:
            usd = np.array(costs, dtype=float)
            fields[name] = _per_finished(usd, finished, session_groupings(turns))
            parts[name] = _by_round(usd, finished, turns)
    return fields, {"usd_per_session": parts["usd"]} if "usd" in parts else {}


class _FitFindings(Struct, frozen=True):
    """What a fit of TTFT says of the `counted` turns, with intervals by the jackknife. `basis`: all
    it is fitted to."""

    model: PrefillModel | None
    basis: Turns
    counted: Flags
    miss: Flags
    by: Sequence[RoundNumbers]

    def fields(self) -> dict[str, Any]:
        if self.model is None:
            return {}
        everything = np.ones(len(self.counted), dtype=bool)
        middle = self._numbers(self.model, everything)
        intervals = intervals_of_estimates(self._without, middle, self.by)
        fixed, new, reused, cost, share = map(Estimated, middle.tolist(), intervals)
        speed = _inverse(new)
        if speed.value is None or (new.ci95[0] is not None and new.ci95[0] <= 0):
            return {}  # TTFT does not tell the tokens from each other
        return {
            "fixed_ms": _scaled(fixed, MS_PER_S),
            "prefill_tokens_per_s": speed,
            "ms_per_1000_cached_tokens": _scaled(reused, THOUSAND * MS_PER_S),
            **({"miss_s": cost, "miss_waiting_share": share} if self.miss.any() else {}),
        }

    def _without(self, parts: Flags) -> list[Floats | None]:
        return [
            None if model is None else self._numbers(model, part)
            for model, part in zip(models_of(self.basis, parts), parts, strict=True)
        ]

    def _numbers(self, model: PrefillModel, part: Flags) -> Floats:
        gone = self.basis.where(part & self.miss)
        absent = gone.ideal - gone.cached if gone.reported else gone.ideal
        cost = float(absent.sum()) * max(model.new - model.reused, 0.0)
        waiting = float(self.basis.ttft_s[part & self.counted].sum())
        return np.array(
            [
                model.fixed,
                model.new,
                model.reused,
                cost / max(len(absent), 1),
                cost / waiting if waiting else 0.0,
            ]
        )


def _inverse(of: Estimated) -> Estimated:
    """Return 1 / `of`, undefined for 0; where 0 is within the interval, it has no upper bound."""
    if not of.value or of.value < 0:
        return Estimated()
    low, high = of.ci95
    return Estimated(
        1 / of.value, (1 / high if high else None, 1 / low if low is not None and low > 0 else None)
    )


def _scaled(of: Estimated, by: float) -> Estimated:
    low, high = (None if bound is None else bound * by for bound in of.ci95)
    return Estimated(None if of.value is None else of.value * by, (low, high))


def _slow_as_fresh(turns: Turns, model: PrefillModel | None) -> Flags:
    if model is None:
        return np.ones(len(turns.total), dtype=bool)
    fresh, reused = fresh_and_reused_s(turns, model)
    return np.asarray(np.square(turns.ttft_s) > fresh * reused)


def _priming(
    sessions: Sequence[Session], succeeded: Sequence[Observation], known_well: Flags, fresh: Flags
) -> dict[str, Any]:
    """Return how many sessions were primed, as fields, and the names of those whose first turn was
    like a fresh one."""
    judged = {
        o.id: bool(gone) for o, well, gone in zip(succeeded, known_well, fresh, strict=True) if well
    }
    primed = [s for s in sessions if s.priming and s.turns[0].id in judged]
    return {"primed": len(primed), "unprimed": [s.name for s in primed if judged[s.turns[0].id]]}


def _classes(
    turns: Turns, measured: Sequence[Observation], answered: Sequence[Observation]
) -> list[TurnClass]:
    """Return the classes that have turns; failed turns have a number in their session, but no
    tokens."""
    numbers = np.array([o.turn.turn if o.turn else 0 for o in measured], dtype=float)
    return [
        *_of_class("turn", TURNS, measured, numbers),
        *_of_class("new tokens", NEW_TOKENS, answered, turns.total - turns.cached),
        *_of_class("cached tokens", CACHED_TOKENS, answered, turns.cached),
    ]


def _of_class(
    by: str, begins: Sequence[int], turns: Sequence[Observation], values: Floats
) -> list[TurnClass]:
    classes = []
    for low, high in zip(begins, [*begins[1:], None], strict=True):
        own = [
            o
            for o, n in zip(turns, values.tolist(), strict=True)
            if n >= low and (high is None or n < high)
        ]
        if own:
            classes.append(
                TurnClass(by=by, low=low, high=high, ttft_ms=FIGURES["ttft_ms"].summarise(own))
            )
    return classes
