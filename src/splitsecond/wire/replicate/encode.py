"""The client role, writing: a call in OpenAI's form to a request for a prediction, and where its output will be.

A prediction's ``input`` is the model's own: the names here are those that the language models there agree on. They take
one prompt, so only one turn of a user can be carried over, with the system's words before it; a conversation is refused
by name, as are tools. Every field that is not OpenAI's is the model's own and goes into ``input`` as it is
(``prompt_template``, ``min_tokens``, ``image``), and what ``input`` itself holds wins.

A stream never says how many tokens it has. Some clients' dialects must have a number there, so the client is told that
the counts were left out.
"""

from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from splitsecond.errors import CallerFault, ProviderFault, excerpt
from splitsecond.service import Call
from splitsecond.wire.chat_form import Message, chat_fields, chat_messages, output_limit
from splitsecond.wire.dialect import Encoded, Quirks
from splitsecond.wire.refusals import error_said
from splitsecond.wire.thinking import wished
from splitsecond.wire.translation import left_out, not_translatable, plain_fields, short

_JSON = ("content-type", "application/json")
_STREAM_HEADERS = (_JSON, ("accept", "application/json"))
_WHOLE_HEADERS = (*_STREAM_HEADERS, ("prefer", "wait"))
_NO_CHAT = ("tools", "tool_choice", "response_format")
_NO_WISH: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
}
"""What of `_NO_CHAT` asks for nothing."""
_FAILED = ("failed", "canceled")


class _Urls(Struct):
    stream: str | None = None


class _Prediction(Struct):
    status: str = ""
    urls: _Urls | None = None
    error: Any = None


_decode_prediction = msgspec.json.Decoder(_Prediction).decode


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call` as a request to "owner/name", or "owner/name:version". Of `quirks`, `stream_whole` and `thinking` matter.

    Raises `CallerFault`: "not_translatable" names what a prediction has not; so for a name that is no model's there.
    """
    body: dict[str, Any] = {"stream": True} if (streamed := quirks.streamed(call)) else {}
    given = _chat_input(call, model, quirks) if call.operation == "chat" else _completion_input(call)
    own = given.pop("input", {})
    if not isinstance(own, dict):
        raise CallerFault(f"input must be an object, got {short(own)}")
    body["input"] = given | own
    name, _, version = model.partition(":")
    if version:
        path, body["version"] = "/predictions", version
    elif name.count("/") == 1:
        path = f"/models/{quote(name)}/predictions"
    else:
        raise CallerFault(f"a model of Replicate's is called OWNER/NAME or OWNER/NAME:VERSION, got {model!r}")
    data = msgspec.json.encode(body)
    if not streamed:
        return Encoded(path, _WHOLE_HEADERS, data, streamed=False)
    if call.operation == "chat":
        left_out(call, "usage")
    return Encoded(path, _STREAM_HEADERS, data, follow=output_address)


def output_address(body: bytes) -> str:
    """The URL at which the output of a prediction streams, out of the answer to the request for it.

    Raises `ProviderFault` where there is none: the prediction has failed already, or its model does not stream.
    """
    try:
        prediction = _decode_prediction(body)
    except (ValueError, RecursionError) as error:
        words = f"the body is not the JSON of a prediction: {error}"
        raise ProviderFault(words, kind="malformed", phase="head", status=200, excerpt=excerpt(body)) from error
    if prediction.error or prediction.status in _FAILED:
        said = error_said(prediction.error).message if prediction.error else f"its status is {prediction.status}"
        words = f"the prediction failed: {said}"
        raise ProviderFault(words, kind="in_band_error", phase="head", status=200, excerpt=excerpt(body))
    if prediction.urls is None or not prediction.urls.stream:
        raise ProviderFault(
            "the prediction has no stream",
            kind="not_streaming",
            phase="head",
            status=200,
            excerpt=excerpt(body),
            hint="The model does not stream. Ask for its answers whole: quirk stream_whole = false.",
        )
    return prediction.urls.stream


def _chat_input(call: Call, model: str, quirks: Quirks) -> dict[str, Any]:
    fields = chat_fields(call, "Replicate")
    wish = wished(call, fields, model, quirks.thinking)
    if wish is not None and wish.said and not wish.off:
        left_out(call, wish.name)
    for name in _NO_CHAT:
        if name in fields and (value := fields.pop(name)) not in _NO_WISH.get(name, ()):
            raise not_translatable(f"{name} {short(value)}", "Replicate")
    made: dict[str, Any] = {}
    if "messages" in fields:
        messages = chat_messages(fields.pop("messages"), "Replicate")
        system = [message for message in messages if message.role == "system"]
        turns = [message for message in messages if message.role != "system"]
        if len(turns) != 1 or turns[0].role != "user":
            hint = "Its models take one prompt. Write the conversation into one, in the model's own template."
            raise not_translatable("a conversation", "Replicate", hint)
        made["prompt"] = _text(turns[0])
        if system:
            made["system_prompt"] = "\n".join(map(_text, system))
    elif "prompt" not in fields and "input" not in fields:
        raise CallerFault("the request has no messages")
    return made | _settings(fields)


def _completion_input(call: Call) -> dict[str, Any]:
    fields = plain_fields(call)
    for name in ("model", "stream", "stream_options", "user"):
        fields.pop(name, None)
    for name, harmless in (("n", 1), ("best_of", 1), ("echo", False), ("suffix", ""), ("logprobs", 0)):
        if (value := fields.pop(name, harmless)) != harmless:
            raise not_translatable(f"{name} {short(value)}", "Replicate")
    if not isinstance(fields.get("prompt"), str):
        raise not_translatable(f"prompt {short(fields.get('prompt'))}", "Replicate", "Send one text.")
    return {"prompt_template": "{prompt}", **_settings(fields)}


def _settings(fields: dict[str, Any]) -> dict[str, Any]:
    """What is left of a call's fields, with the names that the models have for some."""
    if (limit := output_limit(fields)) is not None:
        fields["max_tokens"] = limit
    if (stop := fields.pop("stop", None)) is not None:
        fields["stop_sequences"] = stop if isinstance(stop, str) else ",".join(stop)
    return fields


def _text(message: Message) -> str:
    content = message.content or ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case _:
                hint = "Send an image in the model's own field, mostly `image`."
                raise not_translatable(f"a part of type {part.get('type')!r}", "Replicate", hint)
    return "\n".join(texts)
