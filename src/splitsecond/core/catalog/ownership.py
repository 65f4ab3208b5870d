"""Owned machines: the cost of an hour from purchase, life, power and the price of electricity.

`hardware.toml` has the prices and the power of some machines, each with its source.
"""

from importlib import resources

import msgspec
from msgspec import Struct

HOURS_PER_YEAR = 8766.0
W_PER_KW = 1000.0


class Ownership(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cost of an owned machine: `purchase_usd` spread over `life_years`, and `watts` day and night.

    `usd_per_kwh`: the price of a kilowatt-hour.
    """

    purchase_usd: float
    life_years: float
    watts: float
    usd_per_kwh: float

    @property
    def electricity_usd_per_hour(self) -> float:
        return self.watts / W_PER_KW * self.usd_per_kwh

    @property
    def usd_per_hour(self) -> float:
        return (
            self.purchase_usd / (self.life_years * HOURS_PER_YEAR) + self.electricity_usd_per_hour
        )


class Machine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    purchase_usd: float
    watts: float
    source: str


def machines() -> dict[str, Machine]:
    return msgspec.toml.decode(
        (resources.files(__package__) / "hardware.toml").read_bytes(), type=dict[str, Machine]
    )
