"""What was asked of one condition: what its findings are held against."""

from msgspec import Struct


class AskedCondition(Struct, frozen=True, kw_only=True):
    """One target under one load, as asked.

    A closed loop has a `concurrency` (requests kept under way), an open loop has none, and a `rate` in requests per
    second unless its arrivals come from a trace. `output_tokens` is the length of answer that was asked for.
    `cache_reuse`: prompts began alike, for the provider's prompt cache. `usage`: where its provider is known to
    send token counts, a key of `USAGE_WORDS` in `wire.dialect`; "": not known.
    """

    condition: str
    target: str
    concurrency: int | None = None
    rate: float | None = None
    output_tokens: int | None = None
    cache_reuse: bool = False
    usage: str = ""

    @property
    def open_loop(self) -> bool:
        """Whether requests left on a schedule, whatever the target did."""
        return self.concurrency is None
