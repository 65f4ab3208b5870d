"""What a target costs, from whoever knows: configuration first, then the public list, then the catalogue's own files.

The list comes before the files because others keep it up to date; a file states a price only where the list lacks it.
"""

import difflib
from collections.abc import Iterable, Mapping

from splitsecond.catalog import price_list
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
    found: dict[str, Price | None] = {}
    open_questions: dict[str, Wanted] = {}
    for target in targets:
        if own := given.get(target) or given.get(target.partition("/")[0] + "/*"):
            found[target] = own
        elif wanted := _wanted(target):
            open_questions[target] = wanted
        else:
            found[target] = stated(target)
    wanted_now = list(open_questions.values())
    answers = price_list.apart(wanted_now) if apart and wanted_now else map(price_list.listed, wanted_now)
    for target, answer in zip(open_questions, answers, strict=True):
        found[target] = answer.price or stated(target)
    return found


def context_tokens(target: str) -> int | None:
    """How long prompt and answer of "provider/model" may be together: by the catalogue, else by the list."""
    owner = _owner(target)
    if owner is None:
        return None
    known = owner.model(split_target(target)[1]).context_tokens
    wanted = _wanted(target)
    return known if known is not None or wanted is None else price_list.listed(wanted).context_tokens


def stated(target: str) -> Price | None:
    """The price that stands in the catalogue's own file."""
    owner = _owner(target)
    return owner.model(split_target(target)[1]).price if owner else None


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


def nearest_models(target: str) -> list[str]:
    """Targets of the same provider whose models are called nearly like this one; empty where it is known, or none is.

    For a message after the provider refused the model: only it knows all that it has.
    """
    owner = _owner(target)
    if owner is None:
        return []
    name, model = split_target(target)
    known = list(of_provider(owner))
    near = [] if model in known else difflib.get_close_matches(model, known, n=3, cutoff=0.6)
    return [f"{name}/{each}" for each in near]


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
