"""Limits of client keys before targets whose prices a function gives."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.routing.router.prompt_tokens import prompt_size
from splitsecond.routing.router.settings import ClientKey
from splitsecond.routing.router.target_directory import PriceState, TargetDirectory

Price = Callable[[Observation], float | None]


class PricedTargets(TargetDirectory):
    """Targets that cost what `price` says. `states`: those whose price is not known."""

    def __init__(self, price: Price, states: Mapping[str, PriceState] | None = None) -> None:
        self._price = price
        self.states = dict(states or {})

    def cost_usd(self, attempt: Observation) -> float | None:
        return self._price(attempt)

    def output_tokens(self, target: str) -> int | None:
        return None

    def context_tokens(self, target: str) -> int | None:
        return None

    def price_state(self, target: str) -> PriceState:
        return self.states.get(target, "known")

    def dearest_usd(
        self,
        target: str,
        input_tokens: int,
        output_tokens: int,
        *,
        any_tier: bool,
        for_an_hour: bool = False,
    ) -> float | None:
        attempt = Observation(
            id="r.1",
            call="r",
            target=target,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        return self._price(attempt)


def key_limits(keys: Iterable[ClientKey], price: Price, **settings: Any) -> KeyLimits:
    """Return the limits of `keys`, before targets that cost what `price` says."""
    return KeyLimits(keys, PricedTargets(price), **settings)


def conservative_input_tokens(call: Call) -> int:
    """The input tokens of `call` as limits and charges count them."""
    return prompt_size(call).within(None)
