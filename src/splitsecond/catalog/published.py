"""What documents say of models and providers: figures that somebody else published, with the title and the day.

They are shown beside our own and never taken for them. What a document says of prices and context windows is kept here
too: it tells what was measured, and may differ from what the provider states.
"""

import math

from msgspec import Struct

Figure = float | tuple[float, float]
"""One number, or the range that was published: [70, inf] is "over 70"."""


class Cost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a document says that it costs, in US dollars.

    `input_usd`, `output_usd`: a million tokens. `million_usd`: a million tokens of either kind. `per_hour_usd`: a
    machine, by its name. `once_usd`: the machine, bought.
    """

    input_usd: float | None = None
    output_usd: float | None = None
    million_usd: Figure | None = None
    per_hour_usd: dict[str, float] = {}
    once_usd: float | None = None

    @property
    def words(self) -> str:
        """In a line: "$6.5 in, $19.5 out a million"."""
        said = [
            f"${self.input_usd:g} in, ${self.output_usd:g} out a million" if self.input_usd is not None else "",
            f"${span(self.million_usd)} a million" if self.million_usd is not None else "",
            *(f"${usd:g} an hour ({machine})" for machine, usd in self.per_hour_usd.items()),
            f"${self.once_usd:g} once" if self.once_usd is not None else "",
        ]
        return ", ".join(filter(None, said))


class Speed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A speed that somebody published: where, when, and under which load it was measured.

    `ttft_ms` is a median, `tps` (tokens per second after the first) a median or the range that was published;
    `ttft_p95_ms` and `tps_p95` are those that 95 of 100 requests kept; `total_tps` counts the wait too; `batch_tps` is
    that of many requests at once, together. `concurrency`: requests at a time. `setup`: what it ran on, where the
    document says it of this figure. `context_tokens` and `cost`: what it says beside the speed. `date`: "2026-04", or
    with a day. What was not said is None.
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
    cost: Cost | None = None

    @property
    def words(self) -> str:
        """The figures, for a narrow column: "230 ms (p95 290), 215 tok/s (p95 200) (c=1)"."""
        said = [
            f"{self.ttft_ms:g} ms{_tail(self.ttft_p95_ms)}" if self.ttft_ms is not None else "",
            f"{span(self.tps)} tok/s{_tail(self.tps_p95)}" if self.tps is not None else "",
            f"{span(self.total_tps)} tok/s with the wait" if self.total_tps is not None else "",
            f"{span(self.batch_tps)} tok/s in parallel" if self.batch_tps is not None else "",
        ]
        return ", ".join(filter(None, said)) + (f" (c={self.concurrency})" if self.concurrency else "")


class Distance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much longer a provider takes from far away, as somebody published it.

    `best`: where it is fastest from; `added_ms`: what is added from elsewhere, in milliseconds, as a range; `note`:
    what else was said of it.
    """

    source: str
    date: str
    best: str
    added_ms: dict[str, tuple[float, float]] = {}
    note: str = ""

    @property
    def words(self) -> str:
        """In a line: "best from US East; EU +50–200 ms"."""
        added = ", ".join(f"{place} +{span(much)} ms" for place, much in self.added_ms.items())
        return "; ".join(filter(None, (f"best from {self.best}", added, self.note)))


def span(value: Figure) -> str:
    """A figure in words: "215", "450–550", "over 70", "under 20"."""
    if not isinstance(value, tuple):
        return f"{value:g}"
    low, high = value
    return f"over {low:g}" if math.isinf(high) else f"under {high:g}" if not low else f"{low:g}–{high:g}"


def _tail(p95: float | None) -> str:
    return "" if p95 is None else f" (p95 {p95:g})"
