"""Speed tiers on the way: the request names the tier, the answer says which tier served it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.cases import each_case
from tests.upstream.scripted_client import ScriptedClient

from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.prices import PriceLookup, price
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Spoken
from splitsecond.core.upstream.spec import from_catalog
from splitsecond.core.upstream.target import connect
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.testing.virtual_time import run_virtual

KEYS = {"OPENAI_API_KEY": "k" * 20, "ANTHROPIC_API_KEY": "k" * 20}
HI = [{"role": "user", "content": "hi"}]
MESSAGES = {"messages": HI, "max_tokens": 9}
RESPONSES = {"input": "hi"}
OPENAI_END = (
    b"data: "
    b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"service_tier":"%s"}\n\ndata: '
    b"[DONE]\n\n"
)
OPENAI = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n' + OPENAI_END
ANTHROPIC = b"""data: {"type":"message_start","message":{"usage":{"input_tokens":1,\
"output_tokens":1,"speed":"%s"}}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}

data: {"type":"message_stop"}

"""
RESPONSES_STREAM = b"""data: {"type":"response.output_text.delta","delta":"x"}

data: {"type":"response.completed","response":{"status":"completed","service_tier":"%s"}}

"""
WHOLE_OPENAI = (
    b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1},"service_tier":"%s"}'
)
WHOLE_ANTHROPIC = (
    b'{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn",'
    b'"usage":{"input_tokens":1,"output_tokens":1,"speed":"%s"}}'
)


def asked(
    target: str, body: Mapping[str, Any], answer: bytes, api_format: Spoken = "openai", **hints: str
) -> tuple[dict[str, Any], dict[str, str], Observation]:
    """The request's body and headers, and the observation of its attempt."""
    seen: list[Observation] = []
    client = ScriptedClient()
    service = connect(
        from_catalog(target, KEYS), seen.append, environment=KEYS, client=client.as_client()
    )

    async def main() -> None:
        call = Call(id="c", body=body, api_format=api_format, hints=hints)
        waiting = asyncio.get_running_loop().create_task(service(call))
        exchange = await client.exchange()
        exchange.head()
        exchange.body(answer)
        exchange.end()
        await (await waiting).finished()

    run_virtual(main())
    (_, request) = client.sent[0]
    return json.loads(request.body), dict((*request.headers, *request.fresh)), seen[0]


@each_case(
    "target, body, api_format, answer, field",
    [
        ("openai/gpt-5@flex", {"messages": HI}, "openai", OPENAI, ("service_tier", "flex")),
        (
            "openai/gpt-5@fast",
            {"messages": HI, "service_tier": "flex"},
            "openai",
            OPENAI,
            ("service_tier", "fast"),
        ),
        ("openai/gpt-5@flex", {"messages": HI}, "openai", WHOLE_OPENAI, ("service_tier", "flex")),
        ("openai/gpt-5@priority", MESSAGES, "anthropic", OPENAI, ("service_tier", "priority")),
        ("openai/gpt-5@priority", RESPONSES, "responses", OPENAI, ("service_tier", "priority")),
        (
            "openai-responses/gpt-5@flex",
            RESPONSES,
            "responses",
            RESPONSES_STREAM,
            ("service_tier", "flex"),
        ),
        (
            "openai-responses/gpt-5@flex",
            {"messages": HI},
            "openai",
            RESPONSES_STREAM,
            ("service_tier", "flex"),
        ),
        ("anthropic/claude-opus-5@fast", MESSAGES, "anthropic", ANTHROPIC, ("speed", "fast")),
        ("anthropic/claude-opus-5@fast", MESSAGES, "anthropic", WHOLE_ANTHROPIC, ("speed", "fast")),
        ("anthropic/claude-opus-5@fast", {"messages": HI}, "openai", ANTHROPIC, ("speed", "fast")),
    ],
)
@each_case("granted", ["fast", "default"])
def test_request_names_the_tier_and_granted_tier_is_observed(
    target: str,
    body: Mapping[str, Any],
    api_format: Spoken,
    answer: bytes,
    field: tuple[str, str],
    granted: str,
) -> None:
    sent, _, observation = asked(target, body, answer % granted.encode(), api_format)
    name, value = field
    assert sent[name] == value
    assert sent["model"] == target.partition("/")[2].partition("@")[0]
    assert (observation.target, observation.ok, observation.tier) == (target, True, granted)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("", "fast-mode-2026-02-01"),
        ("a-1, b-2", "a-1,b-2,fast-mode-2026-02-01"),
        ("fast-mode-2026-02-01", "fast-mode-2026-02-01"),
    ],
)
def test_beta_feature_is_added_to_those_of_the_client(given: str, sent: str) -> None:
    _, headers, _ = asked(
        "anthropic/claude-opus-5@fast", MESSAGES, ANTHROPIC % b"fast", "anthropic", betas=given
    )
    assert headers["anthropic-beta"] == sent


def test_request_without_a_tier_has_no_added_fields() -> None:
    sent, headers, observation = asked(
        "anthropic/claude-opus-5", MESSAGES, ANTHROPIC % b"standard", "anthropic"
    )
    assert "speed" not in sent
    assert "anthropic-beta" not in headers
    assert observation.tier == "standard"


def test_odd_values_of_the_granted_tier_break_nothing() -> None:
    _, _, observation = asked(
        "openai/gpt-5@flex", {"messages": HI}, OPENAI.replace(b'"%s"', b'{"a": [1]}')
    )
    assert (observation.ok, observation.tier) == (True, "")
    _, _, observation = asked("openai/gpt-5@flex", {"messages": HI}, OPENAI % (b"x" * 5_000))
    assert len(observation.tier) == 40


@pytest.mark.parametrize(
    ("sent", "word"),
    [
        ("<script>alert(1)</script>", "_script_alert_1__/script_"),
        ("schnell é\\r\\nx: y", "schnell____x:_y"),
        ("a.b-1", "a.b-1"),
    ],
)
def test_granted_tier_keeps_only_word_characters(sent: str, word: str) -> None:
    end = OPENAI.replace(b"stop", b"%s") % (sent.encode(), sent.encode())
    _, _, observation = asked("openai/gpt-5@flex", {"messages": HI}, end)
    assert (observation.tier, observation.finish_reason) == (word, word)


CONFIGURATION = """
providers:
  main: {like: openai, api_key: env:OURS, price: {input_usd: 1, output_usd: 10}, models: {
    gpt-5.5: {price: {input_usd: 3, output_usd: 30}},
      gpt-5@flex: {price: {input_usd: 0.1, output_usd: 0.2}}}}
  own: {base_url: "http://10.0.0.5/v1"}
routes: {chat: {policy: 'hedge("main/gpt-5", "main/gpt-5@fast")'}}
"""


def test_configured_provider_has_its_catalogue_tiers() -> None:
    settings = read(CONFIGURATION, {"OURS": "k" * 20})
    spec = settings.spec("main/gpt-5@fast")
    assert (spec.name, spec.model, spec.quirks["extra_fields"]) == (
        "main/gpt-5@fast",
        "gpt-5",
        {"service_tier": "fast"},
    )
    assert settings.spec("own/gpt-5@fast").model == "gpt-5@fast", (
        "a server of your own has no tiers"
    )
    directory = TargetDirectory(settings)
    rates = {
        target: directory.price(f"main/{target}")
        for target in ("gpt-5", "gpt-5@fast", "gpt-5.5@fast", "gpt-5@flex")
    }
    assert {
        name: (found.input_usd, found.output_usd) for name, found in rates.items() if found
    } == {
        "gpt-5": (1, 10),
        "gpt-5@fast": (2, 20),
        "gpt-5.5@fast": (7.5, 75),
        "gpt-5@flex": (0.1, 0.2),
    }
    assert (
        directory.facts("main/gpt-5@fast").context_tokens
        == directory.facts("main/gpt-5").context_tokens
    )
    with pytest.raises(CallerFault, match="unknown tier 'fst'; openai has fast, flex, priority"):
        settings.spec("main/gpt-5@fst")
    with pytest.raises(CallerFault, match="unknown tier 'fst'"):
        read(CONFIGURATION.replace("gpt-5@fast", "gpt-5@fst"), {"OURS": "k" * 20})


def test_a_downgraded_attempt_costs_the_standard_price() -> None:
    directory = TargetDirectory(
        read("providers: {openai: {api_key: env:OURS}}", {"OURS": "k" * 20})
    )
    listed = price("openai/gpt-5@fast")
    directory.learn(PriceLookup({"openai/gpt-5@fast": listed}))
    _, _, fast = asked("openai/gpt-5@fast", {"messages": HI}, WHOLE_OPENAI % b"priority")
    _, _, downgraded = asked("openai/gpt-5@fast", {"messages": HI}, WHOLE_OPENAI % b"default")
    cost, less = directory.cost_usd(fast), directory.cost_usd(downgraded)
    assert isinstance(listed, Price)
    assert cost == pytest.approx((listed.input_usd + listed.output_usd) / 1e6)
    assert less == pytest.approx((listed.input_usd + listed.output_usd) / 2e6)


def test_a_call_is_raced_into_the_fast_tier() -> None:
    settings = read(CONFIGURATION, {"OURS": "k" * 20})
    client, seen = ScriptedClient(), list[Observation]()
    environment = settings.environment

    async def main() -> None:
        targets = {
            name: connect(
                settings.spec(name), seen.append, environment=environment, client=client.as_client()
            )
            for name in ("main/gpt-5", "main/gpt-5@fast")
        }
        policy = build(parse('race("main/gpt-5", "main/gpt-5@fast")'), targets.__getitem__)
        waiting = asyncio.get_running_loop().create_task(
            policy(Call(id="c", body={"messages": HI}))
        )
        await client.exchange()
        fast = await client.exchange()
        fast.head()
        fast.body(OPENAI % b"priority")
        fast.end()
        async with await waiting as reply:
            assert reply.target == "main/gpt-5@fast"

    run_virtual(main())
    tiers = [json.loads(request.body).get("service_tier") for _, request in client.sent]
    assert tiers == [None, "fast"]
    assert {each.target: each.tier for each in seen} == {
        "main/gpt-5": "",
        "main/gpt-5@fast": "priority",
    }
