"""A client's body on its way through the gateway: linear time, and an answer that is no failure of
ours."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case, sampled_cases
from tests.gateway.limits import conservative_input_tokens
from tests.gateway.visitor import OneRoute, Visitor, serving, visits
from tests.worst_case import (
    JSON_KINDS,
    Make,
    check_bounded,
    check_cheap,
    check_linear,
    deepest_json,
    repeated,
)

from splitsecond.core import validation
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Service
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.target import Target
from splitsecond.core.wire import cohere
from splitsecond.core.wire.api_format import Quirks
from splitsecond.routing.batch.batch_file import read, result_ids
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.router.redaction import LONGEST_SEARCHED, without_quotes
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

DOORS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses/input_tokens",
    "/v1beta/models/fast:generateContent",
    "/api/chat",
    "/api/generate",
    "/v1/rerank",
    "/v1/moderations",
)
POLICY = (
    'by_complexity(simple=sticky("a", "b"), complex=cache(cap(pipeline("a", "b"), '
    "max_tokens=9), sampled=True))"
)
FORMS = {
    "all": b"%b",
    "model": b'{"model":%b}',
    "messages": b'{"model":"fast","messages":%b,"input":"a","prompt":"a"}',
    "input": b'{"model":"fast","messages":[{"role":"user","content":"a"}],"input":%b,"prompt":"a"}',
    "content": b'{"model":"fast","messages":[{"role":"user","content":%b}],"input":"a",'
    b'"prompt":"a"}',
    "provider": b'{"model":"fast","messages":[],"input":"a","prompt":"a","provider":%b}',
    "stream_options": b'{"model":"fast","messages":[],"input":"a","prompt":"a",'
    b'"stream_options":%b}',
    "metadata": b'{"model":"fast","messages":[],"input":"a","prompt":"a","metadata":%b}',
    "id": b'{"model":"fast","messages":[],"input":"a","previous_response_id":"%b"}',
    "item": b'{"model":"fast","messages":[],"input":[{"id":%b}]}',
    "thread": b'{"model":"fast","messages":[{"role":"user","content":"a"}],"thread":%b}',
}
BODY_BYTES = 32 << 20


class Routes(OneRoute):
    """A single model whose provider counts no tokens for others."""

    def counting(self, model: str, api_format: str) -> Target | None:
        return None


def client(policy: str = POLICY) -> Visitor:
    def target(name: str) -> Service:
        return FakeService(script=lambda call: Script(tokens=1), target=name)

    routes: Any = Routes(build(parse(policy), target))
    return visits(serving(routes))


def posted(path: str, body: bytes) -> int:
    """Post `body` and return the status of the answer."""

    async def main() -> int:
        return (await client().asks(body, path=path)).status

    return run_virtual(main())


@sampled_cases(48)
@each_case("kind", JSON_KINDS)
@each_case("path", DOORS)
def test_any_body_is_answered_in_linear_time(path: str, kind: str) -> None:
    """The text is the whole body, and the value of each field that somebody reads."""

    def feed(form: bytes, text: bytes) -> None:
        assert 200 <= posted(path, form % text) < 500

    for form in FORMS.values():
        check_linear(partial(feed, form), JSON_KINDS[kind], size=1 << 14)


@sampled_cases(24)
@each_case("path", DOORS)
@each_case("form", FORMS.values(), ids=FORMS)
def test_nested_values_up_to_the_parser_limit_get_no_5xx(form: bytes, path: str) -> None:
    deepest = deepest_json()
    for depth in range(deepest - 60, deepest + 10, 5):
        assert 200 <= posted(path, form % (b"[" * depth + b"]" * depth)) < 500


@sampled_cases(10)
@each_case(
    "unit", [b"A" * 2_047 + b" ", b"A" * 4_000 + b" ", b"A", b"It was the best of times. ", b"\\n"]
)
@each_case("path", ["/v1/chat/completions", "/v1/messages/count_tokens"])
def test_a_body_of_32_mb_does_not_stop_the_worker(path: str, unit: bytes) -> None:
    """Nothing else is served while a body is read: a pattern for pictures took a minute for this
    one."""
    before, after = b'{"model":"fast","messages":[{"role":"user","content":"', b'"}]}'
    body = repeated(unit, before, after)(BODY_BYTES)

    def post() -> None:
        assert posted(path, body) == 200

    check_cheap(post, lambda: hashlib.sha256(body).digest(), times=100)


@sampled_cases(4)
@each_case(
    "field, unit",
    [
        ("messages", b"{}"),
        ("messages", b'{"content":[{},{}]}'),
        ("input", b"[]"),
        ("tools", b'"a"'),
    ],
)
def test_body_of_millions_of_values_takes_linear_memory(
    field: str, unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding it takes up to 30 times as much; translation and estimates read only what is not too
    large. A tenth of the limit is enough here."""
    monkeypatch.setattr(validation, "MAX_VALUES", 50_000)

    def call(values: bytes) -> Call:
        body = {
            "model": Raw(b'"m"'),
            "messages": Raw(b'[{"role":"user","content":"a"}]'),
            field: Raw(values),
        }
        return Call(id="c", body=body, api_format="responses" if field == "input" else "openai")

    def translate(values: bytes) -> None:
        with pytest.raises(CallerFault, match="more than 500,000 values") as caught:
            transcoding.request(call(values), "cohere", cohere.encode, "m", Quirks())
        assert caught.value.status == 413

    def post(values: bytes) -> None:
        posted("/v1/responses", FORMS["input"] % values)

    def refer(values: bytes) -> None:
        assert posted("/v1/responses", FORMS["input"] % (values[:-1] + b',{"id":"msg_1"}]')) == 413

    make = repeated(unit + b",", b"[", unit + b"]")
    for feed in (translate, post, refer, lambda values: conservative_input_tokens(call(values))):
        check_bounded(feed, make, size=1 << 20, bytes_per_byte=5)


def test_json_marks_in_texts_do_not_count_as_values() -> None:
    text = b'"%b"' % (b'\\\\,[{\\",' * 250_000)
    call = Call(
        id="c", body={"messages": Raw(b'[{"role":"user","content":%b}]' % text), "user": Raw(text)}
    )
    transcoding.request(call, "cohere", cohere.encode, "m", Quirks())


def test_estimate_of_many_pictures_takes_linear_time() -> None:
    """All of the request was copied for each of its pictures."""
    picture = b'{"type":"image_url","image_url":{"url":"%b"}},' % (b"A" * 2_048)
    make = repeated(picture, b'[{"role":"user","content":[', b'{"type":"text","text":"a"}]}]')
    check_linear(
        lambda text: conservative_input_tokens(Call(id="c", body={"messages": Raw(text)})),
        make,
        size=1 << 22,
    )


SEARCHED: dict[str, Make] = {
    "nested arrays": lambda size: (
        b"[" * 900 + b'"abcdefghijklmnop",' * (size // 19) + b'""' + b"]" * 900
    ),
    **JSON_KINDS,
}


@each_case("kind", SEARCHED)
def test_search_for_quotes_takes_linear_time(kind: str) -> None:
    words = "no quote of the request stands here " * 20

    def feed(text: bytes) -> None:
        assert without_quotes(words, {"messages": Raw(text)}) == words

    check_linear(feed, SEARCHED[kind], size=LONGEST_SEARCHED // 2)


def test_quotes_in_deeply_nested_values_are_left_out() -> None:
    deepest = deepest_json()
    for depth in range(deepest - 60, deepest):
        said = b'%b"something that is quoted"%b' % (b"[" * depth, b"]" * depth)
        assert (
            without_quotes("it is something that is quoted", {"messages": Raw(said)})
            == "it is [left out]"
        )


@each_case("reader", [read, result_ids])
@each_case("kind", JSON_KINDS)
def test_files_of_a_batch_are_read_in_linear_time(
    kind: str, reader: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "batch.jsonl"

    def feed(text: bytes) -> None:
        path.write_bytes(text + b"\n")
        reader(path)

    check_linear(feed, JSON_KINDS[kind], size=1 << 17)


def test_a_file_of_answers_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(
        b'{"custom_id":"\xff","response":{"status_code":200,"request_id":"r","body":{}}}\n'
    )
    with pytest.raises(CallerFault, match="line 1 is not a result"):
        result_ids(path)
