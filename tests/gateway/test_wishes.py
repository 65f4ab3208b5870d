"""What clients wish of a route, in OpenRouter's words: the policy that comes of it, over the same targets only."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from splitsecond.errors import CallerFault
from splitsecond.gateway import asked
from splitsecond.gateway.wishes import Wishes, read, wished
from splitsecond.policy.building import build
from splitsecond.policy.expression import parse, targets
from splitsecond.policy.targets.facts import Facts
from splitsecond.testing.fake_service import FakeService

ROUTE = 'fallback("groq/llama", "together/llama", "azure-eu/llama")'
FACTS = {
    "groq/llama": Facts(provider="groq", input_usd=0.5, output_usd=0.8),
    "together/llama": Facts(provider="together", input_usd=0.9, output_usd=0.9),
    "azure-eu/llama": Facts(provider="azure"),
}


def facts(name: str) -> Facts:
    return FACTS.get(name, Facts())


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


G, T, A = '"groq/llama"', '"together/llama"', '"azure-eu/llama"'


@pytest.mark.parametrize(
    ("route", "provider", "expected"),
    [
        (ROUTE, {"order": ["together"]}, f"fallback({T}, {G}, {A})"),
        (ROUTE, {"order": ["Together", "groq"], "allow_fallbacks": False}, f"fallback({T}, {G})"),
        (ROUTE, {"order": ["azure"], "allow_fallbacks": False}, A),
        (ROUTE, {"order": ["azure-eu/llama", "nobody"]}, f"fallback({A}, {G}, {T})"),
        (ROUTE, {"sort": "throughput"}, f'fallback(fastest({G}, {T}, {A}, by="tps"), {G}, {T}, {A})'),
        (ROUTE, {"sort": {"by": "latency"}}, f'fallback(fastest({G}, {T}, {A}, by="ttft"), {G}, {T}, {A})'),
        (ROUTE, {"sort": "price", "allow_fallbacks": False}, f"cheapest({G}, {T}, {A})"),
        (ROUTE, {"sort": "price", "order": ["azure"]}, f"fallback({A}, cheapest({G}, {T}), {G}, {T})"),
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
def test_the_policy_that_a_wish_makes(route: str, provider: Any, expected: str) -> None:
    _, wishes = read("fast", raw(provider))
    assert wishes is not None
    assert repr(wished(parse(route), wishes, facts)) == expected
    assert repr(parse(expected)) == expected


@pytest.mark.parametrize("provider", [{"only": ["nobody"]}, {"ignore": ["groq", "together", "azure"]},
                                      {"order": ["nobody"], "allow_fallbacks": False},
                                      {"max_price": {"prompt": 0.1}}])  # fmt: skip
def test_a_wish_that_leaves_nobody_is_refused(provider: Any) -> None:
    _, wishes = read("fast", raw(provider))
    assert wishes is not None
    with pytest.raises(CallerFault) as caught:
        wished(parse(ROUTE), wishes, facts)
    assert (caught.value.kind, caught.value.status) == ("no_target_left", 404)


names = st.lists(st.sampled_from(["groq", "together", "azure", "azure-eu/llama", "evil/model", ""]), max_size=3)
any_wishes = st.builds(
    Wishes,
    sort=st.sampled_from([None, "price", "throughput", "latency"]),
    order=names.map(tuple),
    only=names.map(tuple),
    ignore=names.map(tuple),
    fallbacks=st.booleans(),
    most_input_usd=st.sampled_from([None, 0.6, 1.0]),
    latency_s=st.sampled_from([None, 0.001, 600.0]),
)
routes = st.sampled_from([
    ROUTE, G, f"race({G}, {T})", f'deadline(hedge({G}, {T}), ttft="2s")', f"fallback(retry({A}), race({G}, {T}))",
    f"limit(limit(race({G}, {A}), concurrency=2), concurrency=3)",
])  # fmt: skip


@given(routes, any_wishes)
def test_no_wish_reaches_beyond_its_route_and_what_it_makes_can_be_built(route: str, wishes: Wishes) -> None:
    expression = parse(route)
    try:
        found = wished(expression, wishes, facts)
    except CallerFault:
        return
    assert set(targets(found)) <= set(targets(expression))
    assert parse(repr(found)) == found
    build(found, lambda name: FakeService(target=name))


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("fast", None, ("fast", None)),
        ("fast:nitro", None, ("fast", Wishes(sort="throughput"))),
        ("fast:floor", None, ("fast", Wishes(sort="price"))),
        ("fast:other", None, ("fast:other", None)),
        (":nitro", None, (":nitro", None)),
        ("fast:nitro", {"sort": "latency"}, ("fast", Wishes(sort="latency"))),
        ("fast:nitro", {"only": ["a"]}, ("fast", Wishes(sort="throughput", only=("a",)))),
        ("fast", {}, ("fast", None)),
        ("fast", {"sort": None, "data_collection": "allow", "zdr": False}, ("fast", None)),
    ],
)
def test_endings_and_fields(model: str, provider: Any, expected: Any) -> None:
    assert read(model, None if provider is None else raw(provider)) == expected


@pytest.mark.parametrize(
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
def test_a_wish_that_cannot_be_granted_is_named(provider: Any, complaint: str) -> None:
    with pytest.raises(CallerFault, match=complaint):
        read("fast", raw(provider))


def test_what_is_wished_of_a_route_does_not_go_on_and_what_is_said_to_a_target_does() -> None:
    route = asked.read(b'{"model":"fast","provider":{"only":["a"]},"messages":[]}')
    assert route.wishes == Wishes(only=("a",))
    assert "provider" not in route.body
    target = asked.read(b'{"model":"openrouter/meta/llama:nitro","provider":{"sort":"price", "quantizations":[]}}')
    assert target.model == "openrouter/meta/llama:nitro"
    assert target.wishes is None
    assert bytes(target.body["provider"]) == b'{"sort":"price", "quantizations":[]}'


def test_where_a_library_would_have_us_ask_does_not_go_on() -> None:
    request = asked.read(b'{"model":"fast","api_base":"http://evil","api_key":"sk-1","headers":{"a":"b"},"user":"me"}')
    assert set(request.body) == {"model", "user"}
    assert sorted(request.dropped) == ["api_base", "api_key", "headers"]
