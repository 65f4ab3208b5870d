"""Prices, regions and limits of targets, and the names of models at each provider.

The configuration comes first, then the public price list, then the catalogue. Reading the price
list takes a second and much memory, so a child process reads it while the gateway serves already
(`look_up`); until then only the configuration is known.
"""

import difflib
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import structs

from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.prices import PriceLookup, lookup_in_child, replacements
from splitsecond.core.catalog.provider import Provider, names, split_target
from splitsecond.core.catalog.speed_tier import factors
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import cost_usd
from splitsecond.core.observation import Observation
from splitsecond.core.wire.reasoning import ReasoningStyle, style_for
from splitsecond.routing.construction.expression import targets as targets_of
from splitsecond.routing.router.settings import (
    PriceConfig,
    ProviderSettings,
    RouterSettings,
    provider,
)
from splitsecond.routing.targets.target_info import TargetInfo

PriceState = Literal["known", "unread", "missing"]
"""unread: the price list has not been read for it yet. missing: it costs money, and neither the
configuration nor the list has the whole price. A server that needs no key of a provider in the
catalogue is "known": without a price, it is free."""
MAX_PRICES = 4096
"""Prices kept in memory. Clients can name any number of targets."""


_UNKNOWN = ProviderSettings(base_url="")


class TargetDirectory:
    def __init__(self, settings: RouterSettings, listed: "TargetDirectory | None" = None) -> None:
        self._settings = settings
        self._prices: dict[str, Price | None] = {}
        self._likes: dict[str, str] = {}
        self._instead: dict[str, tuple[str, list[str]]] = {}
        # By the catalogue's names of targets and of providers.
        self._listed: dict[str, Price | None] = dict(listed._listed) if listed is not None else {}
        self._contexts: dict[str, int] = dict(listed._contexts) if listed is not None else {}
        self._models: dict[str, list[str]] = dict(listed._models) if listed is not None else {}

    def look_up(self, targets: Iterable[str]) -> PriceLookup:
        """Look up `targets` and the models of all usable providers in the price list, for `learn`.
        Safe in a thread.

        Blocks for about a second. Raises `CallerFault` if the list cannot be read.
        """
        unlisted = [like for target in targets if (like := self._like(target)) not in self._listed]
        return lookup_in_child(
            unlisted[:MAX_PRICES], [name for name in self._askable() if name not in self._models]
        )

    def learn(self, listed: PriceLookup) -> None:
        """Remember what was looked up. Beyond `MAX_PRICES`, the oldest targets that no route names
        are forgotten, so that targets named by clients cannot displace others."""
        self._listed |= listed.prices
        self._contexts |= listed.context_tokens
        routed = {self._like(target) for target in self._routed()}
        unrouted = [like for like in self._listed if like not in routed]
        for like in unrouted[: max(len(unrouted) - MAX_PRICES, 0)]:
            del self._listed[like]
            self._contexts.pop(like, None)
        self._models |= listed.models
        self._prices.clear()
        self._instead.clear()

    def instead_of(self, target: str) -> tuple[str, list[str]]:
        replacement = self._instead.get(target)
        if replacement is None:
            replacement = self._look_near(target)
            if len(self._instead) < MAX_PRICES:
                self._instead[target] = replacement
        return replacement

    def _look_near(self, target: str) -> tuple[str, list[str]]:
        name, model = split_target(target)
        about = self._about(target)
        if about.like:
            models = [*self._models.get(about.like, ()), *about.models]
            day, near = replacements(f"{about.like}/{model}", models)
            return day, [f"{name}/{split_target(each)[1]}" for each in near]
        routed = (other for owner, other in map(split_target, self._routed()) if owner == name)
        near = difflib.get_close_matches(model, {*about.models, *routed} - {model})
        return "", [f"{name}/{each}" for each in near]

    def _routed(self) -> Iterator[str]:
        return (
            target for policy in self._settings.routes.values() for target in targets_of(policy)
        )

    def _askable(self) -> list[str]:
        configured = [own.like for own in self._settings.providers.values()]
        keyed = [
            name for name in names() if provider(name).key_variable(self._settings.environment)
        ]
        return sorted({*filter(None, configured), *keyed})

    def knows(self, target: str) -> bool:
        return self.price_state(target) != "unread"

    def price_state(self, target: str) -> PriceState:
        if self.price(target) is not None:
            return "known"
        about = self._about(target)
        entry = self._entry(about.like)
        # a server of your own is free, unless its price has a gap
        if entry is None or not entry.api_key_env:
            free = about.price is None and not self._settings.require_prices
            return "known" if free else "missing"
        return "missing" if self._like(target) in self._listed else "unread"

    def price(self, target: str) -> Price | None:
        try:
            return self._prices[target]
        except KeyError:
            pass
        listed = self._listed.get(self._like(target))
        config = self._about(target).price
        price = listed if config is None else self._configured(target, config, listed)
        # a missing price is kept too, until `learn` forgets them all
        if len(self._prices) < MAX_PRICES:
            self._prices[target] = price
        return price

    def _configured(self, target: str, config: PriceConfig, listed: Price | None) -> Price | None:
        price, like = config.over(listed), self._about(target).like
        if price is None or not like:
            return price
        entry, (model, tier) = provider(like), self._split_tier(target)
        return structs.replace(
            price, by_tier=factors(model, tier, entry.tiers, entry.standard_tiers)
        )

    def cost_usd(self, attempt: Observation) -> float | None:
        """Return the cost of an attempt in US dollars, None if it is not known. One that its
        provider refused costs nothing, at any price."""
        return 0.0 if attempt.unbilled else cost_usd(attempt, self.price(attempt.target))

    def dearest_usd(
        self,
        target: str,
        input_tokens: int,
        output_tokens: int,
        *,
        any_tier: bool,
        for_an_hour: bool,
    ) -> float | None:
        """Return the most that so many tokens of `target` can cost: see `Price.dearest_usd`. None:
        not known."""
        price = self.price(target)
        if price is None or not price.by_token:
            return None
        return price.dearest_usd(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            any_tier=any_tier,
            for_an_hour=for_an_hour,
        )

    def closing_stops_billing(self, target: str) -> bool | None:
        entry = self._entry(self._about(target).like)
        return entry.closing_stops_billing if entry else None

    def output_tokens(self, target: str) -> int | None:
        model, about = self._split_tier(target)[0], self._about(target)
        entry = self._entry(about.like)
        return about.output_tokens(model) or (entry.model(model).output_tokens if entry else None)

    def context_tokens(self, target: str) -> int | None:
        return self.facts(target).context_tokens or self._contexts.get(self._like(target))

    def facts(self, target: str) -> TargetInfo:
        model, tier = self._split_tier(target)
        about, price = self._about(target), self.price(target)
        entry = self._entry(about.like)
        return TargetInfo(
            provider=about.like or target.partition("/")[0],
            tier=tier,
            account=about.account,
            region=about.region,
            context_tokens=about.context_tokens(model)
            or (entry.model(model).context_tokens if entry else None),
            price=price,
            closing_stops_billing=self.closing_stops_billing(target),
            reasons_silently=entry is not None and _always_reasons(entry, model),
        )

    def _about(self, target: str) -> ProviderSettings:
        try:
            return self._settings.about(target)
        except CallerFault:
            return _UNKNOWN

    def _split_tier(self, target: str) -> tuple[str, str]:
        try:
            return self._settings.split_tier(target)
        except CallerFault:  # not a target, or a tier that is not known any more
            return target.partition("/")[2], ""

    def _like(self, target: str) -> str:
        listed_name = self._likes.get(target)
        if listed_name is None:
            like = self._about(target).like
            listed_name = f"{like}/{split_target(target)[1]}" if like else target
            if len(self._likes) < MAX_PRICES:
                self._likes[target] = listed_name
        return listed_name

    def _entry(self, like: str) -> Provider | None:
        return provider(like) if like else None


def _always_reasons(entry: Provider, model: str) -> bool:
    style = style_for(
        msgspec.convert(entry.quirks.get("thinking", ()), tuple[ReasoningStyle, ...]), model
    )
    return style is not None and bool(style.efforts) and "none" not in style.efforts
