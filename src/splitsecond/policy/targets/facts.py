"""What is known of a target before it is asked: whose key it takes, where it is, how much it reads, what it costs.

Policies know no provider; whoever puts a gateway together tells them this much, from the catalogue and configuration.
"""

from msgspec import Struct


class Facts(Struct, frozen=True, kw_only=True):
    """Of one target. None, or an empty text: not known.

    `provider`: two targets of one provider share what makes it slow. `account`: whose key; targets of one account share
    its rate limits and its refusals. `region`: where it runs ("eu", "us-east"); "" may be anywhere.
    `context_tokens`: the longest prompt and answer together. Prices are US dollars for a million tokens, and `priced`
    the day on which they held; `cached_usd` is that of input tokens from the provider's prompt cache. A machine that is
    paid by the hour (`per_hour_usd`) costs nothing more for another call. `closing_stops_billing`: what it would have
    said after it was closed is not paid for. `prefill`: it goes on from the beginning of an answer; `mark`: the field
    that is true in the message that holds it, "" for none.
    """

    provider: str = ""
    account: str = ""
    region: str = ""
    context_tokens: int | None = None
    input_usd: float | None = None
    cached_usd: float | None = None
    output_usd: float | None = None
    per_hour_usd: float | None = None
    priced: str = ""
    closing_stops_billing: bool | None = None
    prefill: bool = False
    mark: str = ""

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """What an answer costs by the token; None where a price that it takes is not known."""
        if self.input_usd is None or (self.output_usd is None and output_tokens):
            return None
        return (input_tokens * self.input_usd + output_tokens * (self.output_usd or 0.0)) / 1e6
