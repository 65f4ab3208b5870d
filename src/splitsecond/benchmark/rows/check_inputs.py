"""What a check of the validity of a row gets."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings
from splitsecond.benchmark.statistics.steady import MeasuredLoad
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading

ERROR_SHARE = 0.02
"""Largest error of a percentile by the client's delays, as a share of it."""


class CheckInputs(Struct, frozen=True, kw_only=True):
    """Input of the checks. `measured` are the requests that count, `answered` those of them that
    succeeded.

    `searched`: the row is a step of a capacity search.
    """

    asked: AskedCondition
    findings: ConditionFindings
    measured: Sequence[Observation]
    answered: Sequence[Observation]
    load: MeasuredLoad
    readings: Sequence[InstrumentReading]
    cancelled: int
    searched: bool = False


Check = Callable[[CheckInputs], str]
