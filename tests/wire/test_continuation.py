"""Continuation of a stream of chunks by another target: whole events, the first target's id, the
same content."""

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.streams import Stream, load

from splitsecond.core.events import Broken, Done, Event, Finish, Quiet, Token, ToolPart, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire.openai import StreamWriter, decoder
from splitsecond.core.wire.openai.client_side import ChunkEncoder, continuation_encoder

STREAMS = [stream for stream in load() if stream.operation != "embeddings"]
ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


def decoded(stream: Stream, reads: Sequence[bytes]) -> list[Event]:
    reading = decoder(stream.operation)
    events = [event for data in reads for event in reading.feed(data, 7)]
    return [event for event in [*events, *reading.close(7)] if not isinstance(event, Broken)]


@each_case("stream", STREAMS, ids=lambda stream: stream.name)
@each_case("size", [1, 7, 100_000])
def test_all_bytes_come_out_in_whole_events(stream: Stream, size: int) -> None:
    data = b"".join(packet.data for packet in stream.packets)[:20_000]
    reads = [data[begin : begin + size] for begin in range(0, len(data), size)]
    encoder = ChunkEncoder(stream.operation)
    whole, events = b"", list[Event]()
    for read in reads:
        out = encoder.cut(read)
        said = encoder.decode(out, 7)
        assert not out or out.endswith(ENDS) or data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        whole += out
        events += said
    out = encoder.rest()
    said = [*encoder.decode(out, 7), *encoder.close(7)]
    assert whole + out == data
    assert [event for event in events + said if not isinstance(event, Quiet)] == [
        event for event in decoded(stream, [data]) if not isinstance(event, Quiet)
    ]


def opened(operation: str = "chat") -> ChunkEncoder:
    encoder = ChunkEncoder("completions" if operation == "completions" else "chat")
    writer = StreamWriter("chat", "first", id="id-1", created=77)
    encoder.cut(b": hello\n\n" + writer.opening() + writer.token("a"))
    return encoder


EVENTS: list[Event] = [
    Token(0, 'b"\n'),
    Token(0, "hm", "reasoning"),
    Token(0, "no", "refusal"),
    Token(0, "c", index=1),
    Finish(0, "length", 1),
    Usage(0, 3, 4, cached_tokens=1),
]


@each_case("event", EVENTS)
def test_an_encoded_event_decodes_to_itself(event: Event) -> None:
    data = opened().encode(event)
    assert data.endswith(b"\n\n")
    assert event in decoder("chat").feed(data, 0)
    chunk = json.loads(data.removeprefix(b"data: "))
    assert (chunk["id"], chunk["model"], chunk["created"]) == ("id-1", "first", 77)


def test_a_tool_call_continues_or_begins() -> None:
    encoder, reading = opened(), decoder("chat")
    begun = Token(0, 'f{"a', "tool", tool=ToolPart(0, "c0", "f"))
    rest = Token(0, '":1}', "tool", tool=ToolPart(0))
    another = Token(0, "g{}", "tool", tool=ToolPart(1, "c1", "g"))
    read = reading.feed(b"".join(map(encoder.encode, [begun, rest, another])), 0)
    assert [event for event in read if isinstance(event, Token)] == [begun, rest, another]


def test_the_end_mark_is_written_only_if_there_was_one() -> None:
    assert opened().encode(Done(0, marker=True)) == b"data: [DONE]\n\n"
    assert opened().encode(Done(0, marker=False)) == b""
    assert opened().encode(Quiet(0)) == b""


def test_response_without_an_id_can_be_continued() -> None:
    encoder = ChunkEncoder("completions")
    encoder.cut(b'data: {"id": 5}\n\ndata: none\n\n')
    read = decoder("completions").feed(encoder.encode(Token(0, "a")), 0)
    assert [event.text for event in read if isinstance(event, Token)] == ["a"]


def test_only_answers_in_chunks_have_an_encoder() -> None:
    assert continuation_encoder(Call(id="c", body={})) is not None
    assert continuation_encoder(Call(id="c", body={}, operation="completions")) is not None
    assert continuation_encoder(Call(id="c", body={}, operation="embeddings")) is None


@given(st.binary(max_size=200), st.integers(1, 20))
def test_any_bytes_come_out_exactly_once(data: bytes, size: int) -> None:
    encoder = ChunkEncoder("chat")
    out = b"".join(encoder.cut(data[begin : begin + size]) for begin in range(0, len(data), size))
    assert out + encoder.rest() == data
