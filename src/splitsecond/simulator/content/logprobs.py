"""The log-probabilities of a response's tokens, in the fields of each API format that has them.

They follow from the texts of the tokens, so the same response has the same ones.
"""

import re
from collections.abc import Sequence
from math import exp, log
from typing import Any
from zlib import crc32

import msgspec

from splitsecond.simulator.content.tokens import token_text

_JSON_LINE = re.compile(rb"(?m)^(data: )?(\{.*\})(?=\r?$)")


def with_logprobs(data: bytes, texts: Sequence[str], top: int) -> bytes:
    def edited(match: re.Match[bytes]) -> bytes:
        fields = msgspec.json.decode(match[2])
        _add(fields, texts, top)
        return (match[1] or b"") + msgspec.json.encode(fields)

    return _JSON_LINE.sub(edited, data)


def _add(fields: dict[str, Any], texts: Sequence[str], top: int) -> None:
    match fields:
        case {"choices": [*choices]}:
            for choice in choices:
                if "text" in choice:
                    choice["logprobs"] = _of_completion(texts, top)
                else:
                    choice["logprobs"] = {"content": _entries(texts, top), "refusal": None}
        case {"candidates": [*candidates]}:
            for candidate in candidates:
                candidate |= _of_candidate(texts, top)
        case {"type": "content-delta"} | {"finish_reason": _, "id": _}:  # Cohere's
            items = [
                {"text": text, "token_ids": [_id(text)], "logprobs": [_logprob(text)]}
                for text in texts
            ]
            fields["logprobs"] = items[0] if fields.get("type") else items
        case {"done": _}:  # Ollama's
            fields["logprobs"] = _entries(texts, top)
        case _:
            _add_to_parts(fields, _entries(texts, top))


def _add_to_parts(value: Any, entries: list[dict[str, Any]]) -> None:
    if isinstance(value, dict):
        if value.get("type") in (
            "output_text",
            "response.output_text.delta",
            "response.output_text.done",
        ):
            value["logprobs"] = entries
        else:
            for inner in value.values():
                _add_to_parts(inner, entries)
    elif isinstance(value, list):
        for inner in value:
            _add_to_parts(inner, entries)


def _of_completion(texts: Sequence[str], top: int) -> dict[str, Any]:
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return {
        "tokens": list(texts),
        "token_logprobs": [_logprob(text) for text in texts],
        "top_logprobs": [dict(_alternatives(text, top)) for text in texts] if top else None,
        "text_offset": offsets[:-1],
    }


def _of_candidate(texts: Sequence[str], top: int) -> dict[str, Any]:
    def one(text: str, logprob: float) -> dict[str, Any]:
        return {"token": text, "tokenId": _id(text), "logProbability": logprob}

    chosen = [one(text, _logprob(text)) for text in texts]
    tops = [{"candidates": [one(*each) for each in _alternatives(text, top)]} for text in texts]
    average = sum(_logprob(text) for text in texts) / len(texts) if texts else 0.0
    return {
        "avgLogprobs": average,
        "logprobsResult": {"chosenCandidates": chosen, "topCandidates": tops},
    }


def _entries(texts: Sequence[str], top: int) -> list[dict[str, Any]]:
    return [
        {
            **_entry(text, _logprob(text)),
            "top_logprobs": [_entry(*each) for each in _alternatives(text, top)],
        }
        for text in texts
    ]


def _entry(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _logprob(text: str) -> float:
    return -0.001 - _id(text) / 200_000


def _id(text: str) -> int:
    return crc32(text.encode()) % 50_000


def _alternatives(text: str, top: int) -> list[tuple[str, float]]:
    left = 1 - exp(_logprob(text))
    others = (other for number in range(2 * top + 1) if (other := token_text(number)) != text)
    chosen = [(text, _logprob(text))]
    for number, other in enumerate(dict.fromkeys(others), 1):
        chosen.append((other, log(left / 2**number)))
    return chosen[:top]
