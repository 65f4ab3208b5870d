"""The time for reading a request is proportional to its length, whatever a client sends."""

import hashlib
from collections.abc import Callable

import pytest
from msgspec import Raw
from tests.cases import each_case, sampled_cases
from tests.worst_case import JSON_KINDS, check_cheap, check_linear, deepest_json, repeated

from splitsecond.core.service import Call, Spoken
from splitsecond.core.upstream.prompt_size import PICTURE_TOKENS, input_tokens
from splitsecond.core.wire.output_limit import output_limit
from splitsecond.routing.machinery.prompt import (
    must_call,
    wanted_effort,
    wanted_form,
    with_instruction,
)
from splitsecond.routing.policies.by_complexity import complexity
from splitsecond.routing.policies.cache import _key
from splitsecond.routing.policies.sticky import conversation

READERS: dict[str, Callable[[Call], object]] = {
    "prompt size": input_tokens,
    "output limit": lambda call: output_limit(call.body),
    "conversation": conversation,
    "cache key": lambda call: _key(call, sampled=True),
    "complexity": complexity,
    "instruction": lambda call: with_instruction(call, "Be brief."),
    "form": wanted_form,
    "effort": wanted_effort,
    "tool choice": must_call,
}
FIELDS = (
    "messages", "input", "prompt", "system", "instructions", "tools", "max_tokens",
    "response_format", "output_config",
    "output_format", "text", "reasoning", "reasoning_effort", "tool_choice", "temperature", "store",
)  # fmt: skip
API_FORMATS: tuple[Spoken, ...] = ("openai", "anthropic", "responses")
KINDS = {
    **JSON_KINDS,
    "runs of base64": repeated(b"A" * 2_047 + b" ", b'{"data":"', b'"}'),
    "messages": repeated(
        b'{"role":"assistant","content":"a"},', b"[", b'{"role":"user","content":"a"}]'
    ),
    "parts": repeated(
        b'{"type":"text","text":"a"},',
        b'[{"role":"user","content":[',
        b'{"type":"text","text":"a"}]}]',
    ),
    "blocks": repeated(b'{"type":"text","text":"a"},', b"[", b'{"type":"text","text":"a"}]'),
}
BODY_BYTES = 32 << 20


@each_case("kind", KINDS)
@each_case("reader", READERS)
def test_each_reader_takes_linear_time(reader: str, kind: str) -> None:
    """Each field holds a part of the text: a reader looks at some of them only."""

    def feed(text: bytes) -> None:
        value = Raw(text)
        for api_format in API_FORMATS:
            READERS[reader](Call(id="c", api_format=api_format, body=dict.fromkeys(FIELDS, value)))

    check_linear(feed, KINDS[kind], size=1 << 15)


@sampled_cases(2)
@each_case("run", [2_047, 2_048, 2_049, 4_000, 100_000])
def test_size_of_a_32_mb_body_is_estimated_quickly(run: int) -> None:
    """Runs of base64 that are just too short for a picture were looked at once from each of their
    bytes."""
    data = repeated(b"A" * run + b" ")(BODY_BYTES)
    call = Call(id="c", body={"messages": Raw(data)})
    check_cheap(lambda: input_tokens(call), lambda: hashlib.sha256(data).digest(), times=50)
    tokens = input_tokens(call)
    if run >= 2_048:
        assert tokens == pytest.approx(len(data) // (run + 1) * PICTURE_TOKENS, rel=0.01)
    else:
        assert tokens == len(data) // 4


@each_case("before", [0, 1, 100, 2_047, 2_048, 2_049])
@each_case("run, is_picture", [(2_047, False), (2_048, True), (2_049, True), (5_000, True)])
def test_picture_is_found_at_any_offset(before: int, run: int, is_picture: bool) -> None:
    data = b" " * before + b"A" * run + b'"' + b" " * 20_000
    expected = (len(data) - run) // 4 + PICTURE_TOKENS if is_picture else len(data) // 4
    assert input_tokens(Call(id="c", body={"messages": Raw(data)})) == pytest.approx(
        expected, abs=1
    )


def test_conversation_with_invalid_utf_8_has_a_beginning() -> None:
    messages = Raw(b'[{"role":"\xff","content":"hi"}]')
    assert conversation(Call(id="c", body={"messages": messages})) is not None


@each_case("reader", READERS)
def test_values_nested_to_the_parser_limit_are_read(reader: str) -> None:
    """Python limits how deeply values are nested, for reading and writing together with the calls
    around them."""
    deepest = deepest_json()
    for depth in range(deepest - 60, deepest):
        nested = b"[" * depth + b"]" * depth
        said = Raw(b'[{"role":"system","content":[%b]}]' % nested)
        fields = {**dict.fromkeys(FIELDS, Raw(nested)), "messages": said, "store": Raw(b"false")}
        READERS[reader](Call(id="c", body=fields))
