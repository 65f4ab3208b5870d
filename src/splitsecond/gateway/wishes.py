"""What a client wishes of a route beyond its name, in OpenRouter's words: which of its targets, and in what order.

``"model": "ROUTE:nitro"`` asks for throughput, ``ROUTE:floor`` for the lowest price, and the field ``provider`` says it
in detail. A wish makes another policy over the targets of the same route: none outside it is ever reached, and what
stands around a target there (a limit, a deadline) or around all of them stays. Only where nothing but a choice of
targets is wished for does the route's own policy stay, over those that are left.

The words mean what they mean at OpenRouter, with one difference: a target slower than `preferred_max_latency` is
given up for the next one while it is asked, where OpenRouter asks it last.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from splitsecond.errors import CallerFault
from splitsecond.policy.expression import Expression, Rule, TargetName, targets
from splitsecond.policy.forms import POLICIES
from splitsecond.policy.targets.facts import Facts

Sort = Literal["price", "throughput", "latency"]

MOST_NAMES = 32
"""Names in one list. What is made for a client's wishes is kept, so they are bounded."""
LONGEST_NAME = 256
MOST_LATENCY_S = 600.0
SUFFIXES: dict[str, Sort] = {"nitro": "throughput", "floor": "price"}
_SORTED_BY: dict[Sort, tuple[str, tuple[tuple[str, str], ...]]] = {
    "price": ("cheapest", ()),
    "throughput": ("fastest", (("by", "tps"),)),
    "latency": ("fastest", (("by", "ttft"),)),
}
"""The policy that each sort asks for, and its settings."""
_HARMLESS: dict[str, Any] = {
    "data_collection": "allow",
    "zdr": False,
    "require_parameters": False,
    "enforce_distillable_text": False,
}
"""Wishes that we could not grant, and what to say for not having them."""


class Wishes(Struct, frozen=True, kw_only=True):
    """What is wished for. `order`, `only` and `ignore` name providers or whole targets; prices are US dollars for a
    million tokens, `latency_s` the longest wait for a first token."""

    sort: Sort | None = None
    order: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fallbacks: bool = True
    most_input_usd: float | None = None
    most_output_usd: float | None = None
    latency_s: float | None = None


class _Sorting(Struct):
    by: Sort | None = None


class _MaxPrice(Struct, forbid_unknown_fields=True):
    prompt: float | None = None
    completion: float | None = None


class _Provider(Struct, forbid_unknown_fields=True):
    sort: Sort | _Sorting | None = None
    order: list[str] | None = None
    only: list[str] | None = None
    ignore: list[str] | None = None
    allow_fallbacks: bool | None = None
    max_price: _MaxPrice | None = None
    preferred_max_latency: float | None = None


def read(model: str, provider: msgspec.Raw | None) -> tuple[str, Wishes | None]:
    """The route that `model` names, and what is wished of it: by its ending, or by `provider`, which counts for more.

    Raises `CallerFault` for a `provider` that is wrong, or wishes for what is not to be had here.
    """
    name, _, suffix = model.rpartition(":")
    sort = SUFFIXES.get(suffix) if name else None
    route = model if sort is None else name
    if provider is None or bytes(provider) == b"null":
        return route, None if sort is None else Wishes(sort=sort)
    try:
        fields = msgspec.json.decode(provider, type=dict[str, Any])
        given = msgspec.convert(
            {field: value for field, value in fields.items() if value not in (None, _HARMLESS.get(field))}, _Provider
        )
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's provider is wrong: {error}") from None
    wishes = _wishes(given, sort)
    return route, None if wishes == Wishes() else wishes


def wished(expression: Expression, wishes: Wishes, facts: Callable[[str], Facts]) -> Expression:
    """`expression`, a route's, as `wishes` would have it. Raises `CallerFault` where they leave none of its targets."""
    kept = [name for name in targets(expression) if _may_serve(name, wishes, facts)]
    if wishes.order and not wishes.fallbacks:
        kept = [name for name in kept if _is_named(name, wishes.order, facts)]
    if not kept:
        raise CallerFault("no target of this route is as you wish", kind="no_target_left", status=404)
    if wishes.order or wishes.sort or wishes.latency_s or not wishes.fallbacks:
        return _around(expression, kept, lambda inside: _in_order(inside, kept, wishes, facts))
    left = _pruned(expression, frozenset(kept))
    return expression if left is None else left


def _wishes(given: _Provider, sort: Sort | None) -> Wishes:
    for name in ("order", "only", "ignore"):
        names = getattr(given, name) or ()
        if len(names) > MOST_NAMES or any(len(each) > LONGEST_NAME for each in names):
            raise CallerFault(f"the request's provider.{name} is too long: at most {MOST_NAMES} names may be")
    latency_s = given.preferred_max_latency
    if latency_s is not None and not 0.001 <= latency_s <= MOST_LATENCY_S:
        raise CallerFault(f"provider.preferred_max_latency is {latency_s:g}, expected 0.001 to {MOST_LATENCY_S:g} s")
    price = given.max_price or _MaxPrice()
    return Wishes(
        sort=(given.sort.by if isinstance(given.sort, _Sorting) else given.sort) or sort,
        order=tuple(given.order or ()),
        only=tuple(given.only or ()),
        ignore=tuple(given.ignore or ()),
        fallbacks=given.allow_fallbacks is not False,
        most_input_usd=price.prompt,
        most_output_usd=price.completion,
        latency_s=latency_s,
    )


def _may_serve(name: str, wishes: Wishes, facts: Callable[[str], Facts]) -> bool:
    if wishes.only and not _is_named(name, wishes.only, facts):
        return False
    if _is_named(name, wishes.ignore, facts):
        return False
    known = facts(name)
    prices = ((wishes.most_input_usd, known.input_usd), (wishes.most_output_usd, known.output_usd))
    return all(most is None or (usd is not None and usd <= most) for most, usd in prices)


def _is_named(name: str, names: Iterable[str], facts: Callable[[str], Facts]) -> bool:
    """Whether a target, or its provider, is among `names`."""
    own = {name.casefold(), name.partition("/")[0].casefold(), facts(name).provider.casefold()}
    return any(each.casefold() in own for each in names if each)


def _in_order(expression: Expression, kept: list[str], wishes: Wishes, facts: Callable[[str], Facts]) -> Expression:
    units = {name: unit for name, unit in _units(expression) if name in kept}
    first = [name for each in wishes.order for name in units if _is_named(name, (each,), facts)]
    ordered = [units[name] for name in dict.fromkeys(first)]
    others = [unit for name, unit in units.items() if name not in first]
    if wishes.sort is not None and len(others) > 1:
        policy, settings = _SORTED_BY[wishes.sort]
        chosen = Rule(policy, tuple(others), settings)
        others = [chosen, *others] if wishes.fallbacks else [chosen]  # it asks one, and raises what that one says
    steps = [*ordered, *others] if wishes.fallbacks or wishes.order else others[:1]
    if len(steps) == 1:
        return steps[0]
    ttft = () if wishes.latency_s is None else (("ttft", f"{wishes.latency_s * 1000:.0f}ms"),)
    return Rule("fallback", tuple(steps), ttft)


def _units(expression: Expression) -> list[tuple[str, Expression]]:
    """Each target of `expression`, with what stands around it alone."""
    names = targets(expression)
    if len(names) == 1 or isinstance(expression, TargetName):
        return [(names[0], expression)]
    found: dict[str, Expression] = {}
    for part in expression.parts:
        for name, unit in _units(part):
            found.setdefault(name, unit)
    return list(found.items())


def _around(expression: Expression, kept: list[str], inside: Callable[[Expression], Expression]) -> Expression:
    """What stands around all of `expression`'s targets, with `inside` of the rest in it."""
    if isinstance(expression, Rule) and len(expression.parts) == len(expression.branches) == 1:
        (branch,) = expression.branches
        return msgspec.structs.replace(expression, branches=(_around(branch, kept, inside),))
    return inside(expression)


def _pruned(expression: Expression, kept: frozenset[str]) -> Expression | None:
    """`expression` without all targets that are not `kept`; None: nothing is left.

    A policy that cannot do with what is left of its branches gives way to a fallback over them.
    """
    if isinstance(expression, TargetName):
        return expression if expression.name in kept else None
    branches = [_pruned(branch, kept) for branch in expression.branches]
    named = [(name, _pruned(branch, kept)) for name, branch in expression.named]
    left = tuple(branch for branch in branches if branch is not None)
    left_named = tuple((name, branch) for name, branch in named if branch is not None)
    parts = (*left, *(branch for _, branch in left_named))
    if len(parts) == len(expression.parts):
        return msgspec.structs.replace(expression, branches=left, named=left_named)
    if not parts:
        return None
    if not left_named and not expression.named and len(left) >= max(2, POLICIES[expression.policy].least):
        return msgspec.structs.replace(expression, branches=left)
    return parts[0] if len(parts) == 1 else Rule("fallback", parts)
