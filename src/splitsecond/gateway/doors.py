"""The paths at which clients ask: for what, and in which dialect, and what of the answer's way out depends on that."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from splitsecond.gateway.assemble import Assembly
from splitsecond.gateway.assemble_others import MessageAssembly, ResponseAssembly
from splitsecond.gateway.refusal import Refusal
from splitsecond.gateway.relay import Relay
from splitsecond.gateway.relay_others import EventRelay
from splitsecond.service import Call, Operation, Spoken


class Way(Protocol):
    """A stream on its way through: see `Relay`."""

    done: bool

    def feed(self, data: bytes) -> bytes: ...

    def rest(self) -> bytes: ...

    def broken(self, no: Refusal) -> bytes: ...


class Door(Struct, frozen=True):
    """What is asked for at a path, and in which dialect. `counts`: only how many tokens the request has."""

    operation: Operation
    dialect: Spoken = "openai"
    counts: bool = False


DOORS: Mapping[str, Door] = {
    "/v1/chat/completions": Door("chat"),
    "/v1/completions": Door("completions"),
    "/v1/embeddings": Door("embeddings"),
    "/v1/responses": Door("chat", "responses"),
    "/v1/messages": Door("chat", "anthropic"),
    "/v1/messages/count_tokens": Door("chat", "anthropic", counts=True),
}


def dialect_at(path: str) -> Spoken:
    """The dialect in which a client that asks at `path` wants to be answered."""
    door = DOORS.get(path)
    return "openai" if door is None else door.dialect


def way(call: Call, target: str, *, usage: bool) -> Way:
    """The way of the answer to `call` by `target`, as a stream. `usage`: the client wants a chunk of usage."""
    return Relay(usage=usage) if call.dialect == "openai" else EventRelay(call, target)


def assembly(call: Call) -> Assembly:
    """What makes a whole answer to `call` of its stream."""
    if call.dialect == "openai":
        return Assembly()
    return MessageAssembly() if call.dialect == "anthropic" else ResponseAssembly()
