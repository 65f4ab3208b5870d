"""What a provider repeats of a request, and what is kept of it."""

import html
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.cases import each_case
from tests.policies.attempts import answered, failed

from splitsecond.core.errors import ProviderFault, excerpt
from splitsecond.routing.router.redaction import (
    LEFT_OUT,
    LONGEST_SEARCHED,
    MIN_QUOTED,
    redact,
    without_quotes,
)

PROMPT = 'My "secret" is\nthat I like  the colour blue very much'


def asked(text: str = PROMPT, **fields: Any) -> dict[str, Raw]:
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    return {
        name: Raw(json.dumps(value).encode())
        for name, value in ({"messages": messages} | fields).items()
    }


@each_case(
    ("words", "kept"),
    [
        ("HTTP 500: the server is down", "HTTP 500: the server is down"),
        (
            f"HTTP 400: got ({excerpt(PROMPT)}), which is wrong",
            f"HTTP 400: got ({LEFT_OUT}), which is wrong",
        ),
        (excerpt(PROMPT), LEFT_OUT),
        ("x I like the colour blue y I like the colour blue", f"x {LEFT_OUT} y {LEFT_OUT}"),
        ("no model meta-llama/Llama-3.3-70B", "no model meta-llama/Llama-3.3-70B"),
        ("no tool 'look-up-the-weather-in-a-city'", f"no tool '{LEFT_OUT}'"),
        ("the colour", "the colour"),
        ("", ""),
    ],
)
def test_quotes_are_left_out(words: str, kept: str) -> None:
    fields = asked(
        model="meta-llama/Llama-3.3-70B", tools=[{"name": "look-up-the-weather-in-a-city"}]
    )
    assert without_quotes(words, fields) == kept


def test_message_about_a_too_long_request_is_left_out() -> None:
    body = asked("a" * LONGEST_SEARCHED)
    assert without_quotes("HTTP 500: anything: at all", body) == f"HTTP 500: {LEFT_OUT}"
    assert without_quotes("anything", body) == LEFT_OUT


def test_bodies_that_are_not_json_are_searched_too() -> None:
    assert (
        without_quotes("a sentence of some length", {"odd": Raw(b"{ a sentence of some length")})
        == LEFT_OUT
    )


ODD = 'Größe: 5 "Fuß" & 100%\tin C:\\neu\\ordner, дом 7, 東京都千代田区千代田一番一号皇居'
"""Characters of several kinds that are escaped in one form or another."""


@each_case(
    "change",
    [
        str.upper,
        str.title,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: json.dumps(json.dumps(json.dumps(text))),
        repr,
        ascii,
        lambda text: repr(text.encode()),
        html.escape,
        lambda text: "".join(f"&#{ord(each)};" for each in text),
        lambda text: "".join(f"&#x{ord(each):X};" for each in text),
        quote,
        quote_plus,
        lambda text: text.replace(" ", "\n\t"),
        lambda text: text.replace(" ", "_").replace('"', "”"),
        lambda text: "".join(f"{each}\u200b" for each in text),
        lambda text: text.encode("unicode_escape").decode(),
    ],
)
def test_quote_in_another_encoding_is_left_out(change: Callable[[str], str]) -> None:
    for text in (PROMPT, ODD):
        kept = without_quotes(
            f"HTTP 400: ({change(text)}) is wrong", asked(f"Before. {text} After.")
        )
        assert kept.startswith("HTTP 400: (")
        assert kept.endswith("is wrong")
        assert not re.search(r"[\w]{4}", kept[11:-8].replace(LEFT_OUT, "")), kept


@pytest.mark.parametrize(
    "text", [r'{"path": "C:\new folder\table \u0041"}', "100%25 &amp; &quot;more&quot; than %41%42"]
)
def test_escapes_of_the_request_itself_are_left_out(text: str) -> None:
    for said in (text, text.upper(), json.dumps(text)):
        assert without_quotes(f"no: {said}!", asked(text)).count(LEFT_OUT) == 1


@given(
    st.text("ab ", max_size=60),
    st.text("aB-\n", max_size=60),
    st.text("ab", min_size=MIN_QUOTED, max_size=40),
)
def test_any_message_keeps_no_quote(before: str, after: str, quote: str) -> None:
    text = f"{before} {quote} {after}"
    kept = without_quotes(excerpt(f"{after}{quote}{before}"), asked(text))
    whole = re.sub("[^ab]", "", text.lower())
    for piece in kept.split(LEFT_OUT):
        letters = re.sub("[^ab]", "", piece.lower())
        assert not any(
            letters[at : at + MIN_QUOTED] in whole for at in range(len(letters) - MIN_QUOTED + 1)
        )


@given(st.text(st.sampled_from("ab\\xu%4&#1;é "), max_size=200))
def test_message_without_a_quote_is_not_changed(message: str) -> None:
    assert without_quotes(message, asked("0" * 40)) == message


def test_redaction_changes_only_quotes_in_an_observation() -> None:
    down = failed(ProviderFault("down", kind="http_500", phase="head", status=500))
    assert redact(down, asked()) is down
    well = answered()
    assert redact(well, asked()) is well
    quoting = redact(
        failed(ProviderFault(f"no: ({excerpt(PROMPT)})", kind="x", phase="head", status=500)),
        asked(),
    )
    assert quoting.fault is not None
    assert (quoting.fault.message, quoting.fault.status) == (f"no: ({LEFT_OUT})", 500)
