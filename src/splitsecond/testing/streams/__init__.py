"""A corpus of streams that are hard to time, each with its exact truth.

A stream is a ``.toml`` file here: the body in packets, each with the time at which it is sent, how the body is framed,
and what a correct client must make of it. Times in the files are milliseconds since the request was sent. A decoder is
checked without sockets by `check_decoder`; a client is checked by serving the packets at their times and comparing
what it saw with `differences`.
"""

from collections.abc import Iterable
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

from splitsecond.clock import NS_PER_MS
from splitsecond.events import Broken, Done, Event, Finish, Token, TokenKind, Usage
from splitsecond.service import Operation
from splitsecond.wire import openai

Framing = Literal["chunked", "sized", "close"]
Ending = Literal["clean", "cut"]


class Packet(Struct, frozen=True):
    """Bytes of the body that are sent together, `at_ns` after the request."""

    at_ns: int
    data: bytes


class Truth(Struct, frozen=True, kw_only=True):
    """What a stream is. Times are nanoseconds since the request was sent; None: it never came.

    `outcome` is "ok" or the kind of the fault, `phase` the fault's. `first_event_ns` is the first event that does not
    end the stream, `end_ns` the one that does. `token_ns` holds one time for each content event; `text` and its like
    hold what they carried, all choices in order of arrival. `finish` holds the reasons in that order.
    """

    outcome: str
    phase: str = ""
    first_event_ns: int | None = None
    token_ns: tuple[int, ...] = ()
    first_answer_ns: int | None = None
    end_ns: int
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool: str = ""
    audio: str = ""
    finish: tuple[str, ...] = ()
    tokens_so_far: tuple[int, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    marker: bool = False
    server_timings: dict[str, float] = {}

    @property
    def first_token_ns(self) -> int | None:
        """When the first content event came."""
        return self.token_ns[0] if self.token_ns else None

    @property
    def last_token_ns(self) -> int | None:
        """When the last content event came."""
        return self.token_ns[-1] if self.token_ns else None


class Stream(Struct, frozen=True, kw_only=True):
    """One response with status 200, and its truth.

    `why` says what is hard about it. `stream`: what the request asked for. `head_ns`: when the head is sent. `ending`
    "cut": the connection closes without the end that `framing` asks for.
    """

    name: str
    why: str
    operation: Operation
    stream: bool
    content_type: str
    framing: Framing
    ending: Ending
    head_ns: int
    packets: tuple[Packet, ...]
    end_ns: int
    truth: Truth


def load() -> list[Stream]:
    """All streams of the corpus, by name."""
    entries = sorted(
        (entry for entry in files(__name__).iterdir() if entry.name.endswith(".toml")), key=lambda e: e.name
    )
    return [_stream(entry.name.removesuffix(".toml"), entry.read_bytes()) for entry in entries]


def check_decoder(stream: Stream) -> list[str]:
    """What our decoder makes of `stream` that is not its truth, a line for each difference; none where it is right."""
    decoder = openai.decoder(stream.operation, stream.stream)
    events: list[Event] = []
    for packet in stream.packets:
        events += decoder.feed(packet.data, packet.at_ns)
    events += decoder.close(stream.end_ns)
    return differences(stream.truth, seen(events, decoder.server_timings))


def seen(events: Iterable[Event], server_timings: dict[str, float]) -> Truth:
    """The `Truth` that `events`, a whole stream of them, amount to."""
    told = list(events)
    end = told.pop()
    if not isinstance(end, Done | Broken):
        raise ValueError(f"the events must end with Done or Broken, got {end!r}")
    tokens = [event for event in told if isinstance(event, Token)]
    usage = next((event for event in reversed(told) if isinstance(event, Usage)), Usage(0))
    return Truth(
        outcome="ok" if isinstance(end, Done) else end.fault.kind,
        phase="" if isinstance(end, Done) else end.fault.phase,
        first_event_ns=told[0].at if told else None,
        token_ns=tuple(token.at for token in tokens),
        first_answer_ns=next((token.at for token in tokens if token.kind != "reasoning"), None),
        end_ns=end.at,
        text=_joined(tokens, "text"),
        reasoning=_joined(tokens, "reasoning"),
        refusal=_joined(tokens, "refusal"),
        tool=_joined(tokens, "tool"),
        audio=_joined(tokens, "audio"),
        finish=tuple(event.reason for event in told if isinstance(event, Finish)),
        tokens_so_far=tuple(token.tokens_so_far for token in tokens if token.tokens_so_far is not None),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cached_tokens=usage.cached_tokens,
        marker=isinstance(end, Done) and end.marker,
        server_timings=server_timings,
    )


def differences(truth: Truth, got: Truth) -> list[str]:
    """One line for each field in which `got` is not `truth`."""
    return [
        f"{name}: got {_brief(getattr(got, name))}, expected {_brief(getattr(truth, name))}"
        for name in Truth.__struct_fields__
        if getattr(got, name) != getattr(truth, name)
    ]


def _joined(tokens: list[Token], kind: TokenKind) -> str:
    return "".join(token.text for token in tokens if token.kind == kind)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}… ({len(text)} characters)"


class _PacketFile(Struct, forbid_unknown_fields=True):
    """A packet in a file: `text` or `hex`, repeated `times`."""

    ms: float
    text: str = ""
    hex: str = ""
    times: int = 1


class _TruthFile(Struct, forbid_unknown_fields=True):
    """A truth in a file. `end_ms` may be left out where the last packet ends the stream."""

    outcome: str
    phase: str = ""
    first_event_ms: float | None = None
    token_ms: list[float] = []
    first_answer_ms: float | None = None
    end_ms: float | None = None
    text: str = ""
    text_times: int = 1
    reasoning: str = ""
    refusal: str = ""
    tool: str = ""
    audio: str = ""
    finish: list[str] = []
    tokens_so_far: list[int] = []
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    marker: bool = False
    server_timings: dict[str, float] = {}


class _StreamFile(Struct, forbid_unknown_fields=True):
    """A stream in a file. `end_ms`, when the body ends, may be left out where the last packet ends it."""

    why: str
    truth: _TruthFile
    packets: list[_PacketFile] = []
    operation: Operation = "chat"
    stream: bool = True
    content_type: str = "text/event-stream"
    framing: Framing = "chunked"
    ending: Ending = "clean"
    head_ms: float = 1.0
    end_ms: float | None = None


def _stream(name: str, data: bytes) -> Stream:
    file = msgspec.toml.decode(data, type=_StreamFile)
    packets = tuple(
        Packet(_ns(packet.ms), (bytes.fromhex(packet.hex) or packet.text.encode()) * packet.times)
        for packet in file.packets
    )
    last_ns = packets[-1].at_ns if packets else _ns(file.head_ms)
    return Stream(
        name=name,
        why=file.why,
        operation=file.operation,
        stream=file.stream,
        content_type=file.content_type,
        framing=file.framing,
        ending=file.ending,
        head_ns=_ns(file.head_ms),
        packets=packets,
        end_ns=last_ns if file.end_ms is None else _ns(file.end_ms),
        truth=_truth(file.truth, last_ns),
    )


def _truth(file: _TruthFile, last_ns: int) -> Truth:
    return Truth(
        outcome=file.outcome,
        phase=file.phase,
        first_event_ns=None if file.first_event_ms is None else _ns(file.first_event_ms),
        token_ns=tuple(_ns(ms) for ms in file.token_ms),
        first_answer_ns=None if file.first_answer_ms is None else _ns(file.first_answer_ms),
        end_ns=last_ns if file.end_ms is None else _ns(file.end_ms),
        text=file.text * file.text_times,
        reasoning=file.reasoning,
        refusal=file.refusal,
        tool=file.tool,
        audio=file.audio,
        finish=tuple(file.finish),
        tokens_so_far=tuple(file.tokens_so_far),
        input_tokens=file.input_tokens,
        output_tokens=file.output_tokens,
        reasoning_tokens=file.reasoning_tokens,
        cached_tokens=file.cached_tokens,
        marker=file.marker,
        server_timings=file.server_timings,
    )


def _ns(ms: float) -> int:
    return round(ms * NS_PER_MS)
