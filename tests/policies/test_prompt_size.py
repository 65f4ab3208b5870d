"""How long prompts and answers are, by their bytes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.service import Call
from splitsecond.core.upstream.prompt_size import (
    PICTURE_TOKENS,
    USUAL_OUTPUT_TOKENS,
    input_tokens,
    output_tokens,
)

PROSE = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was "
    "the age of foolishness. "
)
"""24 words and 4 marks."""


def sent(**fields: Any) -> Call:
    return Call(
        id="c", body={name: Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    )


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@each_case(
    "call",
    [
        sent(messages=user(PROSE * 100)),
        sent(prompt=PROSE * 100),
        sent(input=PROSE * 100),
        sent(instructions=PROSE * 50, input=user(PROSE * 50)),
        sent(system=PROSE * 20, tools=[{"description": PROSE * 40}], messages=user(PROSE * 40)),
        Call(id="c", body={"messages": user(PROSE * 100)}),
    ],
)
def test_token_estimate_of_prose_is_about_right(call: Call) -> None:
    assert input_tokens(call) == pytest.approx(2800, rel=0.1)


def test_fields_without_prompt_do_not_count() -> None:
    assert input_tokens(sent(messages=[], metadata="x" * 10_000)) == 1
    assert input_tokens(sent()) == 1


def test_picture_counts_as_a_fixed_number_of_tokens() -> None:
    url = "data:image/png;base64," + "iVBORw0KGgo" * 100_000
    content = [{"type": "text", "text": PROSE}, {"type": "image_url", "image_url": {"url": url}}]
    tokens = input_tokens(sent(messages=[{"role": "user", "content": content}]))
    assert PICTURE_TOKENS < tokens < PICTURE_TOKENS + 100


@each_case(
    ("most", "usual", "expected"),
    [
        (None, [100.0, 300.0], 200),
        (50, [100.0, 300.0], 50),
        (500, [100.0, 300.0], 200),
        (None, [], USUAL_OUTPUT_TOKENS),
        (10, [], 10),
        (None, [0.0], 1),
    ],
)
def test_expected_output_is_the_usual_length_within_the_limit(
    most: int | None, usual: list[float], expected: int
) -> None:
    assert output_tokens(sent(**{} if most is None else {"max_tokens": most}), usual) == expected


def test_an_embedding_has_no_answer() -> None:
    assert output_tokens(Call(id="c", operation="embeddings", body={}), [100.0]) == 0


@given(
    st.dictionaries(
        st.sampled_from(["messages", "max_tokens", "input", "max_output_tokens"]), st.binary()
    )
)
def test_any_bytes_give_an_estimate_of_at_least_one_token(fields: dict[str, bytes]) -> None:
    call = Call(id="c", body={name: Raw(data) for name, data in fields.items()})
    assert input_tokens(call) >= 1
    assert output_tokens(call, []) >= 1
