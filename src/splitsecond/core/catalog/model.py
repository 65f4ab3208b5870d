"""Models of a provider in the catalogue, and the figures that documents publish of them.

The catalogue holds only models with a published speed, those that the public price list lacks, and
those with something to know; any other model of the provider can be called as well. Published
figures are shown beside our own and never mixed with them. A document's prices and context windows
are kept with its speeds: they show what was measured, and may differ from what the provider states.
"""

import math
from typing import Literal

from msgspec import Struct

from splitsecond.core.catalog.price import Price

Figure = float | tuple[float, float]
"""One number, or a published range: [70, inf] is "over 70"."""


class PublishedCost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published cost, in US dollars.

    `input_usd`, `output_usd`: a million tokens. `million_usd`: a million tokens of either kind.
    `per_hour_usd`: a machine, by its name. `once_usd`: the purchase of a machine.
    """

    input_usd: float | None = None
    output_usd: float | None = None
    million_usd: Figure | None = None
    per_hour_usd: dict[str, float] = {}
    once_usd: float | None = None

    @property
    def summary(self) -> str:
        """One line: "$6.5 in, $19.5 out a million"."""
        parts = [
            f"${self.input_usd:g} in, ${self.output_usd:g} out a million"
            if self.input_usd is not None
            else "",
            f"${span(self.million_usd)} a million" if self.million_usd is not None else "",
            *(f"${usd:g} an hour ({machine})" for machine, usd in self.per_hour_usd.items()),
            f"${self.once_usd:g} once" if self.once_usd is not None else "",
        ]
        return ", ".join(filter(None, parts))


class PublishedSpeed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published speed: where and when, and under which load it was measured.

    `ttft_ms` is a median, `tps` (tokens per second after the first) a median or the published
    range; `ttft_p95_ms` and `tps_p95` are the values that 95 of 100 requests met; `total_tps`
    includes the wait for the first token; `batch_tps` is the sum over many concurrent requests.
    `concurrency`: requests in flight. `setup`: the hardware, if the document names it for this
    figure. `context_tokens` and `cost`: what it states beside the speed. `date`: "2026-04", or with
    a day. None: not published.
    """

    source: str
    date: str
    setup: str = ""
    concurrency: int | None = None
    ttft_ms: float | None = None
    ttft_p95_ms: float | None = None
    tps: Figure | None = None
    tps_p95: float | None = None
    total_tps: Figure | None = None
    batch_tps: Figure | None = None
    context_tokens: int | None = None
    cost: PublishedCost | None = None

    @property
    def summary(self) -> str:
        """The figures, for a narrow column: "230 ms (p95 290), 215 tok/s (p95 200) (c=1)"."""
        parts = [
            f"{self.ttft_ms:g} ms{_tail(self.ttft_p95_ms)}" if self.ttft_ms is not None else "",
            f"{span(self.tps)} tok/s{_tail(self.tps_p95)}" if self.tps is not None else "",
            f"{span(self.total_tps)} tok/s with the wait" if self.total_tps is not None else "",
            f"{span(self.batch_tps)} tok/s in parallel" if self.batch_tps is not None else "",
        ]
        return ", ".join(filter(None, parts)) + (
            f" (c={self.concurrency})" if self.concurrency else ""
        )


class PublishedHardware(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hardware on which a provider runs its models, and who says so: "LPU" is Groq's, "wafer" a
    chip of a whole wafer, "ASIC" any other chip made for models but Google's "TPU"."""

    kind: Literal["GPU", "LPU", "wafer", "ASIC", "TPU"]
    source: str


class PublishedDistance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Published extra latency of a provider from far away.

    `best`: the place with the lowest latency; `added_ms`: the range of milliseconds added from
    other places; `note`: other remarks of the document.
    """

    source: str
    date: str
    best: str
    added_ms: dict[str, tuple[float, float]] = {}
    note: str = ""

    @property
    def summary(self) -> str:
        """One line: "best from US East; EU +50–200 ms"."""
        added = ", ".join(f"{place} +{span(much)} ms" for place, much in self.added_ms.items())
        return "; ".join(filter(None, (f"best from {self.best}", added, self.note)))


def span(value: Figure) -> str:
    """Format a figure: "215", "450–550", "over 70", "under 20"."""
    if not isinstance(value, tuple):
        return f"{value:g}"
    low, high = value
    return (
        f"over {low:g}"
        if math.isinf(high)
        else f"under {high:g}"
        if not low
        else f"{low:g}–{high:g}"
    )


def _tail(p95: float | None) -> str:
    return "" if p95 is None else f" (p95 {p95:g})"


Prefill = Literal["plain", "prefix", "partial"] | bool
"""How a model continues the beginning of a reply: "plain", as a last assistant message; "prefix" or
"partial", as one with a field of that name set to true. True is "plain", False: it cannot.
"""


class CatalogModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a provider. `context_tokens`: the limit of prompt and reply together,
    `output_tokens` that of the reply. `tools`, `images`: whether it takes them in a request; None:
    not known. `same_as`: its name in the price list.

    `retired`: the day (ISO) on which its provider takes it down, past or future; "": none known.
    `replaced_by`: the replacement that its provider names; "": none known, or retired too. `price`:
    only if the list lacks the model, with its own source and date. `prefill`: overrides the
    provider's.
    """

    context_tokens: int | None = None
    output_tokens: int | None = None
    tools: bool | None = None
    images: bool | None = None
    same_as: str = ""
    retired: str = ""
    replaced_by: str = ""
    prefill: Prefill | None = None
    price: Price | None = None
    speeds: tuple[PublishedSpeed, ...] = ()
