"""The tokens that a call reserves: never fewer than it may be billed for, whatever the client
writes."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.cases import each_case
from tests.gateway.limits import conservative_input_tokens

from splitsecond.core.service import Call, Operation
from splitsecond.core.upstream.prompt_size import USUAL_OUTPUT_TOKENS, input_tokens
from splitsecond.core.wire.output_limit import MAX_TOKENS
from splitsecond.gateway.records.reservation import (
    ReservedTokens,
    reserved,
)
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.router.prompt_tokens import (
    MAX_PICTURE_TOKENS,
    UNKNOWN_CONTEXT_TOKENS,
)


def sent(operation: Operation = "chat", **fields: Any) -> Call:
    """A call as a client sends it: every field is its JSON."""
    body = msgspec.json.decode(json.dumps(fields), type=dict[str, Raw])
    return Call(id="c", operation=operation, client="web", body=body)


def tokens(
    call: Call, policy: str = '"a/x"', *, context: int | None = None, **most_output: int
) -> list[tuple[str, int, int]]:
    """What `policy` reserves for `call`, where a token of `b` costs twice as much as one of `a`."""

    def cost(usage: ReservedTokens) -> float:
        return (2 if usage.target.startswith("b") else 1) * (
            usage.input_tokens + 10 * usage.output_tokens
        )

    found = reserved(
        call,
        parse(policy),
        cost,
        lambda name: most_output.get(name.partition("/")[0]),
        lambda _: context,
    )
    return [(each.target, each.input_tokens, each.output_tokens) for each in found]


def test_limit_is_reserved_for_each_response() -> None:
    call = sent("completions", prompt=["one", "two"], n=3, max_tokens=100)
    assert tokens(call) == [("a/x", conservative_input_tokens(call), 600)]


def test_without_limit_the_models_maximum_or_default_is_reserved() -> None:
    call = sent(messages=[], n=2)
    prompt = conservative_input_tokens(call)
    assert tokens(call, a=5000) == [("a/x", prompt, 10_000)]
    assert tokens(call) == [("a/x", prompt, 2 * USUAL_OUTPUT_TOKENS)]


def test_embeddings_reserve_all_inputs_and_no_output() -> None:
    call = sent("embeddings", input=[[1] * 1000, [2] * 500], n=9)
    assert tokens(call) == [("a/x", conservative_input_tokens(call), 0)]
    assert conservative_input_tokens(call) >= 1500


@each_case(
    ("policy", "expected"),
    [
        ('race("a/x", "b/x")', {"b/x": 50, "a/x": 0}),
        ('fallback("a/x", hedge("b/x", "c/x"))', {"b/x": 50, "c/x": 0, "a/x": 0}),
        ('retry("a/x")', {"a/x": 50}),
        ('fastest("a/x", "b/x")', {"b/x": 50}),
        ('by_complexity(simple="a/x", complex="b/x")', {"b/x": 50}),
        ('cascade("a/x", "b/x", accept="x")', {"a/x": 50, "b/x": 50}),
        ('cap("a/x", max_tokens=20)', {"a/x": 20}),
        ('race(cap("b/x", max_tokens=20), "a/x")', {"b/x": 0, "a/x": 50}),
    ],
)
def test_each_policy_reserves_what_it_may_send(policy: str, expected: dict[str, int]) -> None:
    found = tokens(sent(messages=[], max_tokens=50), policy.replace(', accept="x"', ""))
    assert {target: output for target, _, output in found} == expected


def test_cap_limits_the_reservation_in_every_api_format() -> None:
    call = sent(messages=[], generationConfig={"maxOutputTokens": 900})
    assert [output for _, _, output in tokens(call, 'cap("a/x", max_tokens=20)')] == [20]


PROSE = (
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening comes. " * 50
)


def test_prose_has_the_same_estimate_as_in_policies() -> None:
    call = sent(messages=[{"role": "user", "content": PROSE}])
    assert conservative_input_tokens(call) == pytest.approx(input_tokens(call), rel=0.02)
    short = sent(model="fast", max_tokens=5, messages=[{"role": "user", "content": "hi"}])
    assert conservative_input_tokens(short) == input_tokens(short)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("a b " * 1000, 2000),
        ("?!" * 1000, 2000),
        ("1 2 3 " * 500, 1500),
        ("\U0001f600" * 500, 1000),
        ("的" * 1000, 1500),
    ],
    ids=["letters", "marks", "digits", "emoji", "han"],
)
def test_texts_of_short_tokens_are_not_underestimated(text: str, least: int) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    raw = msgspec.json.decode(msgspec.json.encode(body), type=dict[str, Raw])
    assert conservative_input_tokens(Call(id="c", body=raw)) >= least


def test_token_ids_are_counted() -> None:
    assert conservative_input_tokens(sent("completions", prompt=[1] * 4000)) == 4000


def test_unknown_fields_count_as_prompt() -> None:
    assert conservative_input_tokens(sent(messages=[], documents=[PROSE])) > len(PROSE) // 4


LETTERS = base64.b64encode(bytes(range(256)) * 400).decode()
PNG = f"data:image/png;base64,{LETTERS}"


def in_chat(*parts: Any) -> Call:
    return sent(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}, *parts]}])


def test_pictures_of_any_size_reserve_the_largest_count() -> None:
    for url in (PNG, "data:image/gif;base64,R0lGOA==", "https://x.test/a.png"):
        picture = {"type": "image_url", "image_url": {"url": url}}
        for number in (1, 3):
            found = conservative_input_tokens(in_chat(*[picture] * number))
            assert number * MAX_PICTURE_TOKENS < found < number * MAX_PICTURE_TOKENS + 100


def test_base64_outside_pictures_counts_as_text() -> None:
    text = sent(messages=[{"role": "user", "content": PNG}])
    assert conservative_input_tokens(text) >= len(LETTERS) // 4
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {"data": LETTERS, "url": LETTERS}}
    body = {"messages": [{"role": "assistant", "content": [block]}]}
    assert (
        conservative_input_tokens(Call(id="c", api_format="anthropic", body=body))
        >= len(LETTERS) // 2
    )


def test_content_of_unknown_length_reserves_the_context() -> None:
    document = in_chat({"type": "file", "file": {"file_id": "file-1"}})
    assert tokens(document, context=128_000, a=5) == [("a/x", 128_000, 5)]
    assert tokens(document, a=5) == [("a/x", UNKNOWN_CONTEXT_TOKENS, 5)]
    long = in_chat(
        {"type": "file", "file": {"file_id": "file-1"}}, {"type": "text", "text": PROSE * 9}
    )
    ((_, prompt, _),) = tokens(long, context=1000)
    assert prompt >= len(PROSE) * 9 // 4


def test_long_text_is_estimated_from_a_sample() -> None:
    sparse, dense = "word " * 400_000, "1 2 3 " * 330_000
    both = sent(messages=[{"role": "user", "content": sparse + dense}])
    expected = sum(
        conservative_input_tokens(sent(messages=[{"role": "user", "content": text[:20_000]}]))
        * len(text)
        / 20_000
        for text in (sparse, dense)
    )
    assert conservative_input_tokens(both) == pytest.approx(expected, rel=0.25)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
names = st.sampled_from(
    [
        "max_tokens",
        "n",
        "best_of",
        "prompt",
        "input",
        "options",
        "generationConfig",
        "thinking",
        "messages",
        "tools",
    ]
)


@given(
    st.dictionaries(names, json_values, max_size=5),
    st.sampled_from(["chat", "completions", "embeddings"]),
)
def test_any_request_reserves_at_least_one_response(
    fields: dict[str, Any], operation: Operation
) -> None:
    ((_, prompt, output),) = tokens(sent(operation, **fields))
    assert prompt >= 1
    assert 0 <= output <= MAX_TOKENS
    assert output or operation == "embeddings"
