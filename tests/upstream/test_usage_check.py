"""Token counts that cannot be true: what is possible, and what an attempt records in their
place."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import each_case
from tests.upstream.scripted_client import ScriptedClient
from tests.wire.counted_answers import BODIES, INPUT, ODD, OUTPUT, short_id

from splitsecond.core import clock
from splitsecond.core.errors import ProviderFault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.core.upstream.usage_check import (
    ADDED_TOKENS,
    HIDDEN_TOKENS,
    MAX_CONTEXT_TOKENS,
    MAX_EXAMINED_BYTES,
    MAX_OUTPUT_TOKENS,
    unseen_tokens,
)
from splitsecond.core.wire.output_limit import MAX_TOKENS
from splitsecond.testing.virtual_time import run_virtual

SPEC = TargetSpec(
    name="x/m", base_url="http://x.test/v1/", model="o/m", quirks={"stream_whole": False}
)
MESSAGES = [{"role": "user", "content": "hi"}]
YES = b'data: {"choices":[{"index":0,"delta":{"content":"Yes"}}]%b}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]%b}\n\ndata: [DONE]\n\n'
ESTIMATE = (None, 1, None, None, "estimate")
"""The counts of the answer "Yes" with counts that cannot be true: it is one event."""


def observed(
    body: bytes,
    *,
    api_format: str = "openai",
    whole: bool = False,
    raw: bool = False,
    parts: int = 1,
    **fields: Any,
) -> Observation:
    """Return the observation of an answer with this `body`, which arrives in `parts`. `fields`: of
    the request."""
    client = ScriptedClient()
    seen: list[Observation] = []
    spec = msgspec.structs.replace(SPEC, api_format=api_format)
    target = connect(spec, seen.append, environment={}, client=client.as_client(), raw=raw)
    call = Call(id="c", body={"messages": MESSAGES, **fields}, start_ns=0, stream=not whole)

    async def main() -> None:
        calling = asyncio.get_running_loop().create_task(target(call))
        exchange = await client.exchange()
        exchange.head()
        step = -(-len(body) // parts)
        for at in range(0, len(body), step):
            exchange.body(body[at : at + step])
        exchange.end()
        await (await calling).finished()

    run_virtual(main())
    (found,) = seen
    assert found.ok, found.fault
    return found


def counts(found: Observation) -> tuple[int | None, int | None, int | None, int | None, str]:
    return (
        found.input_tokens,
        found.output_tokens,
        found.cached_tokens or None,
        found.reasoning_tokens or None,
        found.token_source,
    )


@each_case("raw", [False, True])
@each_case("odd", [*ODD, b"1000000000000000"])
@each_case("number", [INPUT, OUTPUT])
@each_case("name", BODIES)
def test_an_odd_count_is_replaced_in_every_format(
    name: str, number: int, odd: bytes, raw: bool
) -> None:
    api_format, _, kind = name.partition("-")
    other = INPUT + OUTPUT - number
    body = BODIES[name].replace(str(number).encode(), odd).replace(str(other).encode(), b"1")
    found = observed(body, api_format=api_format, whole=kind == "whole", raw=raw)
    assert counts(found) == ESTIMATE


@each_case("name", BODIES)
def test_plausible_counts_are_used_in_every_format(name: str) -> None:
    api_format, _, kind = name.partition("-")
    body = BODIES[name].replace(str(INPUT).encode(), b"12").replace(str(OUTPUT).encode(), b"7")
    found = observed(body, api_format=api_format, whole=kind == "whole")
    assert counts(found) == (12, 7, None, None, "usage")


def chat(usage: bytes) -> bytes:
    return YES % b"" + STOP % (b',"usage":' + usage)


@each_case("parts", [1, 3, 1000])
@each_case(
    "usage, possible",
    [
        (b'{"prompt_tokens":%d,"completion_tokens":1}' % ADDED_TOKENS, True),
        (b'{"prompt_tokens":%d,"completion_tokens":1}' % (ADDED_TOKENS + 1000), False),
        (b'{"prompt_tokens":9,"completion_tokens":%d}' % MAX_OUTPUT_TOKENS, True),
        (b'{"prompt_tokens":9,"completion_tokens":%d}' % (MAX_OUTPUT_TOKENS + 1000), False),
        (b'{"prompt_tokens":9,"completion_tokens":3,'
        b'"prompt_tokens_details":{"cached_tokens":10}}', False),
        (b'{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"completion_tokens_details":'
         b'{"reasoning_tokens":4}}', False),
    ],
)  # fmt: skip
def test_a_report_is_used_up_to_the_bounds(usage: bytes, possible: bool, parts: int) -> None:
    found = observed(chat(usage), parts=parts)
    assert (found.token_source == "usage") == possible
    assert possible or counts(found) == ESTIMATE


def test_absurd_running_counts_are_dropped() -> None:
    usage = b',"usage":{"prompt_tokens":9,"completion_tokens":%d}'
    good = observed(YES % (usage % 1) + YES % (usage % 2) + STOP % (usage % 2))
    assert (good.tokens_so_far, counts(good)) == ([1, 2], (9, 2, None, None, "usage"))
    for absurd in (10**15, 10**400, -1):
        for middle in (2, absurd):
            found = observed(YES % (usage % 1) + YES % (usage % middle) + STOP % (usage % absurd))
            assert (found.tokens_so_far, counts(found)) == ([], (None, 2, None, None, "estimate"))
            found.compact()
    for parts in (1, 2, 1000):
        later = observed(
            YES % (usage % 1) + YES % (usage % 10**15) + STOP % (usage % 2), parts=parts
        )
        assert (later.tokens_so_far, counts(later)) == ([], (None, 2, None, None, "estimate"))


PICTURE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}],
}


@each_case(
    "fields, input_tokens, output_tokens",
    [
        ({}, ADDED_TOKENS, MAX_OUTPUT_TOKENS),
        ({"max_tokens": 20_000}, ADDED_TOKENS, 20_000),
        ({"max_tokens": 20_000, "n": 3}, ADDED_TOKENS, 60_000),
        ({"max_completion_tokens": 20_000, "max_tokens": 1}, ADDED_TOKENS, 20_000),
        ({"max_tokens": 1}, ADDED_TOKENS, HIDDEN_TOKENS),
        ({"max_tokens": 0}, ADDED_TOKENS, MAX_OUTPUT_TOKENS),
        ({"max_tokens": -1}, ADDED_TOKENS, MAX_OUTPUT_TOKENS),
        ({"max_tokens": 10**400}, ADDED_TOKENS, MAX_OUTPUT_TOKENS),
        ({"max_tokens": "many"}, ADDED_TOKENS, MAX_OUTPUT_TOKENS),
        ({"n": 10**400}, ADDED_TOKENS, MAX_TOKENS),
        ({"messages": [PICTURE]}, MAX_CONTEXT_TOKENS, MAX_OUTPUT_TOKENS),
        ({"previous_response_id": "resp_1"}, MAX_CONTEXT_TOKENS, MAX_OUTPUT_TOKENS),
        ({"tools": [{"type": "web_search"}]}, MAX_CONTEXT_TOKENS, MAX_OUTPUT_TOKENS),
        (
            {"messages": [{"role": "user", "content": "a" * MAX_EXAMINED_BYTES}]},
            MAX_CONTEXT_TOKENS,
            MAX_OUTPUT_TOKENS,
        ),
    ],
)
@each_case("raw", [False, True])
def test_tokens_invisible_in_bytes_are_bounded(
    fields: dict[str, Any], input_tokens: int, output_tokens: int, raw: bool
) -> None:
    body: dict[str, Any] = {"messages": MESSAGES, **fields}
    if raw:
        body = {name: Raw(msgspec.json.encode(value)) for name, value in body.items()}
    assert unseen_tokens(Call(id="c", body=body), None) == (input_tokens, output_tokens)


def test_a_known_maximum_bounds_the_hidden_output() -> None:
    call = Call(id="c", body={"max_tokens": 50_000})
    assert unseen_tokens(call, 32_000).output == 32_000
    assert unseen_tokens(call, 200_000).output == 50_000
    assert unseen_tokens(Call(id="c", body={}), 200_000).output == 200_000


def test_body_that_cannot_be_encoded_has_the_largest_bound() -> None:
    assert (
        unseen_tokens(Call(id="c", body={"messages": "\ud800"}), None).input == MAX_CONTEXT_TOKENS
    )


@each_case(
    "count, possible",
    [
        (b"0", True),
        (b"12", True),
        (b"%d" % ADDED_TOKENS, True),
        (b"%d" % (2 * ADDED_TOKENS), False),
        (b"null", False),
    ]
    + [(odd, False) for odd in ODD],
    ids=short_id,
)
def test_a_count_of_a_requests_tokens_must_be_possible(count: bytes, possible: bool) -> None:
    client = ScriptedClient()
    spec = msgspec.structs.replace(SPEC, api_format="anthropic")
    target = connect(spec, lambda observation: None, environment={}, client=client.as_client())
    body = b'{"input_tokens":%b}' % count

    async def main() -> bytes:
        call = Call(id="c", body={"messages": MESSAGES}, api_format="anthropic")
        counting = asyncio.get_running_loop().create_task(
            target.count_tokens(call, clock.now_ns() + clock.NS_PER_S)
        )
        exchange = await client.exchange()
        exchange.head()
        exchange.body(body)
        exchange.end()
        return await counting

    if possible:
        assert run_virtual(main()) == body
    else:
        with pytest.raises(ProviderFault, match="the count of tokens cannot be true"):
            run_virtual(main())


@pytest.mark.parametrize(
    ("tokens", "source"), [(MAX_TOKENS, "usage"), (MAX_TOKENS + 1, "estimate")]
)
def test_usage_above_the_largest_number_is_estimated(tokens: int, source: str) -> None:
    usage = b'{"prompt_tokens":9,"completion_tokens":%d}' % tokens
    assert observed(chat(usage), n=10**12).token_source == source
