"""Policies that read requests read the same from every API format of clients."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import each_case
from tests.policies.branches import play

from splitsecond.core.events import Done, Token
from splitsecond.core.service import Call, Service, Spoken
from splitsecond.core.upstream.prompt_size import input_tokens
from splitsecond.core.wire import anthropic, openai, responses
from splitsecond.core.wire.output_limit import output_limit
from splitsecond.routing.machinery.prompt import (
    field_value,
    last_user_text,
    messages,
    must_call,
    wanted_effort,
    wanted_form,
)
from splitsecond.routing.machinery.replies.judge import _judge_call
from splitsecond.routing.policies.by_complexity import by_complexity, complexity
from splitsecond.routing.policies.cache import _key, cache
from splitsecond.routing.policies.cap import cap
from splitsecond.routing.policies.cascade import cascade
from splitsecond.routing.policies.fallback import fallback
from splitsecond.routing.policies.pipeline import INSTRUCTION, _with_marker, pipeline
from splitsecond.routing.policies.race import race
from splitsecond.routing.policies.sticky import conversation
from splitsecond.testing.fake_service import FakeService, Script

API_FORMATS: tuple[Spoken, ...] = ("openai", "anthropic", "responses")
WIRES: dict[Spoken, Any] = {"openai": openai, "anthropic": anthropic, "responses": responses}
PROVE = "Prove that it halts, and compare the complexity of both."


def call(api_format: Spoken, **fields: Any) -> Call:
    body = {name: Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    return Call(id="1", body=body, api_format=api_format)


def asked(api_format: Spoken, question: str, /, **more: Any) -> Call:
    """Return a conversation of a system message and three others, of which `question` is the
    last."""
    turns: list[Any] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Yes?"}]
    match api_format:
        case "openai":
            said = [
                {"role": "system", "content": "Be brief."},
                *turns,
                {"role": "user", "content": question},
            ]
            return call(api_format, messages=said, **more)
        case "anthropic":
            last = {"role": "user", "content": [{"type": "text", "text": question}]}
            return call(api_format, messages=[*turns, last], system="Be brief.", **more)
        case "responses":
            last = {"role": "user", "content": [{"type": "input_text", "text": question}]}
            return call(api_format, input=[*turns, last], instructions="Be brief.", **more)


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_messages(api_format: Spoken) -> None:
    said = messages(asked(api_format, PROVE))
    assert said is not None
    assert last_user_text(said) == PROVE
    assert not any(message.has_media for message in said)
    level, why = complexity(asked(api_format, PROVE))
    assert (level, why) == ("complex", "words such as compare")
    assert complexity(asked(api_format, "hi"))[0] == "simple"
    assert conversation(asked(api_format, "a")) == conversation(asked(api_format, "b"))
    assert abs(input_tokens(asked(api_format, PROVE * 20)) - len(PROVE) * 5) < 60


def test_tool_results_are_neither_questions_nor_media() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "Snow."}
    picture = {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}
    said = messages(
        call(
            "anthropic",
            messages=[{"role": "user", "content": c} for c in (PROVE, [result], [picture])],
        )
    )
    assert said is not None
    assert last_user_text(said) == PROVE
    assert [message.has_media for message in said] == [False, False, True]
    items = [
        {"role": "user", "content": PROVE},
        {"type": "function_call_output", "call_id": "a", "output": "Snow."},
    ]
    heard = messages(call("responses", input=items))
    assert heard is not None
    assert last_user_text(heard) == PROVE
    assert [message.text for message in messages(call("responses", input="hi")) or ()] == ["hi"]


SCHEMA = {"type": "json_schema", "schema": {}}
FORMS: list[tuple[Spoken, dict[str, Any], bool]] = [
    ("openai", {}, False),
    ("openai", {"response_format": {"type": "text"}}, False),
    ("openai", {"response_format": SCHEMA}, True),
    ("anthropic", {"output_config": {"effort": "high"}}, False),
    ("anthropic", {"output_config": {"format": SCHEMA}}, True),
    ("anthropic", {"output_format": SCHEMA}, True),
    ("responses", {"text": {"format": {"type": "text"}, "verbosity": "low"}}, False),
    ("responses", {"text": {"format": SCHEMA}}, True),
    ("responses", {"text": 5}, False),
]


@each_case(("api_format", "more", "wanted"), FORMS)
def test_the_response_format(api_format: Spoken, more: dict[str, Any], wanted: bool) -> None:
    asking = asked(api_format, "hi", **more)
    assert (wanted_form(asking) is not None) == wanted
    assert (_with_marker(asking) is None) == wanted


@each_case(
    ("api_format", "choice", "must"),
    [
        ("openai", "auto", False),
        ("openai", "required", True),
        ("openai", {"type": "function", "function": {"name": "f"}}, True),
        ("anthropic", {"type": "auto"}, False),
        ("anthropic", {"type": "none"}, False),
        ("anthropic", {"type": "any"}, True),
        ("responses", "auto", False),
        ("responses", {"type": "function", "name": "f"}, True),
    ],
)
def test_a_required_tool_call(api_format: Spoken, choice: Any, must: bool) -> None:
    asking = asked(api_format, "hi", tool_choice=choice)
    assert must_call(asking) == must
    assert (_with_marker(asking) is None) == must


@pytest.mark.parametrize(
    ("api_format", "more"),
    [
        ("openai", {"reasoning_effort": "high"}),
        ("anthropic", {"output_config": {"effort": "high"}}),
        ("responses", {"reasoning": {"effort": "high"}}),
    ],
)
def test_reasoning_effort(api_format: Spoken, more: dict[str, Any]) -> None:
    assert wanted_effort(asked(api_format, "hi", **more)) == "high"
    assert complexity(asked(api_format, "hi", **more)) == ("complex", "reasoning effort")
    assert not wanted_effort(asked(api_format, "hi"))


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_an_instruction_in_the_system_prompt(api_format: Spoken) -> None:
    marked = _with_marker(asked(api_format, "hi"))
    assert marked is not None
    assert marked.watched
    where = {"openai": "messages", "anthropic": "system", "responses": "instructions"}[api_format]
    words = field_value(marked, where)
    assert (
        words[0]["content"] if api_format == "openai" else words
    ) == f"Be brief.\n\n{INSTRUCTION}"


def test_instruction_is_added_without_or_beside_system_blocks() -> None:
    said = [{"role": "user", "content": "hi"}]
    blocks = [{"type": "text", "text": "Be brief."}]
    alone, beside = (
        _with_marker(call("anthropic", messages=said)),
        _with_marker(call("anthropic", messages=said, system=blocks)),
    )
    assert alone is not None
    assert beside is not None
    assert field_value(alone, "system") == INSTRUCTION
    assert field_value(beside, "system") == [*blocks, {"type": "text", "text": INSTRUCTION}]
    assert _with_marker(call("anthropic", messages=said, system=5)) is None


@pytest.mark.parametrize(
    ("api_format", "name"),
    [("openai", "max_tokens"), ("anthropic", "max_tokens"), ("responses", "max_output_tokens")],
)
def test_the_output_limit_has_the_name_of_the_format(api_format: Spoken, name: str) -> None:
    fake = FakeService(script=lambda _: Script(tokens=1))

    async def main() -> None:
        service = cap(fake, max_tokens=9)
        for more in ({}, {name: 5}, {name: 99}):
            async with await service(asked(api_format, "hi", **more)) as reply:
                await reply.finished()

    play(main)
    assert [output_limit(each.call.body) for each in fake.calls] == [9, 5, 9]
    assert all(name in each.call.body for each in fake.calls)


def test_a_judge_is_asked_in_openais_format() -> None:
    for api_format in API_FORMATS:
        asking = _judge_call(asked(api_format, PROVE), "Done.")
        assert asking.api_format == "openai"
        assert PROVE in bytes(asking.body["messages"]).decode()


def test_answers_are_kept_for_each_format() -> None:
    same: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    keys = [_key(call(api_format, **same), sampled=False) for api_format in ("openai", "anthropic")]
    with_betas = msgspec.structs.replace(call("anthropic", **same), hints={"betas": "x"})
    assert len({*keys, _key(with_betas, sampled=False)}) == 3
    assert None not in keys
    stored = {"input": "hi", "temperature": 0}
    assert _key(call("responses", **stored), sampled=False) is None
    assert _key(call("responses", **stored, store=False), sampled=False) is not None


@pytest.mark.parametrize(
    ("api_format", "more"),
    [
        ("anthropic", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        (
            "anthropic",
            {"odd": [{"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}]},
        ),
        ("responses", {"tools": [{"type": "web_search"}]}),
        ("responses", {"previous_response_id": "resp_1"}),
        ("responses", {"metadata": {}, "prompt": {"image_url": "https://x/a.png"}}),
    ],
)
def test_responses_that_depend_on_stored_state_are_not_cached(
    api_format: Spoken, more: dict[str, Any]
) -> None:
    asking = asked(api_format, "hi", temperature=0, store=False, **more)
    assert _key(asking, sampled=True) is None


POLICIES: list[Callable[[Service, Service], Service]] = [
    lambda one, other: cache(one, sampled=True),
    lambda one, other: cascade(one, other),
    lambda one, other: cascade(
        one, other, judge=FakeService(script=lambda _: Script(tokens=1, texts=("yes",)))
    ),
    lambda one, other: pipeline(one, other),
    lambda one, other: race(one, other),
    lambda one, other: fallback(one, other),
    lambda one, other: cap(by_complexity(simple=one, complex=other), max_tokens=9),
]


@each_case("api_format", API_FORMATS)
@each_case("policy", POLICIES)
def test_a_client_reads_its_own_format(
    api_format: Spoken, policy: Callable[[Service, Service], Service]
) -> None:
    said = Script(tokens=3, texts=("It ", "snows", "."), input_tokens=5)
    service = policy(
        FakeService(script=lambda _: said), FakeService(script=lambda _: Script(ttft=9))
    )

    async def main() -> None:
        for _ in range(2):  # the second call is a hit of the cache
            data = b""
            async with await service(asked(api_format, "hi", store=False)) as reply:
                while part := await reply.read():
                    data += part
            decoder = WIRES[api_format].decoder("chat")
            events = [*decoder.feed(data, 1), *decoder.close(1)]
            assert (
                "".join(event.text for event in events if isinstance(event, Token)) == "It snows."
            )
            assert isinstance(events[-1], Done)

    play(main)
