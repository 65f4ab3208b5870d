"""The figures of a request that have a distribution: one table, read by everything that speaks of them."""

from collections.abc import Callable, Iterable

import numpy as np
from msgspec import Struct

from splitsecond.analysis.spread import Floats
from splitsecond.clock import NS_PER_MS
from splitsecond.timing.observation import Observation


class Figure(Struct, frozen=True, kw_only=True):
    """One figure. `name` is its key in run.json, `label` and `unit` are for a person, `scale` divides what `of` gives.

    `fast_end`: more is better, and percentiles run from the fast end.
    """

    name: str
    label: str
    unit: str
    of: Callable[[Observation], float | None]
    scale: int = 1
    fast_end: bool = False

    def values(self, observations: Iterable[Observation]) -> Floats:
        """This figure of each observation that has it, in `unit`."""
        found = [value for o in observations if (value := self.of(o)) is not None]
        return np.array(found, dtype=np.float64) / self.scale


def _ms(name: str, label: str, of: Callable[[Observation], float | None]) -> Figure:
    return Figure(name=name, label=label, unit="ms", of=of, scale=NS_PER_MS)


def _tokens_per_s(name: str, label: str, of: Callable[[Observation], float | None]) -> Figure:
    return Figure(name=name, label=label, unit="tokens/s", of=of, fast_end=True)


FIGURES = {
    figure.name: figure
    for figure in (
        _ms("ttft_ms", "TTFT", lambda o: o.ttft_ns),
        _ms("ttft_cold_ms", "TTFT with connecting", lambda o: o.ttft_cold_ns),
        _ms("ttft_due_ms", "TTFT from due", lambda o: o.ttft_due_ns),
        _ms("first_answer_ms", "time to first answer", lambda o: o.first_answer_after_ns),
        _tokens_per_s("tps", "TPS", lambda o: o.tps),
        _ms("tpot_ms", "TPOT", lambda o: o.tpot_ns),
        _ms("e2e_ms", "E2E", lambda o: o.e2e_ns),
        _ms("response_ms", "response time", lambda o: o.response_ns),
        _tokens_per_s("total_tps", "total TPS", lambda o: o.total_tps),
    )
}
"""By name. ITL is not among them: it is a distribution of gaps, many to a request."""


def ttft_figure(*, open_loop: bool) -> Figure:
    """The TTFT to judge by: in an open loop from when the request was due, so that no waiting is left out."""
    return FIGURES["ttft_due_ms" if open_loop else "ttft_ms"]


def answered(observations: Iterable[Observation]) -> list[Observation]:
    """Measured requests whose answer came whole: those that figures are taken from."""
    return [o for o in observations if o.role == "measured" and o.ok]
