"""Static facts about a target, known before any request: account, region, context length, prices.

Policies know no providers. The caller that builds them gives them this much, from the catalogue and
the configuration.
"""

from msgspec import Struct

from splitsecond.core.catalog.price import MILLION, Price


class TargetInfo(Struct, frozen=True, kw_only=True):
    """Static facts about one target. None or an empty text: unknown.

    `provider`: targets of one provider share the causes of slowness. `tier`: its speed tier, which
    has capacity of its own; "": the standard one. `account`: targets of one account share its key,
    its rate limits and its refusals. `region`: where the target runs ("eu", "us-east"); "":
    anywhere. `context_tokens`: the most tokens of prompt and answer together.
    `closing_stops_billing`: output that would have come after the connection was closed is not
    billed. `reasons_silently`: the model always reasons before its answer, and may send nothing
    meanwhile.
    """

    provider: str = ""
    tier: str = ""
    account: str = ""
    region: str = ""
    context_tokens: int | None = None
    price: Price | None = None
    closing_stops_billing: bool | None = None
    reasons_silently: bool = False

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return the cost of a call at the rates of short prompts. A machine that is paid by the
        hour costs nothing more for another call."""
        if (price := self.price) is None:
            return None
        return (input_tokens * price.input_usd + output_tokens * price.output_usd) / MILLION
