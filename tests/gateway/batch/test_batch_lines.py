"""The files of a batch: valid and invalid requests, and a file of results that is continued."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from splitsecond.core.errors import CallerFault
from splitsecond.routing.batch.batch_file import (
    BatchResponse,
    BatchResult,
    encoded,
    read,
    remove_partial_line,
    result_ids,
)

CHAT = '{"model":"fast","messages":[{"role":"user","content":"Hi"}]}'


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_lines_of_openai_and_anthropic_are_read(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f'{{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{CHAT}}}',
        "",
        f'{{"custom_id":"b","params":{CHAT}}}',
        '{"custom_id":7,"url":"/v1/embeddings","body":{"model":"e","input":"x"}}',
        '{"url":"/v1/responses","body":{"model":"r","input":"x"}}',
    )
    items = read(file)
    assert [
        (i.line, i.custom_id, i.request.model, i.endpoint.operation, i.endpoint.format.name)
        for i in items
    ] == [
        (1, "a", "fast", "chat", "openai"),
        (3, "b", "fast", "chat", "anthropic"),
        (4, "7", "e", "embeddings", "openai"),
        (5, "line-5", "r", "chat", "responses"),
    ]


def test_option_model_sets_the_model_of_every_request(tmp_path: Path) -> None:
    (item,) = read(written(tmp_path, '{"body":{"messages":[],"temperature":0}}'), model="groq/m")
    assert item.request.model == "groq/m"
    assert {name: bytes(value) for name, value in item.request.body.items()} == {
        "messages": b"[]",
        "temperature": b"0",
        "model": b'"groq/m"',
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: the line is not a request in JSON"),
        ("[]", "line 1: the line is not a request in JSON"),
        ('{"custom_id":"a"}', "line 1: the request has neither a body nor params"),
        ('{"body":{"messages":[]}}', "line 1: the request names no model"),
        ('{"body":[]}', "line 1: the request's body is not a JSON object"),
        (f'{{"url":"/v1/nothing","body":{CHAT}}}', "there is no endpoint POST /v1/nothing. Use "
        "POST and one of /v1"),
        (f'{{"url":"/v1/messages/count_tokens","body":{CHAT}}}', "there is no endpoint POST"),
        (f'{{"method":"GET","body":{CHAT}}}', "there is no endpoint GET"),
        (f'{{"custom_id":"a","body":{CHAT}}}\n' * 2, "line 2: line 1 has the same custom_id, 'a'"),
        ("", "requests.jsonl has no requests"),
        ("[" * 100_000, "line 1: the line is not a request in JSON"),
    ],
)  # fmt: skip
def test_invalid_request_is_reported_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(CallerFault) as refused:
        read(written(tmp_path, line))
    assert words in str(refused.value)


def test_unreadable_file_raises_caller_fault(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match="cannot read"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(CallerFault, match="cannot read"):
        result_ids(tmp_path)


@examples(200)
@given(st.binary(max_size=200))
def test_any_bytes_are_requests_or_a_clear_refusal(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "requests.jsonl"
    path.write_bytes(data)
    assert _outcome(path).startswith(("requests", f"{path}, line ", f"{path} has no requests"))


def _outcome(path: Path) -> str:
    try:
        return f"requests: {len(read(path))}"
    except CallerFault as fault:
        return fault.message


def an_answer(name: str) -> BatchResult:
    return BatchResult(
        name, BatchResponse(200, f"req-{name}", msgspec.Raw(b'{"id":"1"}')), "groq/m", f"req-{name}"
    )


def test_answers_are_written_as_openai_writes_them() -> None:
    line = encoded(an_answer("a"))
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "id": "req-a",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req-a", "body": {"id": "1"}},
        "error": None,
        "target": "groq/m",
    }


def test_an_answer_in_several_lines_is_written_in_one() -> None:
    line = encoded(
        BatchResult(
            "a", BatchResponse(200, "req-a", msgspec.Raw(b'{\n  "id": "1"\n}')), "groq/m", "req-a"
        )
    )
    assert line.count(b"\n") == 1
    assert json.loads(line)["response"]["body"] == {"id": "1"}


def test_existing_results_are_continued(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    assert result_ids(path) == set()
    path.write_bytes(encoded(an_answer("a")) + encoded(an_answer("b")))
    assert result_ids(path) == {"a", "b"}
    whole = path.read_bytes()
    for cut in range(1, len(encoded(an_answer("c")))):  # we were killed while we wrote the third
        path.write_bytes(whole + encoded(an_answer("c"))[:cut])
        assert result_ids(path) == {"a", "b"}
        remove_partial_line(path)
        assert path.read_bytes() == whole


def test_another_file_is_not_written_into(tmp_path: Path) -> None:
    path = written(tmp_path, f'{{"custom_id":"a","body":{CHAT}}}', "")
    with pytest.raises(CallerFault, match=r"line 1 is not a result of a batch. Name another file."):
        result_ids(path)
