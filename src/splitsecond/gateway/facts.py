"""What is known of targets beside how fast they are, and what a request costs there.

The configuration comes first, then the public list of prices, then the catalogue. Reading the list takes a second and
much memory, so it is read in a process of its own while the gateway serves already (`look_up`); until then only what
stands in the configuration is known. The names of models are learnt with it, for who asks for one that is none.
"""

import difflib
from collections.abc import Iterable, Iterator

from msgspec import structs

from splitsecond.analysis.cost import cost_usd
from splitsecond.catalog.price import Price
from splitsecond.catalog.prices import Apart, apart, instead_of
from splitsecond.catalog.provider import Provider, names, split_target
from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.settings import Known, PriceGiven, Settings, provider
from splitsecond.policy.expression import targets as targets_of
from splitsecond.policy.targets.facts import Facts
from splitsecond.timing.observation import Observation

MOST_PRICES = 4096
"""That are kept ready. Clients may name targets themselves."""


class TargetFacts:
    """Of all targets that `settings` allow."""

    def __init__(self, settings: Settings, listed: "TargetFacts | None" = None) -> None:
        """`listed`: another's knowledge of the list of prices, which holds until it is read again."""
        self._settings = settings
        self._prices: dict[str, Price | None] = {}
        self._likes: dict[str, str] = {}
        self._instead: dict[str, tuple[str, list[str]]] = {}
        # By what the catalogue calls them: targets, providers.
        self._listed: dict[str, Price | None] = dict(listed._listed) if listed is not None else {}
        self._models: dict[str, list[str]] = dict(listed._models) if listed is not None else {}

    def look_up(self, targets: Iterable[str]) -> Apart:
        """What the list says of `targets` and of all providers that can be asked, for `learn`. Changes nothing, so that
        a thread may do it.

        Blocks for about a second; raises `CallerFault` where it cannot be read.
        """
        wanted = [like for target in targets if (like := self._like(target)) not in self._listed]
        return apart(wanted[:MOST_PRICES], [name for name in self._askable() if name not in self._models])

    def learn(self, listed: Apart) -> None:
        """From here on it is known."""
        self._listed |= listed.prices
        self._models |= listed.models
        self._prices.clear()
        self._instead.clear()

    def instead_of(self, target: str) -> tuple[str, list[str]]:
        """What may be meant by a target that is not served: see `catalog.prices.instead_of`."""
        found = self._instead.get(target)
        if found is None:
            found = self._look_near(target)
            if len(self._instead) < MOST_PRICES:
                self._instead[target] = found
        return found

    def _look_near(self, target: str) -> tuple[str, list[str]]:
        name, model = split_target(target)
        about = self._about(target)
        if about.like:
            known = [*self._models.get(about.like, ()), *about.models]
            day, near = instead_of(f"{about.like}/{model}", known)
            return day, [f"{name}/{split_target(each)[1]}" for each in near]
        routed = (other for owner, other in map(split_target, self._routed()) if owner == name)
        near = difflib.get_close_matches(model, {*about.models, *routed} - {model})
        return "", [f"{name}/{each}" for each in near]

    def _routed(self) -> Iterator[str]:
        """The targets of all routes."""
        return (target for policy in self._settings.routes.values() for target in targets_of(policy))

    def _askable(self) -> list[str]:
        """The providers of the catalogue that a client may name: those of the configuration, and those with a key."""
        given = [known.like for known in self._settings.known.values()]
        keyed = [name for name in names() if provider(name).key_variable(self._settings.environment)]
        return sorted({*filter(None, given), *keyed})

    def knows(self, target: str) -> bool:
        """Whether what `target` costs has been looked up, or is no more to be."""
        return target in self._prices or self._like(target) in self._listed or len(self._listed) >= MOST_PRICES

    def price(self, target: str) -> Price | None:
        """What `target` costs; None where that is not known."""
        try:
            return self._prices[target]
        except KeyError:
            pass
        listed = self._listed.get(self._like(target))
        given = self._about(target).price
        found = listed if given is None else _price(given, listed)
        if len(self._prices) < MOST_PRICES:
            self._prices[target] = found
        return found

    def cost_usd(self, attempt: Observation) -> float | None:
        """What an attempt cost by the token; None where its price or its counts are not known."""
        return cost_usd(attempt, self.price(attempt.target))

    def facts(self, target: str) -> Facts:
        """All of it, as policies know it."""
        model = split_target(target)[1]
        about, price = self._about(target), self.price(target)
        entry = self._entry(about.like)
        prefill = about.prefill if about.prefill is not None else entry and entry.continues(model)
        return Facts(
            provider=about.like or split_target(target)[0],
            account=about.account,
            region=about.region or (entry.region if entry else ""),
            context_tokens=about.context_tokens(model) or (entry.model(model).context_tokens if entry else None),
            input_usd=price.input_usd if price else None,
            cached_usd=price.cached_usd if price else None,
            output_usd=price.output_usd if price else None,
            per_hour_usd=price.per_hour_usd if price else None,
            priced=price.as_of if price else "",
            closing_stops_billing=entry.closing_stops_billing if entry else None,
            prefill=bool(prefill),
            mark=prefill if isinstance(prefill, str) and prefill != "plain" else "",
        )

    def _about(self, target: str) -> Known:
        """Nothing of one that the settings do not allow any more: what is under way there is still to end."""
        try:
            return self._settings.about(target)
        except CallerFault:
            return Known()

    def _like(self, target: str) -> str:
        """The target as the catalogue calls it."""
        found = self._likes.get(target)
        if found is None:
            like = self._about(target).like
            found = f"{like}/{split_target(target)[1]}" if like else target
            if len(self._likes) < MOST_PRICES:
                self._likes[target] = found
        return found

    def _entry(self, like: str) -> Provider | None:
        return provider(like) if like else None


def _price(given: PriceGiven, listed: Price | None) -> Price | None:
    """What is given, and the rest from the list; None where one of the two prices of a token is still missing."""
    named = {
        "input_usd": given.input,
        "output_usd": given.output,
        "cached_usd": given.cached,
        "cache_write_usd": given.cache_write,
        "per_hour_usd": given.per_hour_usd,
    }
    said = {name: usd for name, usd in named.items() if usd is not None}
    if listed is None and "per_hour_usd" not in said and not {"input_usd", "output_usd"} <= said.keys():
        return None
    tiers = () if "input_usd" in said or "output_usd" in said else (listed.tiers if listed else ())
    return structs.replace(listed or Price(), **said, tiers=tiers, source="configuration")
