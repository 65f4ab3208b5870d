"""The public list of prices: the one file that knows `genai-prices`, which others keep up to date.

Importing it takes 0.5 s and 30 MB, most of them for libraries that it needs for something else, so it is imported when
a price is asked for. A process that must stay small asks a child instead: `apart` runs this module as a program, which
prints what it found as JSON and ends.
"""

import subprocess
import sys
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec

from splitsecond import clock
from splitsecond.catalog.price import Price, Tier
from splitsecond.errors import CallerFault

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

CHILD_S = 30.0
"""How long the child may take. It needs one second on a slow machine."""
_KINDS = {
    "input_usd": "input_mtok",
    "output_usd": "output_mtok",
    "cached_usd": "cache_read_mtok",
    "cache_write_usd": "cache_write_mtok",
}
"""Our names for the rates, and the list's."""


class Listed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the list says of one model: its price, and how long prompt and answer may be together."""

    price: Price | None = None
    context_tokens: int | None = None


class Wanted(msgspec.Struct, frozen=True):
    """A model to look for: the provider as the list calls it, and the model as the provider calls it."""

    provider: str
    model: str


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is asked at once: what the list says of each of `wanted`, and which models of `providers` it knows."""

    wanted: list[Wanted] = []
    providers: list[str] = []


class Answer(msgspec.Struct, frozen=True):
    """`listed`: of each that was wanted, in that order. `models`: their names, by provider."""

    listed: list[Listed]
    models: dict[str, list[str]]


def listed(wanted: Wanted) -> Listed:
    """What the list says of a model, at this hour; empty where it does not know the model."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, model = get_snapshot().find_provider_model(wanted.model, None, wanted.provider, None)
    except LookupError:
        return Listed()
    return Listed(price=_price(model, _as_of()), context_tokens=model.context_window)


def models(provider: str) -> dict[str, Listed]:
    """Every model of a provider that the list has a price of, by the name that a request takes.

    Those that the provider has taken down are left out, and those that answer with something else than text.
    """
    from genai_prices.data_snapshot import find_provider_by_id, get_snapshot

    found = find_provider_by_id(get_snapshot().providers, provider)
    kept = [model for model in (found.models if found else ()) if not model.deprecated]
    as_of = _as_of()
    priced = [(_called(model), Listed(_price(model, as_of), model.context_window)) for model in kept]
    return {name: each for name, each in priced if each.price and each.price.output_usd}


def _called(model: "ModelInfo") -> str:
    """A model's name in a request. The list's own name may be shorter, as at Fireworks."""
    if model.is_match(model.id):
        return model.id
    said: str | None = getattr(model.match, "equals", None)
    return said or model.id


def answered(question: Question) -> Answer:
    """What the list says to `question`."""
    known = {provider: list(models(provider)) for provider in question.providers}
    return Answer([listed(each) for each in question.wanted], known)


def apart(question: Question, *, wait_s: float = CHILD_S) -> Answer:
    """The same as `answered`, looked up in a child process, so that this one stays small.

    Blocks for about a second. Raises `CallerFault` where the child cannot be run or does not end.
    """
    asked = msgspec.json.encode(question)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", __spec__.name], input=asked, capture_output=True, timeout=wait_s, check=True
        )
        return msgspec.json.decode(ended.stdout, type=Answer)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise CallerFault(f"the prices could not be looked up: {error}", kind="no_prices") from None


def _price(model: "ModelInfo", as_of: str) -> Price | None:
    """The price at this hour; None where the list has none for tokens of text."""
    import genai_prices

    prices = model.get_prices(clock.wall_time()) if model.prices else None
    if prices is None or prices.input_mtok is None:
        return None
    starts = sorted({tier.start for kind in _KINDS.values() for tier in getattr(getattr(prices, kind), "tiers", ())})
    return Price(
        **_rates(prices, 0),
        tiers=tuple(Tier(above_tokens=start, **_rates(prices, start + 1)) for start in starts),
        as_of=as_of,
        source=f"genai-prices {genai_prices.__version__}",
    )


def _rates(prices: "ModelPrice", input_tokens: int) -> dict[str, Any]:
    found = {}
    for ours, theirs in _KINDS.items():
        rate = getattr(prices, theirs)
        if hasattr(rate, "tiers"):  # the last tier that begins below the length holds for all tokens
            rate = ([rate.base] + [tier.price for tier in rate.tiers if input_tokens > tier.start])[-1]
        if rate is not None:
            found[ours] = float(rate)
    return {"output_usd": 0.0} | found


def _as_of() -> str:
    """The day of the latest change of a price that the list knows and that is in force: the list is no older."""
    from genai_prices.data_snapshot import get_snapshot

    today = clock.wall_time().date()
    changes = (
        getattr(conditional.constraint, "start_date", date.min)
        for provider in get_snapshot().providers
        for model in provider.models
        if isinstance(model.prices, list)
        for conditional in model.prices
    )
    return max((day for day in changes if day <= today), default=date.min).isoformat()


def main() -> None:
    """Reads a `Question` from standard input and prints what the list says to it, both as JSON."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    sys.stdout.buffer.write(msgspec.json.encode(answered(question)))


if __name__ == "__main__":
    main()
