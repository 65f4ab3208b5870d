"""Between the dialect of a call and that of its target: how the request is written, and how the answer is told.

Where both are the same, the client's fields and the provider's bytes go through. Else the request is brought into
OpenAI's chat form, which every dialect can encode, and the answer's events are told again in the client's dialect.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import structs

from splitsecond import clock
from splitsecond.catalog.model import Prefill
from splitsecond.errors import CallerFault
from splitsecond.service import Call, Notes, Operation, Spoken
from splitsecond.upstream.own_words import in_own_words
from splitsecond.wire import anthropic, openai, responses
from splitsecond.wire.anthropic import foreign
from splitsecond.wire.anthropic.teller import teller as message_teller
from splitsecond.wire.chat_form import THOUGHTS, begun
from splitsecond.wire.dialect import Encoded, Quirks, Writer
from splitsecond.wire.openai.fitting import fitted
from splitsecond.wire.openai.teller import teller as chunk_teller
from splitsecond.wire.responses import foreign as foreign_items
from splitsecond.wire.responses.teller import teller as response_teller
from splitsecond.wire.retelling import Retelling
from splitsecond.wire.telling import EventTeller


class Encode(Protocol):
    """A dialect's writing of a request."""

    def __call__(self, call: Call, model: str, quirks: Quirks) -> Encoded: ...


class _Made(Protocol):
    def __call__(self, operation: Operation, model: str, *, id: str, created: int) -> Writer: ...  # noqa: A002


_READERS: Mapping[str, tuple[Encode, Callable[[Call], Call]]] = {
    "anthropic": (anthropic.pass_on, anthropic.to_chat),
    "responses": (responses.pass_on, responses.to_chat),
}
"""Of clients' dialects but OpenAI's: how a request is passed on as it is, and brought into OpenAI's form."""
_WRITERS: Mapping[Spoken, tuple[_Made, str]] = {
    "openai": (openai.StreamWriter, "chatcmpl-"),
    "anthropic": (anthropic.StreamWriter, "msg_"),
    "responses": (responses.StreamWriter, "resp_"),
}
"""Who tells an answer in a client's dialect, and how its id begins there."""
_TELLERS: Mapping[Spoken, Callable[[Call], EventTeller | None]] = {
    "openai": chunk_teller,
    "anthropic": message_teller,
    "responses": response_teller,
}


_OWN_NAMES: Mapping[Spoken, Mapping[str, str]] = {
    "openai": {},
    "anthropic": {
        THOUGHTS: foreign.THOUGHTS,
        "user": "metadata",
        "parallel_tool_calls": "disable_parallel_tool_use",
        "stop": "stop_sequences",
    },
    "responses": {THOUGHTS: foreign_items.THOUGHTS},
}
"""What clients call the things that were left out of their request after it was brought into OpenAI's form."""


def request(
    call: Call,
    dialect: str,
    encode: Encode,
    model: str,
    quirks: Quirks,
    *,
    prefill: Prefill | None = None,
    target: str = "",
) -> Encoded:
    """`call` as a request to `model` at `target`, which speaks `dialect`; `encode` writes that out of OpenAI's form.

    What had to be left out stands in the call's notes, under the `target`. `prefill`: whether it goes on from the
    beginning of an answer, and how; None: not known. Raises `CallerFault` for what cannot be carried over.
    """
    if call.dialect == dialect == "openai":
        return encode(call, model, quirks)
    own = structs.replace(call, notes=Notes())
    encoded = _written(own, dialect, encode, model, quirks, prefill)
    if own.notes.dropped:
        names = _OWN_NAMES[call.dialect]
        call.notes.left_out[target] = list(dict.fromkeys(names.get(name, name) for name in own.notes.dropped))
    return encoded


def _written(call: Call, dialect: str, encode: Encode, model: str, quirks: Quirks, prefill: Prefill | None) -> Encoded:
    if call.dialect == "openai":
        return encode(call, model, quirks)
    pass_on, to_chat = _READERS[call.dialect]
    if call.dialect == dialect:
        return pass_on(call, model, quirks)
    chat = to_chat(call)
    try:
        if call.dialect == "anthropic":
            chat = begun(chat, prefill)
        if dialect == "openai":
            chat = fitted(chat, model, quirks)
        return encode(chat, model, quirks)
    except CallerFault as fault:
        fault.message = in_own_words(fault.message, call, to_chat)
        raise


def retelling(call: Call, model: str) -> Retelling:
    """Who tells the answer of `model` in the dialect of `call`."""
    made, prefix = _WRITERS[call.dialect]
    identity = call.id.removeprefix("req-")
    created = int(clock.wall_time().timestamp())
    writer = made(call.operation, model, id=f"{prefix}{identity}", created=created)
    return Retelling(writer, identity, single=call.dialect != "openai")


def teller(call: Call) -> EventTeller | None:
    """Who tells the answer to `call` on, in its client's dialect, where another target carries it on.

    None: nobody can.
    """
    return _TELLERS[call.dialect](call)
