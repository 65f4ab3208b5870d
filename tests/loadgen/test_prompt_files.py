"""Prompt files: each format is recognised and read in pieces; what is not understood is refused
with its line."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.worst_case import check_linear, nested, repeated

from splitsecond.benchmark.workload import prompt_files
from splitsecond.benchmark.workload.prompt_files import PromptFile, parse_prompts, read_prompts
from splitsecond.core import json_array
from splitsecond.core.errors import CallerFault


def parsed(data: bytes | str) -> PromptFile:
    return parse_prompts(io.BytesIO(data if isinstance(data, bytes) else data.encode()), "f")


def user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def conversation(*turns: tuple[str, str | None]) -> dict[str, Any]:
    return {
        "id": "x_0",
        "conversations": [{"from": speaker, "value": value} for speaker, value in turns],
    }


def test_json_lines() -> None:
    found = parsed(
        '\ufeff{"prompt": "one", "id": 3, "max_tokens": 7}\n\n'
        '{"messages": [{"role": "user", "content": "two"}], "top_p": 0.5, '
        '"model": "m", "stream": true}\n'
        '[{"role": "user", "content": "three"}]\n' + json.dumps(conversation(("human", "four")))
    )
    assert found.format == "JSON lines"
    assert found.prompts == [
        user("one") | {"max_tokens": 7},
        user("two") | {"top_p": 0.5},
        user("three"),
        user("four"),
    ]


def test_a_list_of_messages_on_the_first_line_is_a_request() -> None:
    lines = ' [ {"role": "user", "content": "one"}]\n[{"role": "user", "content": "two"}]'
    assert parsed(lines).prompts == [user("one"), user("two")]


@pytest.mark.parametrize("indent", [None, 2])
def test_conversations_give_their_first_question(indent: int | None) -> None:
    items = [
        conversation(("human", 'é\n[}, \\"x'), ("gpt", "yes"), ("human", "no")),
        conversation(("system", "be brief"), ("user", "b"), ("assistant", "c")),
        conversation(("gpt", "hello"), ("human", "c")),
        conversation(("gpt", "hello")),
        conversation(("human", None)),
        conversation(),
        {"prompt": "d"},
    ]
    found = parsed(json.dumps(items, indent=indent))
    system = {"messages": [{"role": "system", "content": "be brief"}, *user("b")["messages"]]}
    assert found.prompts == [user('é\n[}, \\"x'), system, user("c"), user("d")]
    assert (found.format, found.skipped, found.complete) == ("JSON", 3, True)
    assert (
        found.in_words("f") == "f (JSON): 4 prompts; 3 conversations without a question left out."
    )


def test_newer_conversations_have_the_fields_of_openai() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    found = parse_prompts(io.BytesIO(json.dumps([{"conversations": turns}]).encode()), "f")
    assert found.prompts == [{"messages": turns}]


def test_plain_text() -> None:
    found = parsed("Why is the sky blue?\n\n  \t[1] and {2}\n")
    assert found.prompts == [user("Why is the sky blue?"), user("[1] and {2}")]
    assert found.in_words("f") == "f (plain text): 2 prompts."


@each_case(
    ("data", "complaint"),
    [
        (b'{"prompt": "a"}\n{', "f:2: Input data was truncated"),
        (b'{"prompt": "a"}\n3', "f:2: expected a list of messages, or an object"),
        (b'{"prompt": "a"}\n[]', "f:2: expected at least one message"),
        (
            b'{"prompt": "a"}\n\n{"text": "x"}',
            r'f:3: expected .* "messages", "prompt" or "conversations"',
        ),
        (b'{"prompt": ["a"]}', "f:1: .*str"),
        (b'{"prompt": "a", "max_tokens": "b"}', "f:1: .*int"),
        (b'{"messages": [{"content": "x"}]}', "f:1: .*role"),
        (b'{"messages": [{"role": "user", "content": 3}]}', "f:1: .*content"),
        (b'{"conversations": [{"value": "x"}]}', "f:1: .*from"),
        (b'{"a":' * 100_000, "f:1: "),
        (b'{"prompt": "a"}\n"\xff"', "f:2: the line is not UTF-8 text"),
        (b"a\n\x00\x01", "f:2: the line has control characters"),
        (b'[\n{"prompt": "a"},\n{"prompt": 3}]', "f:3: .*str"),
        (
            b'[{"prompt": "a"}\n{"prompt": "b"}]',
            "f:2: expected a comma or the end of the array, got {",
        ),
        (b'[{"prompt": "a"}', "f:1: expected a comma .* the end of the file"),
        (b'[{"prompt": "a"},\n]', "f:2: expected an object"),
        (b'[{"prompt": "a"},\n{"prompt', "f:2: Unterminated string"),
        (b'[{"prompt": "a"}] x', "f:1: expected the end of the file"),
        (b"[1, 2]", "f:1: expected an object"),
        (b'[{"prompt": "\xff"}]', "f:1: the file is not UTF-8 text"),
        (b'[{"a":' * 100_000, "f:1: "),
        (b"[]", "f: no prompt found"),
        (b"[", "f:1: expected an object|f: no prompt"),
        (b" \n", "f: no prompt found"),
    ],
)
def test_prompt_file_of_unknown_form_is_refused_with_its_line(data: bytes, complaint: str) -> None:
    with pytest.raises(CallerFault, match=complaint) as raised:
        parsed(data)
    assert "ShareGPT" in raised.value.hint


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match=r"cannot read the prompts .*: No such file"):
        read_prompts(tmp_path / "none")
    (tmp_path / "some").write_text("a")
    assert read_prompts(tmp_path / "some").prompts == [user("a")]


def test_only_the_first_prompts_of_a_large_file_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_files, "MAX_PROMPTS", 2)
    for text in ("a\nb\nc\n\x00", '[{"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"}, nonsense'):
        found = parsed(text)
        assert found.prompts == [user("a"), user("b")]
        assert "the first 2 prompts" in found.in_words("f")
    monkeypatch.setattr(prompt_files, "MAX_BYTES", 10)
    assert (len(parsed("a\nb").prompts), parsed("a\nb").complete) == (1, False)


def test_a_piece_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_files, "LONGEST", 50)
    for module in (prompt_files, json_array):
        monkeypatch.setattr(module, "CHUNK", 8)
    for text in ("a\n" + "b" * 60, '[\n{"prompt": "' + "b" * 200 + '"}]'):
        with pytest.raises(CallerFault, match=r"f:2: .* is longer than 50"):
            parsed(text)


TEXTS = st.text(max_size=20).filter(lambda text: text.strip())


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]))
def test_the_size_of_pieces_does_not_matter(
    texts: list[str], chunk: int, indent: int | None
) -> None:
    """And a file that is cut anywhere is refused, or gives the beginning."""
    data = json.dumps(
        [{"prompt": text} for text in texts], indent=indent, ensure_ascii=False
    ).encode()
    with pytest.MonkeyPatch.context() as patch:
        for module in (prompt_files, json_array):
            patch.setattr(module, "CHUNK", chunk)
        assert parsed(data).prompts == [user(text) for text in texts]
        with pytest.raises(CallerFault, match="f"):
            parsed(data[: len(data) * chunk // 41])


LINES = st.binary(max_size=30) | st.sampled_from(
    [b'{"prompt": "a"}', b"[", b"]", b",", b"[{", b"\n", b"\xef\xbb\xbf"]
)


@given(st.lists(LINES, max_size=6))
def test_any_bytes_are_prompts_or_a_caller_fault(pieces: list[bytes]) -> None:
    with contextlib.suppress(CallerFault):
        assert parsed(b"".join(pieces)).prompts


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "make",
    [
        repeated(b'{"prompt": "a"},', b"[", b'{"prompt": "a"}]'),
        repeated(b"a", b'[{"prompt": "', b'"}]'),
        repeated(b" ", b"[", b"]"),
        repeated(b"\n", b"a"),
        nested(b"[", b"", b"]"),
    ],
    ids=["elements", "one element", "spaces", "blank lines", "nested"],
)
def test_large_files_take_linear_time(make: Any) -> None:
    check_linear(parsed, make)
