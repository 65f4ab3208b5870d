"""Configurations are read as YAML 1.2: its words, no tags, and only what is Unicode."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.routing.configuration.yaml_text import MAX_VALUES, CoreDumper, parsed


@each_case(
    ("text", "value"),
    [
        ("True", True),
        ("FALSE", False),
        ("", None),
        ("~", None),
        ("Null", None),
        ("-12", -12),
        ("0o17", 15),
        ("0x1F", 31),
        ("010", 10),
        ("1e5", 1e5),
        ("-.5E-3", -0.0005),
        ("1.", 1.0),
    ],
)
def test_words_of_the_core_schema_are_values(text: str, value: Any) -> None:
    assert parsed(text) == value
    assert type(parsed(text)) is type(value)


@each_case(
    "text",
    [
        *(
            "trueroute",
            "truefoundry/m",
            "falsetto",
            "tRUE",
            "nullable",
            "nulls",
            "~x",
            "~/runs",
            "nan",
            "inf",
            "NaN",
        ),
        *(
            "1e5x",
            "1e",
            "0xZZ",
            "0x",
            "0o8",
            "-0x1F",
            "0b1",
            "1_000",
            "1:30",
            "12:30:45.5",
            "+",
            ".",
            "-.",
            "1.2.3",
        ),
        *(
            "2026-01-31",
            "2026-13-45",
            "2026-01-31 10:00:00",
            "yes",
            "off",
            "on",
            "n",
            "=",
            "<",
            "<<<",
            "10s",
            "٣",
        ),
    ],
)
def test_other_words_are_strings(text: str) -> None:
    assert parsed(text) == text


@each_case(
    ("text", "complaint"),
    [
        ("a: 1\nb: !!bool x", "line 2, column 4: tags are not supported"),
        ("!!timestamp x", "tags are not supported"),
        ("! x", "tags are not supported"),
        ("{a: 1, 'a': 2}", "line 1, column 8: a is given twice"),
        ("{[a]: 1}", "expected a name"),
        ("a: &a [*a]", "recursive"),
        ("a: .inf", "line 1, column 4: expected a finite number"),
        ("a: -.INF", "expected a finite number"),
        ("a: .nan", "expected a finite number"),
        ("a: 1e999", "expected a finite number"),
        ("a: 9223372036854775808", "the number is too large"),
        ("a: -" + "9" * 5000, "the number is too large"),
        ("a: 0x" + "f" * 5000, "the number is too large"),
        (
            'a: "\\ud800"',
            "line 1, column 4: the text has half of a surrogate pair. Write the whole character",
        ),
        ('{"\\udc00": 1}', "half of a surrogate pair"),
        ('a: "\\ude00\\ud83d"', "half of a surrogate pair"),
        ('a: "x\\0"', "NUL"),
        ('"\\UFFFFFFFF"', "this is not YAML"),
        ("\x07", "this is not YAML"),
        ("[" * 400, "nested too deeply"),
        ("a: *b", "undefined alias"),
        ("<<: 1", "expected a mapping"),
    ],
)
def test_a_mistake_has_its_place(text: str, complaint: str) -> None:
    with pytest.raises(CallerFault, match=re.escape(complaint)) as caught:
        parsed(text)
    str(caught.value).encode()


def test_aliases_and_merge_keys_are_read() -> None:
    found = parsed("a: &a {x: 1, y: [2]}\nb: {<<: *a, x: 3}\nc: [*a, *a]")
    assert found == {
        "a": {"x": 1, "y": [2]},
        "b": {"x": 3, "y": [2]},
        "c": [{"x": 1, "y": [2]}] * 2,
    }


def test_aliases_cannot_multiply_beyond_the_limit() -> None:
    levels = "".join(
        f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]\n" for level in range(1, 7)
    )
    assert len(parsed("l0: &l0 x\n" + levels.partition("l4:")[0])) == 4
    with pytest.raises(CallerFault, match=f"more than {MAX_VALUES:,} values"):
        parsed("l0: &l0 x\n" + levels)


def test_both_halves_of_a_surrogate_pair_are_one_character() -> None:
    assert parsed('"\\ud83d\\ude00 \\uFEFF"') == "\N{GRINNING FACE} \ufeff"


@settings(max_examples=100)
@given(
    st.text(st.sampled_from("01234567890.eExo+-_:tTrueFalsnN~<= "), max_size=8)
    | st.text(max_size=20)
)
def test_dumped_text_is_read_back(text: str) -> None:
    if "\0" not in text:
        assert parsed(yaml.dump({"a": text}, Dumper=CoreDumper)) == {"a": text}


@settings(max_examples=100)
@given(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
def test_dumped_values_are_read_back(value: Any) -> None:
    assert parsed(yaml.dump([value], Dumper=CoreDumper)) == [value]
