from msgspec import Struct

MIN = 8
"""Fewest rounds that say what is usual, and that a lasting change of the first days has."""


class Expectation(Struct, frozen=True, kw_only=True):
    """What is usual for a round, and how far the round is from it.

    `level`: the usual level over all hours. `low` and `high`: the band that is usual at this hour.
    `deviation`: from the baseline at this hour, with its standard deviation `scatter`. `surprise`:
    the part that earlier rounds do not predict, in standard deviations. `first`: a change is so
    many times as large a surprise in its first round as in the next ones; 0 if the slow CUSUM does
    not count this round. `early`: the pattern of the day is not known yet.
    """

    level: float
    low: float
    high: float
    deviation: float
    scatter: float
    surprise: float
    first: float = 0.0
    early: bool = False
