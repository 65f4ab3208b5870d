"""Providers that send any bytes at all: what a client of the gateway gets is a whole answer, or
says it is none."""

import json
import re
import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.faults.world import World, play, profile
from tests.gateway.visitor import Visitor

from splitsecond.core.serving.request_cycle import RequestCycle


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _chunk(delta: bytes, reason: bytes = b"null") -> bytes:
    return _event(
        b'{"id":"x","choices":[{"index":0,"delta":%b,"finish_reason":%b}]}' % (delta, reason)
    )


FINISH = _chunk(b"{}", b'"stop"')
DONE = _event(b"[DONE]")
USAGE = _event(b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}')
ABSURD_USAGE = USAGE.replace(b":2}", b":1000000000000000}")
ENDS = (FINISH, DONE, USAGE, ABSURD_USAGE)
"""What may end an answer: its reason, the end mark, or usage alone, which some send in the place of
both."""
ERROR = _event(b'{"error":{"message":"no"}}')
PIECES = [
    _chunk(b'{"role":"assistant","content":""}'),
    _chunk(b'{"content":"a"}'),
    _chunk(b'{"content":"b"}').replace(b"\n", b"\r\n"),
    _chunk(b'{"content":"[DONE]"}'),
    _chunk(b'{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}'),
    USAGE,
    ABSURD_USAGE,
    USAGE.replace(b":1,", b":-1,"),
    FINISH,
    DONE,
    ERROR,
    b": a comment\n\n",
    b"event: ping\ndata: {}\n\n",
    b"data:\n\n",
    b"\xef\xbb\xbf",
    b"\r",
    b"data: {\n\n",
    b"data: [1]\n\n",
    b'data: {"choices":null}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":5}}]}\n\n',
    b"\xff\xfe\x00",
    b"<html>",
]
WHOLE = json.dumps(
    {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}
).encode()
bodies = st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)


class Says:
    """A provider that answers with `parts` of a body, and then ends it or cuts it off."""

    def __init__(self, parts: list[bytes], kind: bytes, *, ends: bool) -> None:
        self._parts = parts
        self._kind = kind
        self._ends = ends

    async def __call__(self, cycle: RequestCycle) -> None:
        await cycle.body(1 << 20)
        cycle.begin_stream([], kind=self._kind)
        cycle.flush()
        for part in self._parts:
            await cycle.send(part)
        if self._ends:
            await cycle.send(b"", last=True)
        else:
            cycle.cut()


def _asked(provider: Says, *, stream: bool) -> Visitor:
    found: list[Visitor] = []

    async def story(world: World) -> None:
        found.append(await world.ask(stream=stream))
        await world.settled()

    with tempfile.TemporaryDirectory() as folder:
        play('deadline("a/m", total="30s")', Path(folder), story, a=provider, b=profile())
    return found[0]


AFTER_THE_END = (
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\ndata: '
    b'{"error":{"message":"no"}}\n\n'
)

CR_AFTER_THE_END = USAGE + DONE + b"\r" + _chunk(b'{"content":"a"}')


def _looks_whole(visitor: Visitor) -> bool:
    if visitor.headers["content-type"] == "application/json":
        return visitor.status == 200
    return visitor.body.endswith(DONE)


@examples(200)
@given(bodies, st.lists(st.integers(0, 400), max_size=4), st.booleans(), st.booleans())
@example(body=AFTER_THE_END, cuts=[], ends=False, stream=True)
@example(body=CR_AFTER_THE_END, cuts=[], ends=True, stream=True)
def test_any_streamed_bytes_give_a_whole_response_or_an_error(
    body: bytes, cuts: list[int], ends: bool, stream: bool
) -> None:
    at = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    parts = [body[begin:end] for begin, end in pairwise(at) if end > begin]
    visitor = _asked(Says(parts, b"text/event-stream", ends=ends), stream=stream)
    if _looks_whole(visitor):
        assert any(end in body for end in ENDS)
        assert not re.search(rb'(?m)^data:.*"error"', visitor.body)
    else:
        *_, last = re.split(rb"\r\n\r\n|\n\n|\r\r", visitor.body.strip())
        assert json.loads(last.removeprefix(b"data: "))["error"]["message"]


def test_an_assembled_answer_ends_at_the_end_mark() -> None:
    visitor = _asked(
        Says(
            [_chunk(b'{"content":"b"}'), FINISH, CR_AFTER_THE_END], b"text/event-stream", ends=True
        ),
        stream=False,
    )
    assert json.loads(visitor.body)["choices"][0]["message"]["content"] == "b"


@examples(60)
@given(st.integers(0, len(WHOLE)), st.booleans(), st.booleans())
def test_part_of_a_whole_response_never_looks_whole(length: int, ends: bool, stream: bool) -> None:
    visitor = _asked(Says([WHOLE[:length]], b"application/json", ends=ends), stream=stream)
    if length < len(WHOLE):
        assert not _looks_whole(visitor)
    elif ends:
        assert _looks_whole(visitor)
