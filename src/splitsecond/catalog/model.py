"""What the catalogue knows of a provider's models: only of those that somebody has published a speed of, or that the
public list of prices lacks. Any other model of the provider can be called just as well.
"""

import math
from typing import Literal

from msgspec import Struct

from splitsecond.catalog.price import Price

Prefill = Literal["plain", "prefix", "partial"] | bool
"""How one is given the beginning of an answer to go on from: as a last message of the assistant's, "plain", or with a
field of that name in it, which is true. False: not at all; true is "plain".
"""


class Speed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A speed that somebody published: where, when, and under which load it was measured.

    `ttft_ms` is a median, `tps` (tokens per second after the first) a median or the range that was published;
    `total_tps` counts the wait too. `date`: "2026-04". What was not said is None.
    """

    source: str
    date: str
    ttft_ms: float | None = None
    tps: float | tuple[float, float] | None = None
    total_tps: float | tuple[float, float] | None = None
    concurrency: int | None = None

    @property
    def words(self) -> str:
        """The figures, for a narrow column: "230 ms, 215 tok/s (c=1)"."""
        said = [
            f"{self.ttft_ms:g} ms" if self.ttft_ms is not None else "",
            f"{_span(self.tps)} tok/s" if self.tps is not None else "",
            f"{_span(self.total_tps)} tok/s with the wait" if self.total_tps is not None else "",
        ]
        return ", ".join(filter(None, said)) + (f" (c={self.concurrency})" if self.concurrency else "")


def _span(value: float | tuple[float, float]) -> str:
    if not isinstance(value, tuple):
        return f"{value:g}"
    low, high = value
    return f"over {low:g}" if math.isinf(high) else f"under {high:g}" if not low else f"{low:g}–{high:g}"


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model. `context_tokens`: the longest prompt and answer together. `same_as`: its name in the list of prices.

    `retired`: the day (ISO) on which its provider takes it down, gone by or to come; "": none is known.
    `price`: only where the list lacks the model, with its own source and date. `prefill`: as its provider's, where it
    differs.
    """

    context_tokens: int | None = None
    same_as: str = ""
    retired: str = ""
    prefill: Prefill | None = None
    price: Price | None = None
    speeds: tuple[Speed, ...] = ()
