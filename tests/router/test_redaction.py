"""What a provider repeats of a request, and what is kept of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.policies.attempts import answered, failed

from splitsecond.errors import ProviderFault, excerpt
from splitsecond.router.redaction import LEAST_QUOTED, LEFT_OUT, LONGEST_SEARCHED, redact, without_quotes

PROMPT = 'My "secret" is\nthat I like  the colour blue very much'


def asked(text: str = PROMPT, **fields: Any) -> dict[str, Raw]:
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    return {name: Raw(json.dumps(value).encode()) for name, value in ({"messages": messages} | fields).items()}


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("HTTP 500: the server is down", "HTTP 500: the server is down"),
        (f"HTTP 400: got ({excerpt(PROMPT)}), which is wrong", f"HTTP 400: got ({LEFT_OUT}), which is wrong"),
        (excerpt(PROMPT), LEFT_OUT),
        ("x I like the colour blue y I like the colour blue", f"x{LEFT_OUT}y{LEFT_OUT}"),
        ("no model meta-llama/Llama-3.3-70B", "no model meta-llama/Llama-3.3-70B"),
        ("no tool 'look-up-the-weather-in-a-city'", f"no tool '{LEFT_OUT}'"),
        ("the colour", "the colour"),
        ("", ""),
    ],
)
def test_quotes_are_left_out(words: str, kept: str) -> None:
    fields = asked(model="meta-llama/Llama-3.3-70B", tools=[{"name": "look-up-the-weather-in-a-city"}])
    assert without_quotes(words, fields) == kept


def test_beside_a_long_request_no_word_is_kept() -> None:
    body = asked("a" * LONGEST_SEARCHED)
    assert without_quotes("HTTP 500: anything: at all", body) == f"HTTP 500: {LEFT_OUT}"
    assert without_quotes("anything", body) == LEFT_OUT


def test_what_is_no_json_is_searched_too() -> None:
    assert without_quotes("a sentence of some length", {"odd": Raw(b"{ a sentence of some length")}) == LEFT_OUT


@given(st.text("ab ", max_size=60), st.text("ab ", max_size=60), st.text("ab", min_size=LEAST_QUOTED, max_size=40))
def test_no_quote_is_left(before: str, after: str, quote: str) -> None:
    text = f"{before} {quote} {after}"
    kept = without_quotes(excerpt(f"{after}{quote}{before}"), asked(text))
    whole = " ".join(text.split())
    for piece in kept.split(LEFT_OUT):
        assert not any(piece[at : at + LEAST_QUOTED] in whole for at in range(len(piece) - LEAST_QUOTED + 1))


def test_an_observation_is_the_same_but_for_what_it_quotes() -> None:
    down = failed(ProviderFault("down", kind="http_500", phase="head", status=500))
    assert redact(down, asked()) is down
    well = answered()
    assert redact(well, asked()) is well
    quoting = redact(failed(ProviderFault(f"no: ({excerpt(PROMPT)})", kind="x", phase="head", status=500)), asked())
    assert quoting.fault is not None
    assert (quoting.fault.message, quoting.fault.status) == (f"no: ({LEFT_OUT})", 500)
