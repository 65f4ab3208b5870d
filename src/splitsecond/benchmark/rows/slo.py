"""Service level objective: limits that every request should meet, ``ttft=300ms,tpot=20ms`` or the
name of a use.

A named use sets one limit or none; a batch needs only a response. An open loop is judged from when
a request was due: a user does not care why it waited.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.rows.figures import FIGURES, ttft_figure
from splitsecond.benchmark.rows.metric import Figure
from splitsecond.benchmark.rows.row_fields import Goodput
from splitsecond.benchmark.statistics.sessions import session_groupings
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.timing.uses import USES
from splitsecond.log.statistics.summary import Interval, grouped_share_interval, share_interval

_UNITS_IN_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_LIMIT = re.compile(r"(?P<name>[a-z0-9_]+)\s*=\s*(?P<value>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>[a-z]*)")
_AT_P95 = re.compile(
    r"(?P<figure>[a-z0-9_]+)\.p95\s*(?P<sign>[<>])=?\s*(?P<value>\d+(?:\.\d+)?|\.\d+)"
)
"""A limit as a gate of `compare` has it. A capacity search asks for 95% of the requests by
default."""
_LIMITED: dict[str, Callable[[bool], Figure]] = {
    "ttft": lambda open_loop: ttft_figure(open_loop=open_loop),
    "tpot": lambda open_loop: FIGURES["tpot_ms"],
    "ttft_first_turn": lambda open_loop: FIGURES["ttft_first_turn_ms"],
    "ttft_later_turns": lambda open_loop: FIGURES["ttft_later_turns_ms"],
    "e2e": lambda open_loop: FIGURES["e2e_ms"].under(open_loop=open_loop),
    "tps": lambda open_loop: FIGURES["tps"],
    "agent": lambda open_loop: FIGURES["agent_ms"],
}
_ALLOWED = (
    f"Allowed: {', '.join(_LIMITED)}, separated by commas, times in us, ms or s, as in "
    f"'ttft=300ms,tpot=20ms,tps=50'; 'ttft_ms.p95 < 300', in ms; or one of {', '.join(USES)}."
)


class Slo(Struct, frozen=True, kw_only=True):
    """Limits of every request: at most that many ms, for "tps" at least that many tokens/s.
    "ttft_first_turn" and "ttft_later_turns" limit these turns of sessions only.

    `use` is the named use they belong to, or "".
    """

    limits: dict[str, float]
    use: str = ""

    def met_by(self, observation: Observation, *, open_loop: bool) -> bool:
        """Return whether the request met every limit. One that failed, or lacks such a figure, did
        not."""
        return observation.ok and not self.missed_by(observation, open_loop=open_loop)

    def missed_by(self, observation: Observation, *, open_loop: bool) -> list[str]:
        return [
            name
            for name, limit in self.limits.items()
            if not self._within(name, limit, observation, open_loop)
        ]

    def goodput(
        self,
        sent: Sequence[Observation],
        per_s: float | None,
        *,
        open_loop: bool,
        of_round: int | None = None,
    ) -> Goodput:
        """Return how many of the requests `sent` met the limits, and how many per second if `per_s`
        requests ended.

        `of_round`: see `share_interval`.
        """
        within = [(o.round, self.met_by(o, open_loop=open_loop)) for o in sent]
        met = sum(each for _, each in within)
        return Goodput(
            limits=self.limits,
            use=self.use,
            met=met,
            sent=len(sent),
            fraction=met / len(sent) if sent else 0.0,
            per_s=per_s * met / len(sent) if sent and per_s is not None else None,
            ci95=share_of(sent, within, of_round),
        )

    def _within(self, name: str, limit: float, observation: Observation, open_loop: bool) -> bool:
        figure = limited(name, open_loop=open_loop)
        if not figure.among(observation):
            return True
        value = figure.value(observation)
        # an answer of one token has no speed after its first token that could miss a limit
        if value is None:
            return figure.counts_tokens and observation.streamed_tokens in (0, 1)
        return bool(value >= limit if figure.higher_is_better else value <= limit)


def share_of(
    sent: Sequence[Observation], within: Sequence[tuple[int, bool]], of_round: int | None
) -> Interval:
    """Return the interval of a share of requests. `within`: the round of each, and whether it
    counts."""
    if any(o.turn for o in sent):
        return grouped_share_interval(
            np.array([each for _, each in within]), session_groupings(sent)
        )
    met_by_round, by_round = (
        Counter(number for number, each in within if each),
        Counter(n for n, _ in within),
    )
    return share_interval(
        np.array([met_by_round[number] for number in by_round], dtype=np.float64),
        np.array(list(by_round.values()), dtype=np.float64),
        of_round,
    )


def limited(name: str, *, open_loop: bool) -> Figure:
    return _LIMITED[name](open_loop)


def parse_slo(text: str) -> Slo:
    """Parse limits, ``ttft=300ms,e2e=5s,tps=50`` or ``ttft_ms.p95 < 300``, or the name of a use,
    ``voice``.

    Raises `CallerFault`.
    """
    lowered = text.strip().lower()
    if lowered in USES:
        return Slo(limits=USES[lowered].limits, use=lowered)
    limits: dict[str, float] = {}
    for part in lowered.split(","):
        name, limit = _parse_limit(part.strip(), text)
        if name in limits:
            raise _wrong(text, f"{name} is limited twice")
        limits[name] = limit
    return Slo(limits=limits)


def _parse_limit(part: str, text: str) -> tuple[str, float]:
    if gate := _AT_P95.fullmatch(part):
        name = next(
            (each for each in _LIMITED if gate["figure"] == limited(each, open_loop=False).name), ""
        )
        if not name or (gate["sign"] == ">") != (name == "tps"):
            raise _wrong(text, f"{part!r} is not a limit")
        return name, float(gate["value"])
    match = _LIMIT.fullmatch(part)
    if match is None:
        raise _wrong(text, f"{part!r} is neither a limit nor a use")
    name, value, unit = match["name"], float(match["value"]), match["unit"]
    if name not in _LIMITED:
        raise _wrong(text, f"there is no limit called {name!r}")
    if name == "tps":
        if unit:
            raise _wrong(text, f"tps is a number of tokens per second without a unit, got {part!r}")
        return name, value
    if unit not in _UNITS_IN_MS:
        raise _wrong(text, f"{name} needs a time with its unit, got {part!r}")
    return name, value * _UNITS_IN_MS[unit]


def _wrong(text: str, what: str) -> CallerFault:
    return CallerFault(f"cannot read the limits {text!r}: {what}", kind="bad_slo", hint=_ALLOWED)
