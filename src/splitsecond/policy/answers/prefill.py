"""A request that has the beginning of its answer in it, so that a model goes on from there."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.policy.answers.told import Told
from splitsecond.policy.prompt import plain
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call

_OTHER_FORMS = ("tools", "functions", "output_config", "output_format")
"""Fields that may make an answer something else than a text, in OpenAI's dialect or Anthropic's."""
_LIMITS = ("max_completion_tokens", "max_tokens")
_decode_raw = msgspec.json.Decoder(list[Raw]).decode


def can_go_on(names: Sequence[str], standing: Standing) -> list[str]:
    """Those of the targets that go on from the beginning of an answer, and are all told of it in the same way."""
    able = [name for name in names if standing.facts(name).prefill]
    return [name for name in able if standing.facts(name).mark == standing.facts(able[0]).mark]


def prefilled(call: Call, told: Told, *, mark: str = "") -> Call | None:
    """`call` for the rest of an answer of which so much was `told`. `mark`: the field that marks the message with it.

    None: that cannot be asked for. Marks are of OpenAI's messages; Responses have none at all.
    """
    text = (told.text or "").rstrip()
    if not text or not _is_plain(call) or (mark and call.dialect != "openai"):
        return None
    messages = call.body.get("messages")
    try:
        said = _decode_raw(messages if isinstance(messages, Raw) else msgspec.json.encode(messages))
    except (ValueError, TypeError, RecursionError):
        return None
    begun: dict[str, Any] = {"role": "assistant", "content": text}
    if mark:
        begun[mark] = True
    said.append(Raw(msgspec.json.encode(begun)))
    left = _left(call, told.tokens)
    if left is None:
        return None
    return msgspec.structs.replace(call, body={**call.body, **left, "messages": Raw(msgspec.json.encode(said))})


def _is_plain(call: Call) -> bool:
    """Whether the answer to `call` is one text, in no form but its own."""
    if call.operation != "chat" or plain(call, "n") not in (None, 1):
        return False
    form = plain(call, "response_format")
    return form in (None, {"type": "text"}) and not any(plain(call, name) for name in _OTHER_FORMS)


def _left(call: Call, tokens: int) -> dict[str, int] | None:
    """The limits on output tokens, less those that were said; None: nothing is left, or a limit is no number."""
    left: dict[str, int] = {}
    for name in _LIMITS:
        limit = plain(call, name)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int) or limit <= tokens:
            return None
        left[name] = limit - tokens
    return left
