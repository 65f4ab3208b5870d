"""Completions in OpenAI's format, and Replicate's predictions: both hold text only."""

from typing import Any

from tests.wire.odd import HALVES, HI, SMILE, Fields, Meaning, OddAnswer, framings, streamed, whole
from tests.wire.odd.openai import USAGE

COUNTED = Meaning("Hi there", usage=(11, 7))


def piece(text: Any, reason: str | None = None, **fields: Any) -> Fields:
    return {
        "object": "text_completion",
        "choices": [{"index": 0, "text": text, "finish_reason": reason, **fields}],
    }


def completion(name: str, meaning: Meaning, *events: Any) -> OddAnswer:
    return streamed("completions", name, meaning, *events, b"[DONE]")


def output(*pieces: bytes, after: bytes = b"event: done\ndata: {}\n\n") -> bytes:
    return b"".join(b"event: output\ndata: " + each + b"\n\n" for each in pieces) + after


def prediction(name: str, meaning: Meaning, **fields: Any) -> OddAnswer:
    return whole(
        "replicate",
        name,
        meaning,
        {"id": "x", "status": "succeeded", "output": ["Hi ", "there"]} | fields,
    )


WORDS = (piece("Hi "), piece("there"))
COMPLETIONS = [
    completion("the reason with the last text", HI, WORDS[0], piece("there", "stop")),
    completion("a text that is null at the end", HI, *WORDS, piece(None, "stop")),
    completion("a pair of surrogates in two chunks", SMILE, *map(piece, HALVES), piece("", "stop")),
    completion("logprobs of vLLM", HI, *(
        piece(text, logprobs={"token_logprobs": [None], "tokens": [text], "top_logprobs": None},
        stop_reason=None)
        for text in ("Hi ", "there")
    ), piece("", "stop")),
    completion("usage alone at "
    "the end", COUNTED, *WORDS, piece("", "stop"), {"choices": [], "usage": USAGE}),
    completion("index "
    "null", HI, *(piece(text, index=None) for text in ("Hi ", "there")), piece("", "stop")),
    completion("a token limit", Meaning("Hi there", end="length"), *WORDS, piece("", "length")),
    whole("completions", "a whole "
    "answer", COUNTED, {**piece("Hi there", "stop"), "usage": USAGE, "error": None}),
]  # fmt: skip
PREDICTIONS = [
    OddAnswer("text with "
    "line feeds", "replicate", Meaning("Hi\nthere"), output(b"Hi\ndata: there")),
    OddAnswer("an empty output", "replicate", HI, output(b"Hi ", b"", b"there")),
    OddAnswer("ids of events", "replicate", HI, output(b"Hi ", b"there").replace(b"event:", b"id: "
    b"1:0\nevent:")),
    OddAnswer("logs between outputs", "replicate", HI, output(b"Hi ",
        after=b"event: logs\ndata: x\n\n") + output(b"there")),
    OddAnswer("half a character", "replicate", Meaning("Hi \ufffd"), output(b"Hi ", b"\xf0")),
    OddAnswer("a reason null", "replicate", HI, output(b"Hi ", b"there",
        after=b'event: done\ndata: {"reason":null}\n\n')),
    prediction("output as a list", HI),
    prediction("output as a text", HI, output="Hi there"),
    prediction("null pieces", HI, output=["Hi ", None, "there"]),
    prediction("counts and an error that is null", COUNTED, error=None, metrics={
        "input_token_count": 11, "output_token_count": 7, "predict_time": "1"}),
    prediction("metrics of another type", HI, metrics=[]),
]  # fmt: skip
CASES = [*COMPLETIONS, *PREDICTIONS, *framings(COMPLETIONS[0])]
