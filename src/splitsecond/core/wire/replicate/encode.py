"""Client role: a call in the common chat form as a request for a prediction, and the address of its
output.

A prediction's ``input`` has the model's own fields; the names used here are those of most language
models there. They take one prompt, so only one user message can be translated, with the system
prompt before it; a conversation is refused, as are tools. Every field that OpenAI does not define
goes into ``input``, and fields of the call's own ``input`` win. A stream has no token counts, and
the call's notes say so.
"""

from typing import Any
from urllib.parse import quote

import msgspec

from splitsecond.core.errors import CallerFault, ProviderFault, excerpt
from splitsecond.core.service import Call
from splitsecond.core.wire.api_format import Encoded, Quirks
from splitsecond.core.wire.chat_form import (
    Message,
    chat_fields,
    chat_messages,
    stop_list,
    take_output_limit,
)
from splitsecond.core.wire.provider_errors import error_of
from splitsecond.core.wire.reasoning import requested
from splitsecond.core.wire.replicate.decode import decode_prediction
from splitsecond.core.wire.translation import (
    Fields,
    left_out,
    not_translatable,
    object_field,
    plain_fields,
    refuse,
    short,
)

_JSON = ("content-type", "application/json")
_STREAM_HEADERS = (_JSON, ("accept", "application/json"))
_WHOLE_HEADERS = (*_STREAM_HEADERS, ("prefer", "wait"))
_NO_EFFECT: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
}
"""Fields that a prediction lacks, and their values without any effect."""
_FAILED = ("failed", "canceled")


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """Encode `call` for the model "owner/name" or "owner/name:version". Raises `CallerFault` for an
    invalid name, and for a field that a prediction does not have."""
    body: Fields = {"stream": True} if (streamed := quirks.streamed(call)) else {}
    model_input = (
        _chat_input(call, model, quirks) if call.operation == "chat" else _completion_input(call)
    )
    body["input"] = model_input | object_field("input", model_input.pop("input", {}))
    name, _, version = model.partition(":")
    if version:
        path, body["version"] = "/predictions", version
    elif name.count("/") == 1:
        path = f"/models/{quote(name)}/predictions"
    else:
        raise CallerFault(
            f"expected a Replicate model as OWNER/NAME or OWNER/NAME:VERSION, got {model!r}"
        )
    data = msgspec.json.encode(body)
    if not streamed:
        return Encoded(path, _WHOLE_HEADERS, data, streamed=False)
    if call.operation == "chat":
        left_out(call, "usage")
    return Encoded(path, _STREAM_HEADERS, data, follow=output_address)


def output_address(body: bytes) -> str:
    """Return the URL of a prediction's output stream, from the response to its creation.

    Raises `ProviderFault` if the prediction has already failed, or its model cannot stream.
    """
    try:
        prediction = decode_prediction(body)
    except (ValueError, RecursionError) as error:
        raise _no_address(
            body, f"the body is not the JSON of a prediction: {error}", "malformed"
        ) from error
    if prediction.error or prediction.status in _FAILED:
        reason = (
            error_of(prediction.error).message
            if prediction.error
            else f"its status is {prediction.status}"
        )
        raise _no_address(body, f"the prediction failed: {reason}", "in_band_error")
    if prediction.urls is None or not prediction.urls.stream:
        hint = "The model does not stream. Request whole answers: quirk stream_whole = false."
        raise _no_address(body, "the prediction has no stream", "not_streaming", hint)
    return prediction.urls.stream


def _no_address(body: bytes, message: str, kind: str, hint: str = "") -> ProviderFault:
    return ProviderFault(
        message, kind=kind, phase="head", status=200, excerpt=excerpt(body), hint=hint
    )


def _chat_input(call: Call, model: str, quirks: Quirks) -> Fields:
    fields = chat_fields(call, "Replicate")
    reasoning = requested(call, fields, model, quirks.thinking)
    if reasoning is not None and reasoning.is_set and not reasoning.off:
        left_out(call, reasoning.name)
    refuse(fields, _NO_EFFECT, "Replicate")
    model_input: Fields = {}
    if "messages" in fields:
        messages = chat_messages(call, fields.pop("messages"), "Replicate")
        system = [message for message in messages if message.role == "system"]
        turns = [message for message in messages if message.role != "system"]
        if len(turns) != 1 or turns[0].role != "user":
            hint = (
                "Its models take one prompt. Write the conversation as one prompt in the "
                "model's own template."
            )
            raise not_translatable("a conversation", "Replicate", hint)
        model_input["prompt"] = _text(turns[0])
        if system:
            model_input["system_prompt"] = "\n".join(map(_text, system))
    elif "prompt" not in fields and "input" not in fields:
        raise CallerFault("the request has no messages")
    return model_input | _settings(fields)


def _completion_input(call: Call) -> Fields:
    fields = plain_fields(call, "model", "stream", "stream_options", "user")
    refuse(
        fields,
        {"n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",), "logprobs": (0,)},
        "Replicate",
    )
    if not isinstance(fields.get("prompt"), str):
        raise not_translatable(
            f"prompt {short(fields.get('prompt'))}", "Replicate", "Send one text."
        )
    return {"prompt_template": "{prompt}", **_settings(fields)}


def _settings(fields: Fields) -> Fields:
    if (limit := take_output_limit(fields)) is not None:
        fields["max_tokens"] = limit
    if (stop := stop_list(fields)) is not None:
        if not isinstance(stop, list) or not all(isinstance(each, str) for each in stop):
            raise CallerFault(f"stop must be a text or a list of texts, got {short(stop)}")
        fields["stop_sequences"] = ",".join(stop)
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
