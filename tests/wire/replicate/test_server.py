"""The server role: requests read, and answers that our own decoder reads back the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Broken, Done, Event, Finish, Token, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import replicate
from splitsecond.core.wire.api_format import Quirks, ServerAnswer
from splitsecond.simulator.parsing import parse_replicate

PATH = "/v1/models/o/m/predictions"
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1)


def decoded(data: bytes) -> list[Event]:
    decoder = replicate.decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


@given(st.lists(TEXT))
def test_any_text_reads_back(texts: list[str]) -> None:
    write = replicate.StreamWriter("chat", "o/m", id="p1", created=1)
    data = (
        write.opening()
        + b"".join(map(write.token, texts))
        + write.finish("stop")
        + write.usage(Usage(0))
        + write.done()
    )
    assert decoded(data) == [*(Token(1, text) for text in texts), Finish(1, "done"), Done(1, True)]


def test_an_error_inside_a_stream() -> None:
    write = replicate.StreamWriter("chat", "o/m", id="p1", created=1)
    end = decoded(write.token("a") + write.error("broken", "server_error"))[-1]
    assert isinstance(end, Broken)
    assert end.fault.message.endswith("broken")


def test_a_whole_answer_reads_back() -> None:
    data = replicate.StreamWriter("chat", "o/m", id="p1", created=1).whole(
        [ServerAnswer(text="Yes")], Usage(0, 5, 2)
    )
    assert decoded(data) == [
        Token(1, "Yes"),
        Finish(1, "succeeded"),
        Usage(1, 5, 2),
        Done(1, False),
    ]


def test_created_prediction_has_its_stream_url() -> None:
    data = replicate.created("o/m", id="p1", created=1, stream="https://x.test/y")
    assert replicate.output_address(data) == "https://x.test/y"
    assert json.loads(data)["created_at"] == "1970-01-01T00:00:01+00:00"


def test_error_body_is_read_back() -> None:
    body = replicate.error_body(404, "no such model", "not_found")
    assert replicate.fault_from_response(404, {}, body).message == "HTTP 404: no such model"


def body(**fields: Any) -> bytes:
    return json.dumps({"input": {"prompt": "Hi", **fields}, "stream": True}).encode()


def test_a_request() -> None:
    request = parse_replicate("chat", body(system_prompt="Be brief.", max_tokens=7), PATH + "?x=1")
    assert (request.operation, request.model, request.stream, request.max_tokens) == (
        "chat",
        "o/m",
        True,
        7,
    )
    assert (request.include_usage, request.n, request.prompt_text) == (False, 1, "Be brief.\nHi")
    assert not parse_replicate("chat", b'{"input":{"prompt":"Hi"}}', PATH).stream


def test_encoded_requests_can_be_parsed() -> None:
    encoded = replicate.encode(
        Call(id="c", body={"messages": [{"role": "user", "content": "Hi"}]}), "o/m", Quirks()
    )
    request = parse_replicate("chat", encoded.body, "/v1" + encoded.path)
    assert (request.model, request.stream, request.prompt_text) == ("o/m", True, "Hi")


@pytest.mark.parametrize(
    ("raw", "path", "words"),
    [
        (b"", PATH, "truncated"),
        (b"{}", PATH, "`input`"),
        (b'{"input":{}}', PATH, "`prompt`"),
        (body(max_tokens=0), PATH, r"\$.input.max_tokens"),
        (body(), "/v1/predictions", "unknown path /v1/predictions;"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(raw: bytes, path: str, words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        parse_replicate("chat", raw, path)
