"""Routing preferences of a request, in OpenRouter's format: which targets of a route to use, and in
what order.

``"model": "ROUTE:nitro"`` prefers throughput, ``ROUTE:floor`` the lowest price; the field
``provider`` gives details. Preferences replace the policy of the route by another over the same
targets: targets outside of the route are never used, and policies around one target (a limit, a
deadline) or around all of them stay. If the preferences only select targets, the route keeps its
policy, over those that are left.

Fields mean the same as at OpenRouter, with one difference: a request that is slower than
`preferred_max_latency` moves on to the next target, while OpenRouter tries slow targets last.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from splitsecond.core.errors import CallerFault, excerpt
from splitsecond.routing.construction.expression import (
    Expression,
    PolicyExpression,
    TargetName,
    targets,
)
from splitsecond.routing.targets.target_info import TargetInfo

Sort = Literal["price", "throughput", "latency"]

MAX_NAMES = 32
"""Names in one list. The policy built for a client's preferences is cached, so the lists are
bounded."""
MAX_NAME_CHARACTERS = 256
MAX_LATENCY_S = 600.0
SUFFIXES: dict[str, Sort] = {"nitro": "throughput", "floor": "price"}
_SORTED_BY: dict[Sort, tuple[str, tuple[tuple[str, str], ...]]] = {
    "price": ("cheapest", ()),
    "throughput": ("fastest", (("by", "tps"),)),
    "latency": ("fastest", (("by", "ttft"),)),
}
"""The policy for each sort order, and its settings."""
_HARMLESS: dict[str, Any] = {
    "data_collection": "allow",
    "zdr": False,
    "require_parameters": False,
    "enforce_distillable_text": False,
}
"""Fields that are not supported, with the value that is accepted because it requests nothing."""


class RoutingPreferences(Struct, frozen=True, kw_only=True):
    """Preferences of one request. `order`, `only` and `ignore` name providers or targets; prices
    are US dollars per million tokens; `latency_s` is the longest wait for a first token."""

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


def read(model: str, provider: msgspec.Raw | None) -> tuple[str, RoutingPreferences | None]:
    """Return the route that `model` names, and the preferences from its suffix or from `provider`,
    which wins.

    Raises `CallerFault` for a `provider` that is wrong or requests what is not supported.
    """
    name, _, suffix = model.rpartition(":")
    sort = SUFFIXES.get(suffix) if name else None
    route = model if sort is None else name
    if provider is None or bytes(provider) == b"null":
        return route, None if sort is None else RoutingPreferences(sort=sort)
    try:
        fields = msgspec.json.decode(provider, type=dict[str, Any])
        options = msgspec.convert(
            {
                field: value
                for field, value in fields.items()
                if value not in (None, _HARMLESS.get(field))
            },
            _Provider,
        )
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's provider is wrong: {excerpt(str(error))}") from None
    preferences = _preferences(options, sort)
    return route, None if preferences == RoutingPreferences() else preferences


def preferred(
    expression: Expression, preferences: RoutingPreferences, info: Callable[[str], TargetInfo]
) -> Expression:
    """Return the policy of a route, `expression`, changed to these preferences.

    Raises `CallerFault` if they exclude all of its targets.
    """
    remaining = [name for name in targets(expression) if _may_serve(name, preferences, info)]
    if preferences.order and not preferences.fallbacks:
        remaining = [name for name in remaining if _is_named(name, preferences.order, info)]
    if not remaining:
        raise CallerFault(
            "no target of this route matches the routing preferences",
            kind="no_target_left",
            status=404,
        )
    if preferences.order or preferences.sort or preferences.latency_s or not preferences.fallbacks:
        return _around(
            expression, remaining, lambda inside: _in_order(inside, remaining, preferences, info)
        )
    left = _pruned(expression, frozenset(remaining))
    return expression if left is None else left


def _preferences(options: _Provider, sort: Sort | None) -> RoutingPreferences:
    for name in ("order", "only", "ignore"):
        names = getattr(options, name) or ()
        if len(names) > MAX_NAMES or any(len(each) > MAX_NAME_CHARACTERS for each in names):
            raise CallerFault(
                f"the request's provider.{name} is too long: the maximum is {MAX_NAMES} names"
            )
    latency_s = options.preferred_max_latency
    if latency_s is not None and not 0.001 <= latency_s <= MAX_LATENCY_S:
        raise CallerFault(
            f"provider.preferred_max_latency is {latency_s:g}, expected 0.001 to "
            f"{MAX_LATENCY_S:g} s"
        )
    price = options.max_price or _MaxPrice()
    return RoutingPreferences(
        sort=(options.sort.by if isinstance(options.sort, _Sorting) else options.sort) or sort,
        order=tuple(options.order or ()),
        only=tuple(options.only or ()),
        ignore=tuple(options.ignore or ()),
        fallbacks=options.allow_fallbacks is not False,
        most_input_usd=price.prompt,
        most_output_usd=price.completion,
        latency_s=latency_s,
    )


def _may_serve(
    name: str, preferences: RoutingPreferences, info: Callable[[str], TargetInfo]
) -> bool:
    if preferences.only and not _is_named(name, preferences.only, info):
        return False
    if _is_named(name, preferences.ignore, info):
        return False
    price = info(name).price
    limits = (
        (preferences.most_input_usd, price.input_usd if price else None),
        (preferences.most_output_usd, price.output_usd if price else None),
    )
    return all(most is None or (usd is not None and usd <= most) for most, usd in limits)


def _is_named(name: str, names: Iterable[str], info: Callable[[str], TargetInfo]) -> bool:
    own = {name.casefold(), name.partition("/")[0].casefold(), info(name).provider.casefold()}
    return any(each.casefold() in own for each in names if each)


def _in_order(
    expression: Expression,
    remaining: list[str],
    preferences: RoutingPreferences,
    info: Callable[[str], TargetInfo],
) -> Expression:
    units = {name: unit for name, unit in _units(expression) if name in remaining}
    first = dict.fromkeys(
        name for each in preferences.order for name in units if _is_named(name, (each,), info)
    )
    ordered = [units.pop(name) for name in first]
    others = list(units.values())
    if preferences.sort is not None and len(others) > 1:
        policy, settings = _SORTED_BY[preferences.sort]
        chosen = PolicyExpression(policy, tuple(others), settings)
        # it uses one target and raises its fault
        others = [chosen, *others] if preferences.fallbacks else [chosen]
    steps = [*ordered, *others] if preferences.fallbacks or preferences.order else others[:1]
    if len(steps) == 1:
        return steps[0]
    ttft = (
        ()
        if preferences.latency_s is None
        else (("ttft", f"{preferences.latency_s * 1000:.0f}ms"),)
    )
    return PolicyExpression("fallback", tuple(steps), ttft)


def _units(expression: Expression) -> list[tuple[str, Expression]]:
    names = targets(expression)
    if len(names) == 1 or isinstance(expression, TargetName):
        return [(names[0], expression)]
    units: dict[str, Expression] = {}
    for part in expression.parts:
        for name, unit in _units(part):
            units.setdefault(name, unit)
    return list(units.items())


def _around(
    expression: Expression, remaining: list[str], inside: Callable[[Expression], Expression]
) -> Expression:
    if (
        isinstance(expression, PolicyExpression)
        and len(expression.parts) == len(expression.branches) == 1
    ):
        (branch,) = expression.branches
        return msgspec.structs.replace(expression, branches=(_around(branch, remaining, inside),))
    return inside(expression)


def _pruned(expression: Expression, remaining: frozenset[str]) -> Expression | None:
    """Return `expression` with only the targets that are `remaining`; None if none is left.

    A policy that needs more branches than are left is replaced by a fallback over them.
    """
    if isinstance(expression, TargetName):
        return expression if expression.name in remaining else None
    left = tuple(
        part for branch in expression.branches if (part := _pruned(branch, remaining)) is not None
    )
    left_named = tuple(
        (name, part)
        for name, branch in expression.named
        if (part := _pruned(branch, remaining)) is not None
    )
    parts = (*left, *(part for _, part in left_named))
    if len(parts) == len(expression.parts):
        return msgspec.structs.replace(expression, branches=left, named=left_named)
    if not parts:
        return None
    if not expression.named and len(left) >= max(2, expression.definition.least):
        return msgspec.structs.replace(expression, branches=left)
    return parts[0] if len(parts) == 1 else PolicyExpression("fallback", parts)
