"""Transcoding between the API format of a call and that of its target: requests, and the names in
their refusals.

If both formats are the same, the client's fields pass unchanged, and so do the bytes of the answer.
Otherwise the request is rewritten in the common chat form (OpenAI's), which every format can
encode, and the events of the answer are encoded in the client's format.

The refusal of a rewritten request has the client's own names: in the common form fields have other
names, and messages have other places, because a system prompt or the result of a tool is a message
there. To find the client's place the messages are rewritten once more, only for refused requests.
"""

import re

from msgspec import structs

from splitsecond.core.catalog.model import Prefill
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Notes
from splitsecond.core.upstream.prompt_size import input_tokens
from splitsecond.core.wire.api_format import Encode, Encoded, Quirks
from splitsecond.core.wire.chat_form import TRANSLATED, with_prefill
from splitsecond.core.wire.client_format import ClientFormat, RequestReader, client_format
from splitsecond.core.wire.continuation import ContinuationEncoder
from splitsecond.core.wire.embeddings import ItemsTranscoder
from splitsecond.core.wire.openai.encode import fit_to_provider
from splitsecond.core.wire.transcoder import Transcoder
from splitsecond.core.wire.translation import nested_too_deeply, not_translatable, without_tools

_PLACE = re.compile(
    r"messages\[(\d+)\](?:\.content\[\d+\])?(?:\.(type '(\w+)'|image_url, a link,))?"
)


def request(
    call: Call,
    api_format: str,
    encode: Encode,
    model: str,
    quirks: Quirks,
    *,
    prefill: Prefill | None = None,
    target: str = "",
) -> Encoded:
    """Encode `call` for `model` at `target`, whose API format is `api_format`; `encode` writes it
    from the chat form.

    The call's notes get what had to be left out or added, under `target`. `prefill`: whether the
    model continues the beginning of an answer, and how to tell the provider; None: unknown. Raises
    `CallerFault` for a request that the target's format cannot express.
    """
    if call.api_format == api_format == "openai" and TRANSLATED not in call.hints:
        return encode(call, model, quirks)
    own = structs.replace(call, notes=Notes())
    try:
        encoded = _encoded(own, api_format, encode, model, quirks, prefill)
    except RecursionError:
        raise nested_too_deeply() from None
    if own.notes.dropped:
        names = client_format(call).left_out_names
        call.notes.left_out[target] = list(
            dict.fromkeys(names.get(name, name) for name in own.notes.dropped)
        )
    for field in own.notes.added.values():
        call.notes.added[target] = field
    return encoded


def count(call: Call, model: str) -> Encoded:
    """Encode the request that counts the tokens of `call` for `model`, at a target of the same API
    format.

    Raises `CallerFault` for a body that is nested too deeply.
    """
    counting = client_format(call).counting
    if counting is None or counting.encode is None:
        raise not_translatable("a count of tokens")
    try:
        return counting.encode(call, model)
    except RecursionError:
        raise nested_too_deeply() from None


def _encoded(
    call: Call, api_format: str, encode: Encode, model: str, quirks: Quirks, prefill: Prefill | None
) -> Encoded:
    form = client_format(call)
    reader = form.reader
    if reader is None:
        chat = fit_to_provider(call, model, quirks) if api_format == "openai" else call
        return encode(chat, model, quirks)
    if call.api_format == api_format:
        return reader.pass_on(call, model, quirks)
    chat = reader.to_chat(
        without_tools(call, form.messages_field, quirks.drop_tools) if quirks.drop_tools else call
    )
    try:
        if form.prefills:
            chat = with_prefill(chat, prefill)
        if api_format == "openai":
            chat = fit_to_provider(chat, model, quirks)
        return encode(chat, model, quirks)
    except CallerFault as fault:
        fault.message = _in_own_names(fault.message, call, form, reader)
        raise


def _in_own_names(message: str, call: Call, form: ClientFormat, reader: RequestReader) -> str:
    """Return the `message` of a refusal with the client's own names of fields, messages and
    parts."""
    if match := _PLACE.match(message):
        kind = match[3] or ("image_url" if match[2] else "")
        link = ", by its link" if match[2] and not match[3] else ""
        part = f", a part of type {form.own_parts.get(kind, kind)!r}{link}," if kind else ""
        sources = reader.sources(call)
        source = sources[min(int(match[1]), len(sources) - 1)]
        place = form.system_field if source < 0 else f"{form.messages_field}[{source}]"
        return place + part + message[match.end() :]
    name, space, rest = message.partition(" ")
    return form.own_fields.get(name, name) + space + rest


def transcoder(call: Call, model: str) -> Transcoder:
    if call.operation in ("embeddings", "rerank"):
        return ItemsTranscoder(call, model)
    form = client_format(call)
    result = form.transcoder(call, model)
    if form.opens_with_tokens and call.stream:
        result.prompt_tokens = input_tokens(call)
    return result


def continuation_encoder(call: Call) -> ContinuationEncoder | None:
    """Return the encoder of what another target adds to the answer to `call`; None if nothing can
    be added."""
    return client_format(call).continuation(call)
