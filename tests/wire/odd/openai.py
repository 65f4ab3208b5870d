"""Chats and completions in OpenAI's format."""

from typing import Any

from tests.wire.odd import (
    ALL,
    BOTH,
    HALVES,
    HI,
    OSLO,
    SMILE,
    Fields,
    Meaning,
    OddAnswer,
    framings,
    streamed,
    whole,
)

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
COUNTED = Meaning("Hi there", usage=(11, 7))
DONE = b"[DONE]"
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
WORDS: tuple[Fields, Fields] = ({"content": "Hi "}, {"content": "there"})


def chunk(delta: Any, reason: str | None = None, **fields: Any) -> Fields:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **fields}


def fragment(
    arguments: Any, id: str = "", name: str = "", index: Any = None, **fields: Any
) -> Fields:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    given = {"type": "function", "function": function, **({"id": id} if id else {})}
    return given | ({} if index is None else {"index": index}) | fields


def chat(name: str, meaning: Meaning, *deltas: Any, reason: str = "stop", **last: Any) -> OddAnswer:
    begin = chunk({"role": "assistant", "content": None})
    return streamed(
        "openai", name, meaning, begin, *map(chunk, deltas), chunk({}, reason, **last), DONE
    )


def called(name: str, *fragments: Fields, meaning: Meaning = BOTH) -> OddAnswer:
    return chat(name, meaning, *({"tool_calls": [each]} for each in fragments), reason="tool_calls")


def raw(name: str, meaning: Meaning, *events: Any) -> OddAnswer:
    return streamed("openai", name, meaning, *events)


def choices(*all_of_them: Fields) -> Fields:
    return {**HEAD, "choices": [*all_of_them]}


def answer(
    name: str, meaning: Meaning, message: Fields, reason: str = "stop", **fields: Any
) -> OddAnswer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": USAGE,
    }
    return whole("openai", name, meaning, body | fields)


def counted(meaning: Meaning) -> Meaning:
    return Meaning(meaning.text, meaning.reasoning, meaning.calls, meaning.end, (11, 7))


def thinking(text: str) -> list[Fields]:
    return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]


NULLS = {
    "refusal": None,
    "function_call": None,
    "tool_calls": None,
    "audio": None,
    "reasoning_content": None,
}
THOUGHT = Meaning("Hi there", "Hm. ")
SPLIT = (fragment('{"city":', "a", "weather", 0), fragment('"Oslo"}', index=0))
WHOLE = (fragment('{"city":"Oslo"}', "a", "weather"), fragment('{"zone":"UTC"}', "b", "clock"))
FILTER = {"hate": {"filtered": False, "severity": "safe"}}
STREAMS = [
    # Tool calls: which fragment belongs to which call.
    called(
        "calls without index",
        fragment('{"city":', "a", "weather"), fragment('"Oslo"}'),
        fragment('{"zone":', "b", "clock"), fragment('"UTC"}'),
    ),
    called(
        "all calls with index 0",
        fragment('{"city":"Oslo"}', "a", "weather", 0), fragment('{"zone":"UTC"}', "b", "clock", 0),
    ),
    called("index 0 and no ids", *(
        fragment('{"city":', "", "weather", 0), fragment('"Oslo"}', index=0),
        fragment('{"zone":"UTC"}', "", "clock", 0)
    )),
    called(
        "fragments that alternate",
        fragment("", "a", "weather", 0), fragment("", "b", "clock", 1),
        fragment('{"city":', index=0),
        fragment('{"zone":', index=1), fragment('"Oslo"}', index=0), fragment('"UTC"}', index=1),
    ),
    called(
        "a fragment with a stray index",
        fragment('{"city":', "a", "weather", 0), fragment('"Oslo"}', index=3),
        fragment('{"zone":', "b", "clock", 1), fragment('"UTC"}', index=1),
    ),
    called("index null", *(each | {"index": None} for each in WHOLE)),
    called(
        "index as text",
        fragment('{"city":', "a", "weather", "0"), fragment('"Oslo"}', index="0"),
        fragment('{"zone":"UTC"}', "b", "clock", "1"),
    ),
    called("indexes from 1", *(each | {"index": number} for number, each in enumerate(WHOLE, 1))),
    called(
        "an id and a name in each fragment",
        fragment('{"city":', "a", "weather", 0), fragment('"Oslo"}', "a", "weather", 0),
        fragment('{"zone":"UTC"}', "b", "clock", 1),
    ),
    called(
        "an id made up for each fragment (vLLM)",
        fragment('{"city":', "a", "weather", 0), fragment('"Oslo"}', "b", "", 0),
        fragment('{"zone":"UTC"}', "c", "clock", 1),
    ),
    called(
        "the name after the id",
        fragment("", "a", "", 0), fragment('{"city":"Oslo"}', "", "weather", 0),
        fragment("", "b", "", 1), fragment('{"zone":"UTC"}', "", "clock", 1),
    ),
    called("arguments null at first", fragment(None, "a", "weather", 0), *(
        fragment(text, index=0) for text in ('{"city":', '"Oslo"}')
    ), meaning=Meaning(calls=(OSLO,))),
    called("an id as number", fragment('{"city":"Oslo"}', "", "weather", 0) | {"id": 7},
        meaning=Meaning(calls=(OSLO,))),
    called("empty ids and names in later fragments", SPLIT[0], {
        "index": 0, "id": "", "type": "", "function": {"name": "", "arguments": '"Oslo"}'},
    }, meaning=Meaning(calls=(OSLO,))),
    called("arguments as an object (llama.cpp)", fragment({"city": "Oslo"}, "a", "weather", 0), *(
        [fragment({"zone": "UTC"}, "b", "clock", 1)]
    )),
    called("arguments in several lines", fragment('{\n "city":', "a", "weather", 0),
        fragment('\r\n "Oslo"\n}', index=0), *(
        [fragment('{ "zone" : "UTC" }', "b", "clock", 1)]
    )),
    called("no "
    "arguments", fragment("", "a", "weather", 0), meaning=Meaning(calls=(("weather", {}),))),
    chat("both calls in one delta, with index 0 (Gemini's endpoint)", BOTH, {
        "role": "assistant", "tool_calls": [each | {"index": 0, "extra_content": {}} for each
        in WHOLE],
    }),
    chat("a call as an object instead of a list (TGI)", Meaning(calls=(OSLO,)), *(
        {"role": "assistant", "tool_calls": each} for each in SPLIT
    ), reason="tool_calls"),
    chat("the older "
    "function_call", Meaning(calls=(OSLO,)),
    {"function_call": {"name": "weather", "arguments": ""}}, *(
        {"function_call": {"arguments": text}} for text in ('{"city":', '"Oslo"}')
    ), reason="function_call"),
    chat("tool_calls and function_call in each delta (llama-cpp-python)", Meaning(calls=(OSLO,)), *(
        {"tool_calls": [fragment(text, "a", "weather", 0)],
        "function_call": {"name": "weather", "arguments": text}}
        for text in ('{"city":', '"Oslo"}')
    ), reason="tool_calls"),
    chat("text before calls, and an empty list beside the text", ALL, *(
        {**word, "tool_calls": []} for word in WORDS
    ), *({"tool_calls": [each]} for each in WHOLE)),
    raw("a call and the reason in one chunk "
    "(Mistral)", Meaning(calls=(OSLO,), usage=(11, 7)), chunk(
        {"content": "", "tool_calls": [
        {"id": "a", "function": {"name": "weather", "arguments": '{"city": '
        '"Oslo"}'},
         "index": 0}]}, "tool_calls", usage=USAGE, p="abc",
    ), DONE),
    chat("a reason for tool calls without a call", HI, *WORDS, reason="tool_calls"),
    # Text and reasoning.
    chat("content as a list, then as text "
    "(Mistral)", Meaning("The answer is 4.", "Two and two."), *(
        {"content": content} for content in (
            thinking("Two "
            "and "), thinking("two."), [{"type": "text", "text": "The "}], "answer", " is 4.",
        )
    )),
    chat("a summary of reasoning in a list (Databricks)", THOUGHT, {"content": [
        {"type": "reasoning", "summary": [
        {"type": "summary_text", "text": "Hm. ", "signature": ""}]},
    ]}, *({"content": [{"type": "text", "text": word["content"]}]} for word in WORDS)),
    chat("parts that are references (Mistral)", HI, WORDS[0], {"content": [
        {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "there"},
    ]}),
    chat("a pair of surrogates in two chunks", SMILE, *({"content": half} for half in HALVES)),
    chat("reasoning under both names (OpenRouter)", THOUGHT, {
        "content": "", "reasoning": "Hm. ", "reasoning_content": "Hm. ",
        "reasoning_details": [{"type": "x",
            "index": 0}],
    }, *WORDS),
    chat("content null beside reasoning "
    "(DeepSeek)", THOUGHT, {"content": None, "reasoning_content": "Hm. "}, *(
        {**word, "reasoning_content": None} for word in WORDS
    )),
    chat("reasoning of "
    "another type", HI, *({**word, "reasoning": {"effort": "low"}} for word in WORDS)),
    chat("reasoning_content of "
    "another type", HI, *({**word, "reasoning_content": []} for word in WORDS)),
    chat("a refusal of another type", HI, *({**word, "refusal": False} for word in WORDS)),
    chat("a role of another type", HI, *({**word, "role": 1} for word in WORDS)),
    chat("all fields, most of them null "
    "(LiteLLM)", HI, *({"role": "assistant", **NULLS, **word} for word in WORDS)),
    chat("only reasoning, then "
    "the limit", Meaning("", "Hm. ", end="length"), {"reasoning": "Hm. "}, reason="length"),
    raw("text beside the delta (Together)", HI, *(
        choices({"index": 0, "text": word["content"],
        "delta": {**word, "token_id": 5, "role": "assistant"}})
        for word in WORDS
    ), chunk({}, "eos"), DONE),
    raw("the message so far in each chunk (Perplexity)", HI, *(
        choices({"index": 0, "delta": word, "message": {"role": "assistant", "content": said},
        "finish_reason": None})
        for word, said in zip(WORDS, ("Hi ", "Hi there"), strict=True)
    ), {**choices({"index": 0, "delta": {"content": ""}, "message": {"content": "Hi there"},
    "finish_reason": "stop"}),
        "citations": ["http://x"], "search_results": []}),
    raw("the whole message at the end (MiniMax)", COUNTED, *map(chunk, WORDS), chunk({}, "stop"), {
        **HEAD, "object": "chat.completion", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hi there"},
            "finish_reason": "stop"},
        ], "usage": USAGE, "base_resp": {"status_code": 0, "status_msg": ""},
        "input_sensitive": False,
    }),
    # The head of a chunk, and chunks without content.
    raw("choices with index null", HI, *(
        choices({"index": None, "delta": word}) for word in WORDS
    ), chunk({}, "stop"), DONE),
    raw("choices with "
    "index -1", HI, *(choices({"index": -1, "delta": word}) for word in WORDS), choices(
        {"index": -1, "delta": {}, "finish_reason": "stop"},
    ), DONE),
    raw("choices "
    "without index", HI, *(choices({"delta": word}) for word in WORDS), chunk({}, "stop"), DONE),
    raw("an opening without choices (Azure)", HI, {
        "id": "", "object": "", "created": 0, "model": "", "choices": [],
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": FILTER}],
    }, *(choices({"index": 0, "delta": word, "content_filter_results": FILTER}) for word in WORDS),
    choices(
        {"index": 0, "content_filter_offsets": {"end_offset": 8}, "finish_reason": None,
        "delta": {}},
    ), chunk({}, "stop"), DONE),
    raw("a delta that is null", HI, *map(chunk, WORDS), chunk(None, "stop"), DONE),
    raw("ids, times and models of other types", HI, *(
        {**chunk(word), "id": None, "created": 1.5, "model": None, "object": None} for word in WORDS
    ), chunk({}, "stop"), DONE),
    raw("pings as events of "
    "their own", HI, b'{"type":"ping"}', chunk(WORDS[0]), b"", b"{}", chunk(WORDS[1], "stop")),
    raw("an empty finish reason in each chunk", HI, *(
        chunk(word, "") for word in WORDS
    ), chunk({"content": ""}, "stop"), DONE),
    raw("the same finish reason twice", HI, *map(chunk, WORDS), *([chunk({}, "stop")] * 2), DONE),
    raw("no end mark, and the reason with the "
    "last token (TGI)", HI, chunk(WORDS[0]), chunk(WORDS[1], "eos_token")),
    raw("an unknown reason in capitals", HI, *map(chunk, WORDS), chunk({}, "STOP"), DONE),
    raw("a token limit in the "
    "words of Mistral", Meaning("Hi there", end="length"), *map(chunk, WORDS), *(
        [chunk({}, "model_length"), DONE]
    )),
    raw("numbers that are no JSON in logprobs (vLLM)", HI, *(
        b'{"choices":[{"index":0,"delta":{"content":"%s"},'
        b'"logprobs":{"content":[{"logprob":-Infinity}]}}]}' % word
        for word in (b"Hi ", b"there")
    ), chunk({}, "stop"), DONE),
    # Usage.
    chat("usage as a list", HI, *WORDS, usage=[]),
    chat("counts as text", COUNTED, *WORDS,
    usage={"prompt_tokens": "11", "completion_tokens": "7"}),
    chat("counts with a "
    "fraction of zero", COUNTED, *WORDS, usage={"prompt_tokens": 11.0, "completion_tokens": 7.0}),
    chat("a negative count", HI, *WORDS, usage={"prompt_tokens": -1, "completion_tokens": 7}),
    chat("an unknown field of Groq", HI, *WORDS, x_groq=5),
    chat("usage only in Groq's "
    "own field", COUNTED, *WORDS, x_groq={"id": "req_1", "usage": {**USAGE,
        "queue_time": 0.1}}),
    chat("details that are null", COUNTED, *WORDS, usage={
        **USAGE, "prompt_tokens_details": None, "completion_tokens_details": None, "cost": 0.1,
    }),
    chat("reasoning that is not part of "
    "the output (xAI)", Meaning("Hi there", usage=(11, 12)), *WORDS, usage={
        **USAGE, "total_tokens": 23, "completion_tokens_details": {"reasoning_tokens": 5},
    }),
    raw("usage null in each chunk, then alone (OpenAI)", COUNTED, *(
        chunk(word, usage=None, obfuscation="x") for word in WORDS
    ), chunk({}, "stop", usage=None), {**HEAD, "choices": [], "usage": USAGE}, DONE),
    raw("totals so far in each chunk (vLLM)", COUNTED, *(
        chunk(word, usage={**USAGE, "completion_tokens": n}) for n, word in enumerate(WORDS, 1)
    ), chunk({}, "stop", usage=USAGE), DONE),
    raw("usage inside a choice (Moonshot)", COUNTED, *map(chunk, WORDS), choices(
        {"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE},
    ), DONE),
    raw("usage beside another "
    "empty choice", COUNTED, *map(chunk, WORDS), chunk({}, "stop"), chunk({}, usage=USAGE)),
]  # fmt: skip
MESSAGES = [
    answer("calls without index", counted(BOTH), {"content": None, "tool_calls": [*WHOLE]}),
    answer("calls that all have index 0", counted(BOTH), {"content": None, "tool_calls": [
        fragment('{"city":"Oslo"}', "", "weather", 0), fragment('{"zone":"UTC"}', "", "clock", 0),
    ]}),
    answer("two calls of one name", counted(Meaning(calls=(OSLO, OSLO))), {
        "content": None, "tool_calls": [fragment('{"city":"Oslo"}', "", "weather", 0) for _
        in range(2)],
    }),
    answer("arguments as objects", counted(BOTH), {"content": None, "tool_calls": [
        fragment({"city": "Oslo"}, "a", "weather"), fragment({"zone": "UTC"}, "b", "clock"),
    ]}),
    answer("a call as an "
    "object (TGI)", counted(Meaning(calls=(OSLO,))), {"content": "", "tool_calls": WHOLE[0]}),
    answer("the call under both names", counted(Meaning(calls=(OSLO,))), {
        "content": None, "tool_calls": [*WHOLE[:1]],
        "function_call": {"name": "weather", "arguments": '{"city":"Oslo"}'},
    }),
    answer("text and calls in two choices (Copilot)", counted(ALL), {}, choices=[
        {"message": {"role": "assistant", "content": "Hi there"}, "finish_reason": "tool_calls"},
        {"message": {"role": "assistant", "tool_calls": [*WHOLE]}, "finish_reason": "tool_calls"},
    ]),
    answer("content as a list", counted(Meaning("4.", "Two.")), {
        "content": [*thinking("Two."), {"type": "text", "text": "4."}],
    }),
    answer("content "
    "null", counted(Meaning("", "Hm.", end="length")), {"content": None, "reasoning": "Hm."},
    "length"),
    answer("usage as a list", HI, {"content": "Hi there"}, usage=[]),
    answer("counts as words", HI, {"content": "Hi there"}, usage={"prompt_tokens": "one"}),
    answer("usage null", HI, {"content": "Hi there"}, usage=None),
    answer("reasoning of another type", COUNTED, {"content": "Hi there", "reasoning": {"a": 1}}),
    answer("an error that is null", COUNTED, {"content": "Hi there"}, error=None, base_resp=None),
]  # fmt: skip
CASES = [*STREAMS, *MESSAGES, *framings(STREAMS[0])]
