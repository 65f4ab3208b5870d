"""Routing preferences in OpenRouter's format: the resulting policy, over targets of the route
only."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse, targets
from splitsecond.routing.requests import parsed_request
from splitsecond.routing.router.routing_preferences import RoutingPreferences, preferred, read
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.testing.fake_service import FakeService

ROUTE = 'fallback("groq/llama", "together/llama", "azure-eu/llama")'
FACTS = {
    "groq/llama": TargetInfo(provider="groq", price=Price(input_usd=0.5, output_usd=0.8)),
    "together/llama": TargetInfo(provider="together", price=Price(input_usd=0.9, output_usd=0.9)),
    "azure-eu/llama": TargetInfo(provider="azure"),
}


def facts(name: str) -> TargetInfo:
    return FACTS.get(name, TargetInfo())


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


G, T, A = '"groq/llama"', '"together/llama"', '"azure-eu/llama"'


@each_case(
    ("route", "provider", "expected"),
    [
        (ROUTE, {"order": ["together"]}, f"fallback({T}, {G}, {A})"),
        (ROUTE, {"order": ["Together", "groq"], "allow_fallbacks": False}, f"fallback({T}, {G})"),
        (ROUTE, {"order": ["azure"], "allow_fallbacks": False}, A),
        (ROUTE, {"order": ["azure-eu/llama", "nobody"]}, f"fallback({A}, {G}, {T})"),
        (ROUTE, {"sort": "throughput"}, f'fallback(fastest({G}, {T}, {A}, '
        f'by="tps"), {G}, {T}, {A})'),
        (ROUTE, {"sort": {"by": "latency"}}, f'fallback(fastest({G}, {T}, {A}, by="ttft"), {G}, '
        f'{T}, {A})'),
        (ROUTE, {"sort": "price", "allow_fallbacks": False}, f"cheapest({G}, {T}, {A})"),
        (ROUTE, {"sort": "price", "order": ["azure"]}, f"fallback({A}, cheapest({G}, "
        f"{T}), {G}, {T})"),
        (ROUTE, {"only": ["groq", "azure"]}, f"fallback({G}, {A})"),
        (ROUTE, {"only": ["groq"], "sort": "price"}, G),
        (ROUTE, {"ignore": ["groq", "azure-eu"]}, T),
        (ROUTE, {"max_price": {"prompt": 0.6}}, G),
        (ROUTE, {"max_price": {"completion": 0.9}}, f"fallback({G}, {T})"),
        (ROUTE, {"allow_fallbacks": False}, G),
        (ROUTE, {"preferred_max_latency": 1.5}, f'fallback({G}, {T}, {A}, ttft="1500ms")'),
        (f"race({G}, {T}, {A})", {"ignore": ["together"]}, f"race({G}, {A})"),
        (f"hedge({G}, {T}, extra_load=0.05)", {"ignore": ["groq"]}, T),
        (f'deadline(race({G}, {T}), total="9s")', {"sort": "price"},
         f'deadline(fallback(cheapest({G}, {T}), {G}, {T}), total="9s")'),
        (f"fallback(limit({G}, concurrency=2), race({T}, {A}))", {"order": ["azure", "groq"]},
         f"fallback({A}, limit({G}, concurrency=2), {T})"),
        (f"fallback(race({G}, {T}), {A})", {"ignore": ["groq", "together"]}, A),
    ],
)  # fmt: skip
def test_the_policy_of_preferences(route: str, provider: Any, expected: str) -> None:
    _, preferences = read("fast", raw(provider))
    assert preferences is not None
    assert repr(preferred(parse(route), preferences, facts)) == expected
    assert repr(parse(expected)) == expected


@pytest.mark.parametrize("provider",
[{"only": ["nobody"]}, {"ignore": ["groq", "together", "azure"]},
                                      {"order": ["nobody"], "allow_fallbacks": False},
                                      {"max_price": {"prompt": 0.1}}])  # fmt: skip
def test_preferences_that_exclude_all_targets_are_refused(provider: Any) -> None:
    _, preferences = read("fast", raw(provider))
    assert preferences is not None
    with pytest.raises(CallerFault) as caught:
        preferred(parse(ROUTE), preferences, facts)
    assert (caught.value.kind, caught.value.status) == ("no_target_left", 404)


names = st.lists(
    st.sampled_from(["groq", "together", "azure", "azure-eu/llama", "evil/model", ""]), max_size=3
)
any_preferences = st.builds(
    RoutingPreferences,
    sort=st.sampled_from([None, "price", "throughput", "latency"]),
    order=names.map(tuple),
    only=names.map(tuple),
    ignore=names.map(tuple),
    fallbacks=st.booleans(),
    most_input_usd=st.sampled_from([None, 0.6, 1.0]),
    latency_s=st.sampled_from([None, 0.001, 600.0]),
)
routes = st.sampled_from([
    ROUTE, G, f"race({G}, {T})", f'deadline(hedge({G}, {T}), '
    f'ttft="2s")', f"fallback(retry({A}), race({G}, {T}))",
    f"limit(limit(race({G}, {A}), concurrency=2), concurrency=3)",
])  # fmt: skip


@given(routes, any_preferences)
def test_preferences_stay_inside_the_route_and_can_be_built(
    route: str, preferences: RoutingPreferences
) -> None:
    expression = parse(route)
    try:
        found = preferred(expression, preferences, facts)
    except CallerFault:
        return
    assert set(targets(found)) <= set(targets(expression))
    assert parse(repr(found)) == found
    build(found, lambda name: FakeService(target=name))


@each_case(
    ("model", "provider", "expected"),
    [
        ("fast", None, ("fast", None)),
        ("fast:nitro", None, ("fast", RoutingPreferences(sort="throughput"))),
        ("fast:floor", None, ("fast", RoutingPreferences(sort="price"))),
        ("fast:other", None, ("fast:other", None)),
        (":nitro", None, (":nitro", None)),
        ("fast:nitro", {"sort": "latency"}, ("fast", RoutingPreferences(sort="latency"))),
        (
            "fast:nitro",
            {"only": ["a"]},
            ("fast", RoutingPreferences(sort="throughput", only=("a",))),
        ),
        ("fast", {}, ("fast", None)),
        ("fast", {"sort": None, "data_collection": "allow", "zdr": False}, ("fast", None)),
    ],
)
def test_suffixes_and_fields_are_read_as_preferences(
    model: str, provider: Any, expected: Any
) -> None:
    assert read(model, None if provider is None else raw(provider)) == expected


@each_case(
    ("provider", "complaint"),
    [
        (3, "Expected `object`"),
        ({"sort": "beauty"}, "sort"),
        ({"order": "groq"}, "order"),
        ({"data_collection": "deny"}, "data_collection"),
        ({"quantizations": ["int4"]}, "quantizations"),
        ({"order": ["x"] * 33}, "provider.order is too long"),
        ({"only": ["x" * 300]}, "provider.only is too long"),
        ({"preferred_max_latency": 0}, "preferred_max_latency is 0"),
        ({"max_price": {"image": 1}}, "image"),
    ],
)
def test_unsupported_preferences_are_named(provider: Any, complaint: str) -> None:
    with pytest.raises(CallerFault, match=complaint):
        read("fast", raw(provider))


def test_preferences_are_removed_for_routes_and_pass_to_targets() -> None:
    route = parsed_request.read(b'{"model":"fast","provider":{"only":["a"]},"messages":[]}')
    assert route.routing_preferences == RoutingPreferences(only=("a",))
    assert "provider" not in route.body
    target = parsed_request.read(
        b'{"model":"openrouter/meta/llama:nitro","provider":{"sort":"price", "quantizations":[]}}'
    )
    assert target.model == "openrouter/meta/llama:nitro"
    assert target.routing_preferences is None
    assert bytes(target.body["provider"]) == b'{"sort":"price", "quantizations":[]}'


def test_fields_that_name_another_server_are_removed() -> None:
    request = parsed_request.read(
        b'{"model":"fast","api_base":"http://evil","api_key":"sk-1","headers":{"a":"b"},"user":"me"}'
    )
    assert set(request.body) == {"model", "user"}
    assert sorted(request.dropped) == ["api_base", "api_key", "headers"]
