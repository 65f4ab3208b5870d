"""Limits that a request is held against: ``ttft=300ms,tpot=20ms``, or the name of a use.

A named use limits the time to first token, and is met by a target whose p95 meets it. An open loop is judged from
when a request was due: a user does not care why it waited.
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from splitsecond.analysis.figures import FIGURES, Figure, ttft_figure
from splitsecond.analysis.findings import Goodput
from splitsecond.analysis.steady import Windows, per_second
from splitsecond.errors import CallerFault
from splitsecond.timing.observation import Observation
from splitsecond.timing.uses import USES

GOOD: dict[str, float] = {"chat": 1000.0}
"""Where a use is borne at one limit but good only below another."""

_UNITS_IN_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_LIMIT = re.compile(r"(?P<name>[a-z0-9_]+)\s*=\s*(?P<value>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>[a-z]*)")
_LIMITED: dict[str, Callable[[bool], Figure]] = {
    "ttft": lambda open_loop: ttft_figure(open_loop=open_loop),
    "tpot": lambda open_loop: FIGURES["tpot_ms"],
    "e2e": lambda open_loop: FIGURES["response_ms" if open_loop else "e2e_ms"],
    "tps": lambda open_loop: FIGURES["tps"],
}
_ALLOWED = (
    f"Allowed: {', '.join(_LIMITED)}, separated by commas, times in us, ms or s, as in 'ttft=300ms,tpot=20ms,tps=50'; "
    f"or one of {', '.join(USES)}."
)


class Slo(Struct, frozen=True, kw_only=True):
    """What every request should keep to. `limits` are at most so many ms, for "tps" at least so many tokens/s.

    `use` is the name it was asked by, or "".
    """

    limits: dict[str, float]
    use: str = ""

    def met_by(self, observation: Observation, *, open_loop: bool) -> bool:
        """Whether the request met every limit. One that failed, or has no such figure, did not."""
        return observation.ok and not self.missed_by(observation, open_loop=open_loop)

    def missed_by(self, observation: Observation, *, open_loop: bool) -> list[str]:
        """The limits that an answer missed, by name."""
        return [name for name, limit in self.limits.items() if not self._within(name, limit, observation, open_loop)]

    def goodput(self, sent: Sequence[Observation], span: Windows, *, open_loop: bool) -> Goodput:
        """How many of the requests `sent` met it, and how many such there were per second of `span`."""
        met = sum(self.met_by(o, open_loop=open_loop) for o in sent)
        return Goodput(
            limits=self.limits,
            use=self.use,
            met=met,
            sent=len(sent),
            fraction=met / len(sent) if sent else 0.0,
            per_s=per_second(met, span),
        )

    def _within(self, name: str, limit: float, observation: Observation, open_loop: bool) -> bool:
        figure = limited(name, open_loop=open_loop)
        value = figure.of(observation)
        if value is None:
            return False
        return value / figure.scale >= limit if figure.fast_end else value / figure.scale <= limit


def limited(name: str, *, open_loop: bool) -> Figure:
    """The figure that the limit of that name is for."""
    return _LIMITED[name](open_loop)


def parse_slo(text: str) -> Slo:
    """Read limits, ``ttft=300ms,e2e=5s,tps=50``, or a use's name, ``voice``. Raises `CallerFault`."""
    wanted = text.strip().lower()
    if wanted in USES:
        return Slo(limits={"ttft": USES[wanted]}, use=wanted)
    limits: dict[str, float] = {}
    for part in wanted.split(","):
        name, limit = _parse_limit(part.strip(), text)
        if name in limits:
            raise _wrong(text, f"{name} is limited twice")
        limits[name] = limit
    return Slo(limits=limits)


def _parse_limit(part: str, text: str) -> tuple[str, float]:
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
