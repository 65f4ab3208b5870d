"""Calls whose answers break and are continued, and what their clients received."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.policies.branches import a_call, play, reset, scripted

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import Fault
from splitsecond.core.events import Event, Finish, Token, Usage
from splitsecond.core.service import Call, Reply, ReplyBase, Service
from splitsecond.core.wire.openai import StreamWriter, decoder
from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

CUT = reset()
WORDS = ("Once ", "upon ", "a ", "time.")
WHOLE = "".join(WORDS)
ANSWER = Script(tokens=4, texts=WORDS)


def breaks(after: int, *texts: str, fault: Fault = CUT) -> Script:
    return Script(texts=texts or WORDS, fault=fault, breaks_after=after)


def answers(*texts: str) -> Script:
    return Script(tokens=len(texts), texts=texts)


class Received:
    """What a client received, read from its bytes; `fault`: what broke it. `refused`: before the
    first byte."""

    def __init__(self) -> None:
        self.data = b""
        self.fault: Fault | None = None
        self.refused = False
        self.ms = 0.0

    @property
    def events(self) -> list[Event]:
        reading = decoder("chat")
        return [*reading.feed(self.data, 0), *reading.close(0)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Token))

    @property
    def ended_well(self) -> bool:
        """It ended once, and nothing came after its end."""
        ends = [event for event in self.events if isinstance(event, Finish)]
        marks = self.data.count(b"[DONE]"), self.data.rstrip().endswith(b"data: [DONE]")
        return self.fault is None and len(ends) == 1 and marks == (1, True)

    @property
    def usage(self) -> Usage | None:
        return next((event for event in self.events if isinstance(event, Usage)), None)


async def receive(service: Service, call: Call) -> Received:
    received, began_ns = Received(), clock.now_ns()
    try:
        reply = await service(call)
    except Fault as fault:
        received.fault, received.refused = fault, True
        return received
    async with reply:
        try:
            while data := await reply.read():
                received.data += data
        except Fault as fault:
            received.fault = fault
    received.ms = (clock.now_ns() - began_ns) / NS_PER_MS
    return received


def chat(*, stream: bool = True, **fields: Any) -> Call:
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], **fields}
    return msgspec.structs.replace(a_call(), body=body, stream=stream)


class Resumed:
    """One call to a policy over targets with scripts, and what its client received."""

    def __init__(self, policy: str, *, call: Call | None = None, **scripts: Any) -> None:
        states = TargetStates()
        self.fakes: dict[str, FakeService] = {}
        for name, script in scripts.items():
            given = script if isinstance(script, list) else [script]
            self.fakes[name] = scripted(*given, target=name, observer=states.observe)
        self.call = call

        async def main() -> None:
            service = build(
                parse(policy), self.fakes.__getitem__, states, make_encoder=continuation_encoder
            )
            self.call = self.call or chat()
            self.received = await receive(service, self.call)

        play(main, list(self.fakes.values()))

    @property
    def asked(self) -> dict[str, int]:
        return {name: len(fake.calls) for name, fake in self.fakes.items()}


class Stream(ReplyBase):
    """A target that sends these bytes, and then ends or breaks."""

    def __init__(self, name: str, chunks: Sequence[bytes], fault: Fault | None = None) -> None:
        self.target = name
        self.empty = False
        self.token_ns = 0
        self._chunks = list(chunks)
        self._fault = fault

    async def __call__(self, call: Call) -> Reply:
        return self

    async def read(self) -> bytes:
        if self._chunks:
            return self._chunks.pop(0)
        if self._fault is not None:
            raise self._fault
        return b""

    def arrived(self) -> list[Event]:
        return []

    async def __anext__(self) -> Event:
        raise StopAsyncIteration

    async def finished(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def stream(name: str, tokens: Sequence[str], newline: bytes = b"\n") -> bytes:
    writer = StreamWriter("chat", "m", id=f"id-{name}", created=7)
    events = [
        writer.opening(),
        *map(writer.token, tokens),
        writer.finish("stop"),
        writer.usage(Usage(0, 1, 2)),
    ]
    return b"".join([*events, writer.done()]).replace(b"\n", newline)


def chunked(data: bytes, drawn: st.DataObject) -> list[bytes]:
    cuts = sorted(drawn.draw(st.sets(st.integers(1, max(len(data) - 1, 1)), max_size=8)))
    return [
        part for part in map(data.__getitem__, map(slice, [0, *cuts], [*cuts, len(data)])) if part
    ]
