"""Gemini's generateContent, as Google and proxies send it."""

import json
from typing import Any

from tests.wire.odd import (
    ALL,
    BOTH,
    HALVES,
    HI,
    OSLO,
    SMILE,
    UTC,
    Fields,
    Meaning,
    OddAnswer,
    framings,
    streamed,
    whole,
)

USAGE = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
COUNTED = Meaning("Hi there", usage=(11, 7))
THOUGHT = Meaning("Hi there", "Hm.")


def part(value: Any) -> Fields:
    return {"text": value} if isinstance(value, str) else value


def call(name: str, args: Any, **fields: Any) -> Fields:
    return {"functionCall": {"name": name, "args": args, **fields}}


def candidate(*parts: Any, reason: str | None = None, **fields: Any) -> Fields:
    content = {"role": "model", "parts": [*map(part, parts)]}
    return {
        "candidates": [
            {"content": content, **({"finishReason": reason} if reason else {}), **fields}
        ]
    }


def raw(name: str, meaning: Meaning, *chunks: Any) -> OddAnswer:
    return streamed("gemini", name, meaning, *chunks)


def gemini(name: str, meaning: Meaning, *chunks: Any, **last: Any) -> OddAnswer:
    return raw(name, meaning, *chunks, candidate(reason="STOP") | last)


def answer(
    name: str, meaning: Meaning, *parts: Any, reason: str = "STOP", **fields: Any
) -> OddAnswer:
    return whole(
        "gemini",
        name,
        meaning,
        {"usageMetadata": USAGE, **candidate(*parts, reason=reason)} | fields,
    )


def counted(meaning: Meaning) -> Meaning:
    return Meaning(meaning.text, meaning.reasoning, meaning.calls, meaning.end, (11, 7))


CALLS = (call(*OSLO), call(*UTC))
WORDS = (candidate("Hi "), candidate("there"))
STREAMS = [
    # Function calls.
    gemini("calls without ids", BOTH, candidate(*CALLS)),
    gemini("calls in two chunks", BOTH, *map(candidate, CALLS)),
    gemini("calls with ids", BOTH, candidate(call(*OSLO, id="a"), call(*UTC, id="b"))),
    gemini("two calls of "
    "one name", Meaning(calls=(OSLO, OSLO)), *(candidate(call(*OSLO)) for _ in range(2))),
    gemini("args as "
    "text", BOTH, *(candidate(call(name, json.dumps(args))) for name, args in (OSLO, UTC))),
    gemini("args that are "
    "missing", Meaning(calls=(("clock", {}),)), candidate({"functionCall": {"name": "clock"}})),
    gemini("args that are null", Meaning(calls=(("clock", {}),)), candidate(call("clock", None))),
    gemini("a signature "
    "beside a call", Meaning(calls=(OSLO,)),
    candidate({**call(*OSLO), "thoughtSignature": "abc="})),
    gemini("text before calls", ALL, *WORDS, candidate(*CALLS)),
    gemini("a call and the reason "
    "in one chunk", Meaning("Hi there", calls=(OSLO,)), *WORDS, candidate(
        call(*OSLO), reason="STOP",
    )),
    # Parts.
    gemini("several parts "
    "in a chunk", THOUGHT, candidate({"text": "Hm.", "thought": True}, "Hi ", "there")),
    gemini("reasoning, then text", THOUGHT, candidate({"text": "Hm.", "thought": True}), *WORDS),
    gemini("a thought without text", HI, candidate({"thought": True}), *WORDS),
    gemini("an empty text with a signature at the end", HI, *WORDS, candidate({"text": "",
        "thoughtSignature": "abc="})),
    gemini("a signature "
    "beside a text", HI, candidate({"text": "Hi there", "thoughtSignature": "abc="})),
    gemini("a signature of "
    "another type", HI, candidate({"text": "Hi there", "thoughtSignature": 5})),
    gemini("a mark of reasoning of "
    "another type", HI, candidate({"text": "Hi there", "thought": "no"})),
    gemini("null "
    "parts", HI, WORDS[0], candidate({"text": "there"},
    content={"parts": [None, {"text": "there"}]})),
    gemini("a part of an unknown kind", HI, *WORDS, candidate({"mood": {"good": True}})),
    gemini("a result of the provider's own code", HI, *WORDS, candidate(
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}},
    )),
    gemini("a pair of surrogates in two chunks", SMILE, *map(candidate, HALVES)),
    gemini("content "
    "without parts", HI, *WORDS, {"candidates": [{"content": {"role": "model"}, "index": 0}]}),
    gemini("no role", HI, *({"candidates": [{"content": {"parts": [{"text": text}]}}]} for text
    in ("Hi ", "there"))),
    # Candidates and what stands beside them.
    raw("a last candidate without content", HI, *WORDS, {"candidates": [{"finishReason": "STOP"}]}),
    raw("the reason with the last text", HI, WORDS[0], candidate("there", reason="STOP")),
    raw("an unspecified reason in each chunk", HI, *(
        candidate(text, reason="FINISH_REASON_UNSPECIFIED") for text in ("Hi ", "there")
    ), candidate(reason="STOP")),
    raw("a reason that is null in each chunk", HI, *(
        candidate(text, finishReason=None, safetyRatings=None) for text in ("Hi ", "there")
    ), candidate(reason="STOP")),
    raw("the same reason twice", HI, *WORDS, *([candidate(reason="STOP")] * 2)),
    gemini("index null", HI, candidate("Hi ", index=None), candidate("there", index=None)),
    gemini("index as text", HI, candidate("Hi ", index="0"), candidate("there", index="0")),
    gemini("a chunk without "
    "candidates", COUNTED, *WORDS, {"usageMetadata": USAGE, "modelVersion": "m"}),
    gemini("candidates that are null", HI, {"candidates": None, "responseId": "x"}, *WORDS),
    gemini("sources of a search", HI, *(
        {"candidates": [{**each["candidates"][0],
        "groundingMetadata": {"groundingChunks": [{"web": {"uri": "x"}}]},
                         "citationMetadata": {"citationSources": []}, "avgLogprobs": "NaN"}]}
                         for each in WORDS
    )),
    gemini("feedback of another type", HI, *WORDS, promptFeedback=[]),
    gemini("feedback without "
    "a reason", HI, {**WORDS[0], "promptFeedback": {"safetyRatings": []}}, WORDS[1]),
    raw("OpenAI's end mark", HI, *WORDS, candidate(reason="STOP"), b"[DONE]"),
    OddAnswer("a list of chunks, without alt=sse", "gemini", counted(HI), b"[" + b",\r\n".join(
        json.dumps(each, indent=2).encode() for each
        in (*WORDS, {**candidate(reason="STOP"), "usageMetadata": USAGE})
    ) + b"\n]\n"),
    # Ends and usage.
    raw("a token limit that only "
    "reasoning has reached", Meaning("", "Hm.", end="length", usage=(11, 5)), candidate(
        {"text": "Hm.", "thought": True},
    ), {"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}], "usageMetadata": {
        "promptTokenCount": 11, "thoughtsTokenCount": 5, "totalTokenCount": 16}}),
    raw("a filter after some text", Meaning("Hi there", end="content_filter"), *WORDS, {
        "candidates": [{"finishReason": "SAFETY", "safetyRatings": [{"blocked": True}]}]}),
    raw("a prompt that "
    "was blocked", Meaning(end="content_filter"), {"promptFeedback": {"blockReason": "SAFETY"}}),
    raw("an unknown reason", HI, *WORDS, candidate(reason="TIRED")),
    gemini("counts as text", Meaning("Hi there", usage=(11, 0)), *WORDS,
    usageMetadata={"promptTokenCount": "11"}),
    gemini("counts with a fraction of zero", COUNTED, *WORDS, usageMetadata={
        "promptTokenCount": 11.0, "candidatesTokenCount": 7.0}),
    gemini("usage as a list", HI, *WORDS, usageMetadata=[]),
    gemini("usage null", HI, *WORDS, usageMetadata=None),
    raw("usage in each chunk", COUNTED, *(
        {**each, "usageMetadata": {**USAGE, "candidatesTokenCount": n}} for n, each
        in enumerate(WORDS, 1)
    ), {**candidate(reason="STOP"), "usageMetadata": USAGE}),
    gemini("usage without the candidates at first", COUNTED, *(
        {**each, "usageMetadata": {"promptTokenCount": 11, "totalTokenCount": 11}} for each in WORDS
    ), usageMetadata=USAGE),
    gemini("reasoning beside the "
    "candidates", Meaning("Hi there", usage=(11, 12)), *WORDS, usageMetadata={
        **USAGE, "thoughtsTokenCount": 5, "totalTokenCount": 23,
        "promptTokensDetails": [{"modality": "TEXT"}]}),
    gemini("reasoning among the candidates (previews)", COUNTED, *WORDS, usageMetadata={**USAGE,
        "thoughtsTokenCount": 5}),
    gemini("prompts of the "
    "provider's own tools", Meaning("Hi there", usage=(14, 7)), *WORDS, usageMetadata={
        **USAGE, "toolUsePromptTokenCount": 3, "totalTokenCount": 21}),
]  # fmt: skip
MESSAGES = [
    answer("args as "
    "text", BOTH, *(call(name, json.dumps(args)) for name, args in (OSLO, UTC)), usageMetadata=5),
    answer("text beside reasoning and calls", counted(Meaning("Hi there", "Hm.", (OSLO,))), {
        "text": "Hm.", "thought": True}, "Hi ", "there", call(*OSLO)),
    answer("an empty "
    "candidate", Meaning(usage=(11, 7)), candidates=[{"finishReason": "STOP", "content": {}}]),
    answer("an error that is null", counted(HI), "Hi there", error=None),
]  # fmt: skip
CASES = [*STREAMS, *MESSAGES, *framings(STREAMS[8])]
