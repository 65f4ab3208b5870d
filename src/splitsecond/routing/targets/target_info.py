"""Static facts about a target, known before any request: account, region, context length, prices.

Policies know no providers. The caller that builds them gives them this much, from the catalogue and the configuration.
"""

from msgspec import Struct


class TargetInfo(Struct, frozen=True, kw_only=True):
    """Static facts about one target. None or an empty text: unknown.

    `provider`: targets of one provider share the causes of slowness. `tier`: its speed tier, which has capacity of its
    own; "": the standard one. `account`: targets of one account share its key,
    its rate limits and its refusals. `region`: where the target runs ("eu", "us-east"); "": anywhere.
    `context_tokens`: the most tokens of prompt and answer together. Prices are US dollars for a million tokens, and
    `priced` is their date; `cached_usd` is the price of input tokens from the provider's prompt cache. A machine that
    is paid by the hour (`per_hour_usd`) costs nothing more for another call. `closing_stops_billing`: output that would
    have come after the connection was closed is not billed.
    `reasons_silently`: the model always reasons before its answer, and may send nothing meanwhile.
    """

    provider: str = ""
    tier: str = ""
    account: str = ""
    region: str = ""
    context_tokens: int | None = None
    input_usd: float | None = None
    cached_usd: float | None = None
    output_usd: float | None = None
    per_hour_usd: float | None = None
    priced: str = ""
    closing_stops_billing: bool | None = None
    reasons_silently: bool = False

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        if self.input_usd is None or (self.output_usd is None and output_tokens):
            return None
        return (input_tokens * self.input_usd + output_tokens * (self.output_usd or 0.0)) / 1e6
