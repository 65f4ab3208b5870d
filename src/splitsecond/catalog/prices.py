"""What a target costs, from whoever knows: configuration first, then the public list, then the catalogue's own files.

The list comes before the files because others keep it up to date; a file states a price only where the list lacks it.
"""

import difflib
from collections.abc import Iterable, Mapping

from splitsecond.catalog import price_list
from splitsecond.catalog.model import Model
from splitsecond.catalog.price import Price
from splitsecond.catalog.price_list import Listed, Wanted
from splitsecond.catalog.provider import Provider, provider, split_target
from splitsecond.errors import CallerFault


def price(target: str, overrides: Mapping[str, Price] | None = None) -> Price | None:
    """The price of "provider/model" at this hour; None where nobody knows it (a server of one's own, a simulator).

    `overrides`: prices by target, or by provider as "provider/*".
    """
    return prices([target], overrides)[target]


def prices(
    targets: Iterable[str], overrides: Mapping[str, Price] | None = None, *, apart: bool = False
) -> dict[str, Price | None]:
    """The prices of several targets. `apart`: the public list is read in a child process, so that this one stays small.

    With `apart` it blocks for about a second and raises `CallerFault` where the child fails.
    """
    given = overrides or {}
    wanted = list(targets)
    own = {target: given.get(target) or given.get(target.partition("/")[0] + "/*") for target in wanted}
    known = listings([target for target in wanted if own[target] is None], apart=apart)
    return {target: own[target] or known[target].price for target in wanted}


def listings(targets: Iterable[str], *, apart: bool = False) -> dict[str, Listed]:
    """Price and context window of several targets, as the list and the catalogue's files have them; see `prices`."""
    wanted = {target: _wanted(target) for target in targets}
    asked = {target: each for target, each in wanted.items() if each is not None}
    answers = price_list.apart(asked.values()) if apart and asked else map(price_list.listed, asked.values())
    of_list = dict(zip(asked, answers, strict=True))
    found = {}
    for target in wanted:
        owner, listed = _owner(target), of_list.get(target, Listed())
        model = owner.model(split_target(target)[1]) if owner else Model()
        found[target] = Listed(listed.price or model.price, model.context_tokens or listed.context_tokens)
    return found


def of_provider(found: Provider) -> dict[str, Listed]:
    """Every model of a provider that the list or its file knows, with price and context."""
    known = price_list.models(found.prices) if found.prices else {}
    for name, model in found.models.items():
        of_list = price_list.listed(Wanted(found.prices, model.same_as or name)) if found.prices else Listed()
        known.pop(model.same_as, None)
        known[name] = Listed(
            price=of_list.price or model.price, context_tokens=model.context_tokens or of_list.context_tokens
        )
    return dict(sorted(known.items()))


def instead_of(target: str) -> tuple[str, list[str]]:
    """What may be meant by a target whose provider refuses the model: the day on which it was taken down ("": it was
    not), and targets of the same provider to take in its place.
    """
    owner = _owner(target)
    if owner is None:
        return "", []
    name, model = split_target(target)
    if day := owner.model(model).retired:
        return day, [f"{name}/{owner.default_model}"] if owner.default_model else []
    known = [each for each in of_provider(owner) if not owner.model(each).retired]
    near = [] if model in known else difflib.get_close_matches(model, known, n=3, cutoff=0.6)
    return "", [f"{name}/{each}" for each in near]


def _owner(target: str) -> Provider | None:
    """The provider of a target; None where the catalogue has none: a server of one's own, a simulator."""
    try:
        return provider(split_target(target)[0])
    except CallerFault as fault:
        if fault.kind in ("unknown_provider", "bad_target"):
            return None
        raise


def _wanted(target: str) -> Wanted | None:
    """What to look for in the list; None where it cannot have the target."""
    owner = _owner(target)
    if owner is None or not owner.prices:
        return None
    model = split_target(target)[1]
    return Wanted(owner.prices, owner.model(model).same_as or model)
