"""What a target costs, from whoever knows: configuration first, then the public list, then the catalogue's own files.

The list comes before the files because others keep it up to date; a file states a price only where the list lacks it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from splitsecond.catalog import price_list
from splitsecond.catalog.model import Model
from splitsecond.catalog.price import Price
from splitsecond.catalog.price_list import Answer, Listed, Question, Wanted
from splitsecond.catalog.provider import MISSPELT, Provider, provider, split_target
from splitsecond.errors import CallerFault


def price(target: str, overrides: Mapping[str, Price] | None = None) -> Price | None:
    """The price of "provider/model" at this hour; None where nobody knows it (a server of one's own, a simulator).

    `overrides`: prices by target, or by provider as "provider/*".
    """
    return prices([target], overrides)[target]


def prices(targets: Iterable[str], overrides: Mapping[str, Price] | None = None) -> dict[str, Price | None]:
    """The prices of several targets."""
    given = overrides or {}
    wanted = list(targets)
    own = {target: given.get(target) or given.get(target.partition("/")[0] + "/*") for target in wanted}
    known = listings([target for target in wanted if own[target] is None])
    return {target: own[target] or known[target].price for target in wanted}


def listings(targets: Iterable[str]) -> dict[str, Listed]:
    """Price and context window of several targets, as the list and the catalogue's files have them."""
    wanted = list(targets)
    asked = _wanted(wanted)
    return _with_files(wanted, dict(zip(asked, map(price_list.listed, asked.values()), strict=True)))


class Apart(Struct, frozen=True):
    """What was looked up in a child process: `prices` by target, and by provider the names of its `models`."""

    prices: dict[str, Price | None] = {}
    models: dict[str, list[str]] = {}


def apart(targets: Iterable[str], providers: Iterable[str] = ()) -> Apart:
    """The prices of `targets`, and which models of `providers` are known; the public list is read in a child process,
    so that this one stays small.

    Blocks for about a second where the list has any of it to say. Raises `CallerFault` where the child fails.
    """
    wanted, owners = list(targets), [provider(name) for name in providers]
    asked = _wanted(wanted)
    question = Question(list(asked.values()), sorted({owner.prices for owner in owners if owner.prices}))
    answer = price_list.apart(question) if question != Question() else Answer([], {})
    found = _with_files(wanted, dict(zip(asked, answer.listed, strict=True)))
    return Apart(
        {target: each.price for target, each in found.items()},
        {owner.name: _in_service(owner, answer.models.get(owner.prices, ())) for owner in owners},
    )


def _with_files(targets: Iterable[str], of_list: Mapping[str, Listed]) -> dict[str, Listed]:
    """What the list says of `targets`, with what only the catalogue's files say."""
    found = {}
    for target in targets:
        owner, listed = _owner(target), of_list.get(target, Listed())
        model = owner.model(split_target(target)[1]) if owner else Model()
        found[target] = Listed(listed.price or model.price, model.context_tokens or listed.context_tokens)
    return found


def of_provider(found: Provider) -> dict[str, Listed]:
    """Every model of a provider that the list or its file knows, with price and context."""
    listed = price_list.models(found.prices) if found.prices else {}
    known = {name: each for name, each in listed.items() if found.has(name)}
    for name, model in found.models.items():
        of_list = price_list.listed(Wanted(found.prices, model.same_as or name)) if found.prices else Listed()
        known.pop(model.same_as, None)
        known[name] = Listed(
            price=of_list.price or model.price, context_tokens=model.context_tokens or of_list.context_tokens
        )
    return dict(sorted(known.items()))


def instead_of(target: str, known: Iterable[str] | None = None) -> tuple[str, list[str]]:
    """What may be meant by a target whose provider refuses the model: the day on which it was taken down ("": it was
    not), and targets of the same provider to take in its place: the one that the provider names, else its default.

    `known`: the models that the list has of the provider; None: the list is read for them.
    """
    owner = _owner(target)
    if owner is None:
        return "", []
    name, model = split_target(target)
    if day := owner.model(model).retired:
        instead = owner.model(model).replaced_by or owner.default_model
        return day, [f"{name}/{instead}"] if instead else []
    names = _in_service(owner, of_provider(owner) if known is None else known)
    maker = model.rpartition("/")[0]
    alike = [each for each in names if each.startswith(f"{maker}/")] if maker else []  # of hundreds, where it names one
    if model in names:
        return "", []
    near = difflib.get_close_matches(model, alike or names, n=3, cutoff=0.6)
    retired = {each: about.replaced_by for each, about in owner.models.items() if about.retired and about.replaced_by}
    for gone in difflib.get_close_matches(model, [*near, *retired], n=1, cutoff=MISSPELT):  # a slip in its name
        near = list(dict.fromkeys([retired.get(gone, gone), *near]))[:3]
    return "", [f"{name}/{each}" for each in near]


def words_of(day: str, near: Sequence[str]) -> str:
    """What `instead_of` found, as a hint; "" for nothing."""
    retired = f"Its provider has {day} as the day on which it takes this model down." if day else ""
    meant = f"Did you mean {' or '.join(near)}?" if near else ""
    return f"{retired} {meant}".strip()


def _in_service(owner: Provider, of_list: Iterable[str]) -> list[str]:
    """The models of a provider that the list or its file names, without those that were taken down."""
    names = dict.fromkeys([*owner.models, *filter(owner.has, of_list)])
    return [name for name in names if not owner.model(name).retired]


def _owner(target: str) -> Provider | None:
    """The provider of a target; None where the catalogue has none: a server of one's own, a simulator."""
    try:
        return provider(split_target(target)[0])
    except CallerFault as fault:
        if fault.kind in ("unknown_provider", "bad_target"):
            return None
        raise


def _wanted(targets: Iterable[str]) -> dict[str, Wanted]:
    """What to look for in the list, by the targets that it may have."""
    found = {}
    for target in targets:
        owner = _owner(target)
        if owner is not None and owner.prices:
            model = split_target(target)[1]
            found[target] = Wanted(owner.prices, owner.model(model).same_as or model)
    return found
