"""Ollama's chats, as it and servers like it send them: one object a line."""

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
    whole,
)

COUNTED = Meaning("Hi there", usage=(11, 7))
COUNTS = {"prompt_eval_count": 11, "eval_count": 7}
THOUGHT = Meaning("Hi there", "Hm.")


def line(content: Any = "", **message: Any) -> Fields:
    return {
        "model": "m",
        "message": {"role": "assistant", "content": content, **message},
        "done": False,
    }


def raw(
    name: str, meaning: Meaning, *events: Any, between: bytes = b"\n", after: bytes = b"\n"
) -> OddAnswer:
    lines = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in events)
    return OddAnswer(name, "ollama", meaning, between.join(lines) + after)


def end(**fields: Any) -> Fields:
    return {**line(), "done": True, "done_reason": "stop"} | fields


def lines(name: str, meaning: Meaning, *events: Any, **last: Any) -> OddAnswer:
    return raw(name, meaning, *events, end(**last))


def answer(name: str, meaning: Meaning, message: Any, **fields: Any) -> OddAnswer:
    return whole("ollama", name, meaning, {**end(), "message": message} | fields)


def call(name: str, arguments: Any, **fields: Any) -> Fields:
    return {"function": {"name": name, "arguments": arguments}, **fields}


WORDS = (line("Hi "), line("there"))
CALLS = [call(*OSLO), call(*UTC)]
STREAMS = [
    # Tool calls.
    lines("arguments "
    "as "
    "text", BOTH, line(tool_calls=[call(name, json.dumps(given)) for name, given in (OSLO, UTC)])),
    lines("calls in two lines", BOTH, *(line(tool_calls=[each]) for each in CALLS)),
    lines("text and calls in one line", ALL, line("Hi there", tool_calls=CALLS)),
    lines("text, then calls", ALL, *WORDS, line(tool_calls=CALLS)),
    lines("calls in the last line", ALL, *WORDS, message=line(tool_calls=CALLS)["message"]),
    lines("two calls of "
    "one name", Meaning(calls=(OSLO, OSLO)), *(line(tool_calls=[call(*OSLO)]) for _ in range(2))),
    lines("an id and a type", BOTH, line(tool_calls=[
        call(*OSLO, id="a", type="function"), call(*UTC, id="b", type="function"),
    ])),
    lines("the same id for both", BOTH, line(tool_calls=[call(*OSLO, id="a"), call(*UTC, id="a")])),
    lines("an id of "
    "another type", BOTH, line(tool_calls=[call(*given, id=5) for given in (OSLO, UTC)])),
    lines("an index in the function", BOTH, line(tool_calls=[
        {"function": {"index": n, "name": name, "arguments": given}} for n, (name, given)
        in enumerate((OSLO, UTC))
    ])),
    lines("arguments "
    "null", Meaning(calls=(("clock", {}),)), line(tool_calls=[call("clock", None)])),
    lines("arguments as an "
    "empty text", Meaning(calls=(("clock", {}),)), line(tool_calls=[call("clock", "")])),
    lines("no "
    "arguments", Meaning(calls=(("clock", {}),)),
    line(tool_calls=[{"function": {"name": "clock"}}])),
    lines("calls that "
    "are null", HI, *(line(text, tool_calls=None, images=None) for text in ("Hi ", "there"))),
    lines("an empty list of calls", HI, *(line(text, tool_calls=[]) for text in ("Hi ", "there"))),
    lines("content null beside calls", BOTH, line(None, tool_calls=CALLS)),
    # Text and reasoning.
    lines("thinking, then text", THOUGHT, line(thinking="Hm."), *WORDS),
    lines("thinking and text in one line", THOUGHT, line("Hi there", thinking="Hm.")),
    lines("empty thinking in each line", HI, line("Hi ", thinking=""), line("there", thinking="")),
    lines("thinking of another type", HI, line("Hi ", thinking=False), line("there", thinking={})),
    lines("thinking null", HI, line("Hi ", thinking=None), line("there", thinking=None)),
    lines("a pair of surrogates in two lines", SMILE, *map(line, HALVES)),
    lines("text in the last line", HI, WORDS[0], message={"role": "assistant", "content": "there"}),
    lines("content that is null in "
    "the last line", HI, *WORDS, message={"role": "assistant", "content": None}),
    lines("no "
    "role", HI, *({"message": {"content": text}, "done": False} for text in ("Hi ", "there"))),
    lines("no done before "
    "the end", HI, *({"message": {"content": text}} for text in ("Hi ", "there"))),
    lines("done null before the end", HI, *({**each, "done": None} for each in WORDS)),
    # Lines without content.
    lines("a last line without a message", HI, *WORDS, message=None),
    lines("an error that is null", HI, *({**each, "error": None} for each in WORDS)),
    lines("the host of a model in the cloud", HI, *(
        {**each, "remote_model": "m", "remote_host": "https://x:443"} for each in WORDS
    )),
    raw("blank lines", HI, b"", WORDS[0], b"  ", WORDS[1], b"", end()),
    raw("CR LF", HI, *WORDS, end(), between=b"\r\n", after=b"\r\n"),
    raw("no end of the last line", HI, *WORDS, end(), after=b""),
    raw("lines after the end", HI, *WORDS, end(), line("more"), end()),
    raw("characters beyond ASCII as they are", Meaning("H\u00e9 \U0001f600"), *(
        json.dumps(line(text), ensure_ascii=False).encode() for text in ("H\u00e9", " \U0001f600")
    ), end()),
    # Ends, counts and durations.
    raw("no reason (before 0.2)", HI, *WORDS, {**line(), "done": True}),
    lines("an empty reason", HI, *WORDS, done_reason=""),
    lines("a reason null", HI, *WORDS, done_reason=None),
    lines("a token limit", Meaning("Hi there", end="length"), *WORDS, done_reason="length"),
    lines("a model that was only loaded", Meaning(), done_reason="load"),
    lines("an unknown reason", HI, *WORDS, done_reason="tired"),
    lines("no count of a prompt "
    "in the cache", Meaning("Hi there", usage=(0, 7)), *WORDS, eval_count=7),
    lines("counts as text", COUNTED, *WORDS, prompt_eval_count="11", eval_count="7"),
    lines("counts with a "
    "fraction of zero", COUNTED, *WORDS, prompt_eval_count=11.0, eval_count=7.0),
    lines("counts null", HI, *WORDS, prompt_eval_count=None, eval_count=None),
    lines("negative counts", HI, *WORDS, prompt_eval_count=-1, eval_count=7),
    lines("durations of another type", COUNTED, *WORDS, total_duration="1s", **COUNTS),
    lines("negative durations", COUNTED, *WORDS, total_duration=-5, eval_duration=0, **COUNTS),
    lines("logprobs and a "
    "context", COUNTED, *WORDS, logprobs=[{"token": "a", "logprob": -0.1}], context=[1,
        2], **COUNTS),
]  # fmt: skip
MESSAGES = [
    answer("arguments as text", BOTH, line(tool_calls=[
        call(name, json.dumps(given)) for name, given in (OSLO, UTC)
    ])["message"]),
    answer("text, thinking and calls", Meaning("Hi there", "Hm.", (OSLO,), usage=(11, 7)), {
        "role": "assistant", "content": "Hi there", "thinking": "Hm.", "tool_calls": CALLS[:1],
    }, **COUNTS),
    answer("null fields", COUNTED, {"role": "assistant", "content": "Hi there", "thinking": None,
        "tool_calls": None}, **(
        {**COUNTS, "error": None, "remote_host": None}
    )),
    answer("no reason", COUNTED, {"content": "Hi there"}, done_reason=None, **COUNTS),
]  # fmt: skip
CASES = [*STREAMS, *MESSAGES]
