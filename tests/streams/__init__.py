"""A corpus of streams that are difficult to time, each with its exact truth.

Each stream is a ``.toml`` file in this folder: the packets of the body with their send times, the
framing of the body, and the result that a correct client must get. Times in the files are
milliseconds since the request was sent. `check_decoder` checks a decoder without sockets. To check
a client, serve the packets at their times and compare its result by `differences`.
"""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
from msgspec import Struct

from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.events import Broken, Done, Event, Finish, Token, TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire import openai

Framing = Literal["chunked", "sized", "close"]
Ending = Literal["clean", "cut"]


class Packet(Struct, frozen=True):
    """Bytes of the body that are sent together, `at_ns` after the request."""

    at_ns: int
    data: bytes


class Truth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The truth about a stream. Times are nanoseconds since the request was sent; None: the event
    never came.

    `outcome` is "ok" or the kind of the fault, `phase` its phase. `first_event_ns` is the time of
    the first event that does not end the stream, `end_ns` that of the one that does. `token_ns`
    holds one time for each content event; `text`, `reasoning`, `refusal`, `tool` and `audio` hold
    their content, of all choices in order of arrival. `finish` holds the finish reasons in that
    order.
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
        """The time of the first content event."""
        return self.token_ns[0] if self.token_ns else None

    @property
    def last_token_ns(self) -> int | None:
        """The time of the last content event."""
        return self.token_ns[-1] if self.token_ns else None


class Stream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One response with status 200, and its truth.

    `why` explains the difficulty. `stream` is that of the request. The headers are sent at
    `head_ns`, and the body ends at `end_ns`. With the `ending` "cut" the connection closes without
    the end that `framing` requires.
    """

    name: str
    why: str
    operation: Operation = "chat"
    stream: bool = True
    content_type: str = "text/event-stream"
    framing: Framing = "chunked"
    ending: Ending = "clean"
    head_ns: int = NS_PER_MS
    packets: tuple[Packet, ...]
    end_ns: int
    truth: Truth


@cache
def load() -> list[Stream]:
    """Return all streams of the corpus, sorted by name."""
    entries = sorted(
        (entry for entry in files(__name__).iterdir() if entry.name.endswith(".toml")),
        key=lambda e: e.name,
    )
    return [_stream(entry.name.removesuffix(".toml"), entry.read_bytes()) for entry in entries]


def check_decoder(stream: Stream) -> list[str]:
    """Decode `stream` with our decoder and return a line for each difference from its truth."""
    decoder = openai.decoder(stream.operation)
    events: list[Event] = []
    for packet in stream.packets:
        events += decoder.feed(packet.data, packet.at_ns)
    events += decoder.close(stream.end_ns)
    return differences(stream.truth, seen(events, decoder.server_timings))


def seen(events: Iterable[Event], server_timings: dict[str, float]) -> Truth:
    """Return the `Truth` of a complete stream of `events`."""
    content = list(events)
    end = content.pop()
    if not isinstance(end, Done | Broken):
        raise ValueError(f"the events must end with Done or Broken, got {end!r}")
    tokens = [event for event in content if isinstance(event, Token)]
    usage = next((event for event in reversed(content) if isinstance(event, Usage)), Usage(0))
    return Truth(
        outcome="ok" if isinstance(end, Done) else end.fault.kind,
        phase="" if isinstance(end, Done) else end.fault.phase,
        first_event_ns=content[0].at if content else None,
        token_ns=tuple(token.at for token in tokens),
        first_answer_ns=next((token.at for token in tokens if token.kind != "reasoning"), None),
        end_ns=end.at,
        text=_joined(tokens, "text"),
        reasoning=_joined(tokens, "reasoning"),
        refusal=_joined(tokens, "refusal"),
        tool=_joined(tokens, "tool"),
        audio=_joined(tokens, "audio"),
        finish=tuple(event.reason for event in content if isinstance(event, Finish)),
        tokens_so_far=tuple(
            token.tokens_so_far for token in tokens if token.tokens_so_far is not None
        ),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cached_tokens=usage.cached_tokens,
        marker=isinstance(end, Done) and end.marker,
        server_timings=server_timings,
    )


def differences(truth: Truth, got: Truth) -> list[str]:
    """Return a line for each field in which `got` differs from `truth`."""
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


def _stream(name: str, data: bytes) -> Stream:
    """Parse a file. It can omit both ``end_ms`` if the last packet ends body and stream."""
    fields = _in_nanoseconds(msgspec.toml.decode(data))
    packets = tuple(_packet(**_in_nanoseconds(packet)) for packet in fields.get("packets", ()))
    last_ns = packets[-1].at_ns if packets else fields["end_ns"]
    truth = {"end_ns": last_ns, **_in_nanoseconds(fields["truth"])}
    truth["text"] = truth.get("text", "") * truth.pop("text_times", 1)
    return msgspec.convert(
        {"end_ns": last_ns, **fields, "name": name, "packets": packets, "truth": truth}, Stream
    )


def _packet(at_ns: int, text: str = "", hex: str = "", times: int = 1) -> Packet:  # noqa: A002
    """Return a packet of a file: `text`, or `hex` for other bytes, repeated `times`."""
    return Packet(at_ns, (bytes.fromhex(hex) or text.encode()) * times)


def _in_nanoseconds(table: dict[str, Any]) -> dict[str, Any]:
    """Return `table` with its fields ``…_ms``, numbers or lists of numbers, converted to
    ``…_ns``."""
    times = {
        name.removesuffix("_ms") + "_ns": _scaled(ms)
        for name, ms in table.items()
        if name.endswith("_ms")
    }
    return times | {name: value for name, value in table.items() if not name.endswith("_ms")}


def _scaled(ms: float | list[float]) -> int | list[int]:
    return (
        [round(each * NS_PER_MS) for each in ms] if isinstance(ms, list) else round(ms * NS_PER_MS)
    )
