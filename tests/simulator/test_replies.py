"""The contents of responses in every API format: given by rules, made for tools and schemas, cut by
stop and limit."""

from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace
from tests.cases import each_case
from tests.simulator.in_virtual_time import Client, Exchange
from tests.simulator.test_endpoints import PLAYED, STEADY, asked, events_of, tokens_of

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Event, Finish, Usage
from splitsecond.core.finish_reasons import openai_reason
from splitsecond.simulator.content.replies import (
    MAX_ADDED,
    ReplyRule,
    ReplyRules,
    RuleCall,
    RuleError,
    load_rules,
    parse_rules,
)
from splitsecond.simulator.profile import Profile
from splitsecond.testing.virtual_time import run_virtual

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "parameters": CITY}
OTHER = {"name": "clock", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOLS: dict[str, Any] = {
    "tools": [{"type": "function", "function": FUNCTION}, {"type": "function", "function": OTHER}]
}
TOOLS: dict[str, dict[str, Any]] = {
    "openai": CHAT_TOOLS,
    "cohere": CHAT_TOOLS,
    "ollama": CHAT_TOOLS,
    "responses": {"tools": [{"type": "function", **FUNCTION}, {"type": "function", **OTHER}]},
    "anthropic": {
        "tools": [
            {"name": "weather", "input_schema": CITY},
            {"name": "clock", "input_schema": OTHER["parameters"]},
        ],
        "max_tokens": 400,
    },
    "gemini": {"tools": [{"functionDeclarations": [FUNCTION, OTHER]}]},
}
"""The same two tools in each format."""
CHAT_RESULT = [
    {"role": "user", "content": "hello"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
]
RESULTS: dict[str, dict[str, Any]] = {
    "openai": {"messages": CHAT_RESULT},
    "cohere": {"messages": CHAT_RESULT},
    "ollama": {
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": "weather", "arguments": {}}}],
            },
            {"role": "tool", "tool_name": "weather", "content": "sunny"},
        ]
    },
    "responses": {
        "input": [
            {"role": "user", "content": "hello"},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        ]
    },
    "anthropic": {
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}],
            },
        ]
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "hello"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "weather", "response": {"sky": "sunny"}}}],
            },
        ]
    },
}
"""A conversation that ends with the result of the first tool, in each format."""
WITH_SCHEMA: dict[str, dict[str, Any]] = {
    "openai": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY}}
    },
    "cohere": {"response_format": {"type": "json_object", "schema": CITY}},
    "ollama": {"format": CITY},
    "responses": {"text": {"format": {"type": "json_schema", "name": "place", "schema": CITY}}},
    "anthropic": {
        "output_config": {"format": {"type": "json_schema", "schema": CITY}},
        "max_tokens": 400,
    },
    "gemini": {
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": CITY}
    },
}
ANY_JSON: dict[str, dict[str, Any]] = {
    "openai": {"response_format": {"type": "json_object"}},
    "cohere": {"response_format": {"type": "json_object"}},
    "ollama": {"format": "json"},
    "responses": {"text": {"format": {"type": "json_object"}}},
    "gemini": {"generationConfig": {"responseMimeType": "application/json"}},
}
STOP: dict[str, dict[str, Any]] = {
    "openai": {"stop": " says"},
    "cohere": {"stop_sequences": ["interest", " says"]},
    "ollama": {"options": {"stop": [" says"]}},
    "anthropic": {"stop_sequences": [" says"], "max_tokens": 400},
    "gemini": {"generationConfig": {"stopSequences": [" says"]}},
}
MANY: dict[str, dict[str, Any]] = {
    "openai": {"n": 2},
    "gemini": {"generationConfig": {"candidateCount": 2}},
}
TALKATIVE = replace(STEADY, output_tokens=12, natural_tokens=12)
streamed = pytest.mark.parametrize("stream", [True, False])


validate: Any = jsonschema.validate


def text_of(events: list[Event], index: int = 0) -> str:
    return "".join(token.text for token in tokens_of(events) if token.index == index)


def call_of(events: list[Event]) -> tuple[str, Any]:
    """Return the name and the arguments of the only tool call."""
    tokens = tokens_of(events, "tool")
    assert tokens[0].tool is not None
    assert len([token for token in tokens if token.tool is not None and token.tool.name]) == 1
    return tokens[0].tool.name, msgspec.json.decode("".join(token.arguments for token in tokens))


def reason_of(events: list[Event], *, called: bool = False) -> str:
    return next(
        openai_reason(event.reason, called=called) for event in events if isinstance(event, Finish)
    )


def with_rules(*rules: ReplyRule, on: Profile = STEADY) -> Profile:
    return replace(on, replies=rules)


@streamed
@each_case("name", TOOLS)
def test_offered_tool_is_called_and_its_result_gives_a_text(name: str, stream: bool) -> None:
    exchange, (record,) = asked(name, stream=stream, **TOOLS[name])
    events = events_of(name, exchange)
    tool, arguments = call_of(events)
    assert tool == "weather"
    validate(arguments, CITY)
    assert reason_of(events, called=True) == "tool_calls"
    assert len(record.planned_ns) == record.output_tokens

    exchange, _ = asked(name, stream=stream, **TOOLS[name] | RESULTS[name])
    events = events_of(name, exchange)
    assert text_of(events).startswith("A simulated provider")
    assert not tokens_of(events, "tool")


def test_calls_that_are_forbidden_or_required() -> None:
    exchange, _ = asked("openai", stream=False, **CHAT_TOOLS, tool_choice="none")
    assert text_of(events_of("openai", exchange)).startswith("A simulated")
    clock = {"type": "function", "function": {"name": "clock"}}
    exchange, _ = asked("openai", stream=False, **CHAT_TOOLS | RESULTS["openai"], tool_choice=clock)
    assert call_of(events_of("openai", exchange)) == ("clock", {})


@streamed
@each_case("name", WITH_SCHEMA)
def test_structured_output_fits_its_schema(name: str, stream: bool) -> None:
    exchange, _ = asked(name, stream=stream, **WITH_SCHEMA[name])
    events = events_of(name, exchange)
    validate(msgspec.json.decode(text_of(events)), CITY)
    assert reason_of(events) == "stop" or name == "responses"


@pytest.mark.parametrize("name", ANY_JSON)
def test_any_json_is_an_object(name: str) -> None:
    exchange, _ = asked(name, **ANY_JSON[name])
    assert msgspec.json.decode(text_of(events_of(name, exchange))) == {
        "text": "A simulated provider says nothing of interest,"
    }


def test_a_schema_without_a_value_is_refused() -> None:
    wrong: dict[str, Any] = {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": []}}}
    }
    exchange, _ = asked("openai", **wrong)
    assert (exchange.status, exchange.json["error"]["code"]) == (400, "schema")


@streamed
@each_case("name", STOP)
def test_a_stop_sequence_ends_the_text(name: str, stream: bool) -> None:
    exchange, (record,) = asked(name, on=TALKATIVE, stream=stream, **STOP[name])
    events = events_of(name, exchange)
    assert text_of(events) == "A simulated provider"
    assert reason_of(events) == "stop"
    assert record.output_tokens == 3
    if name == "anthropic":
        assert b'"stop_sequence":" says"' in exchange.body


@streamed
@pytest.mark.parametrize("name", MANY)
def test_several_choices(name: str, stream: bool) -> None:
    exchange, (record,) = asked(name, stream=stream, **MANY[name])
    events = events_of(name, exchange)
    assert text_of(events, 0) == text_of(events, 1) == "A simulated provider says nothing of"
    assert len([event for event in events if isinstance(event, Finish)]) == 2
    assert [event for event in events if isinstance(event, Usage)][-1].output_tokens == 12
    assert record.output_tokens == len(record.actual_ns) == 6


@streamed
def test_log_probabilities_reach_the_decoder(stream: bool) -> None:
    exchange, _ = asked("openai", stream=stream, logprobs=True, top_logprobs=2)
    first = exchange.events[1] if stream else exchange.body
    entry = msgspec.json.decode(first)["choices"][0]["logprobs"]["content"][0]
    assert entry["token"] == entry["top_logprobs"][0]["token"] == "A"
    assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] < 0
    assert entry["top_logprobs"][1]["logprob"] < entry["logprob"]
    assert bytes(entry["bytes"]) == b"A"


@streamed
@each_case("name", PLAYED)
def test_a_rule_gives_text_and_reasoning(name: str, stream: bool) -> None:
    rule = ReplyRule(prompt="hell", text="Bonjour,  le monde!\n", reasoning="A greeting.")
    more: dict[str, Any] = {"max_tokens": 400} if name == "anthropic" else {}
    exchange, (record,) = asked(name, on=with_rules(rule), stream=stream, **more)
    events = events_of(name, exchange)
    assert text_of(events) == "Bonjour,  le monde!\n"
    assert "".join(token.text for token in tokens_of(events, "reasoning")) == "A greeting."
    assert (
        record.output_tokens
        == [event for event in events if isinstance(event, Usage)][-1].output_tokens
        == 6
    )


@streamed
@each_case("name", PLAYED)
def test_a_rule_gives_calls(name: str, stream: bool) -> None:
    rule = ReplyRule(
        calls=(RuleCall("clock"), RuleCall("weather", {"city": "Köln", "unit": "c"})),
        text="Let me look.",
    )
    exchange, _ = asked(name, on=with_rules(rule), stream=stream, **TOOLS[name])
    events = events_of(name, exchange)
    named = [
        token.tool
        for token in tokens_of(events, "tool")
        if token.tool is not None and token.tool.name
    ]
    assert [part.name for part in named] == ["clock", "weather"]
    assert len({part.id for part in named}) == 2
    second = [
        token
        for token in tokens_of(events, "tool")
        if token.tool is not None and token.tool.number == 1
    ]
    assert msgspec.json.decode("".join(token.arguments for token in second)) == {
        "city": "Köln",
        "unit": "c",
    }
    assert text_of(events) == "Let me look."


@each_case(
    "rule, fits",
    [
        (ReplyRule(text="x", prompt="Hello"), False),
        (ReplyRule(text="x", pattern="(?i)^HELLO$"), True),
        (ReplyRule(text="x", model="ste*"), True),
        (ReplyRule(text="x", model="gpt-*"), False),
        (ReplyRule(text="x", offers="weather"), True),
        (ReplyRule(text="x", offers="mail"), False),
        (ReplyRule(text="x", after="weather"), False),
        (ReplyRule(calls=(RuleCall("mail"),)), False),
    ],
)
def test_rule_applies_only_to_matching_requests(rule: ReplyRule, fits: bool) -> None:
    exchange, _ = asked("openai", on=with_rules(rule), stream=False, **CHAT_TOOLS)
    assert (text_of(events_of("openai", exchange)) == "x") is fits


@each_case("name", PLAYED)
def test_rule_applies_after_the_result_of_its_tool(name: str) -> None:
    rules = (
        ReplyRule(calls=(RuleCall("weather"),)),
        ReplyRule(offers="weather", text="never"),
        ReplyRule(after="clock", text="no"),
        ReplyRule(after="weather", prompt="hello", text="It is sunny."),
    )
    exchange, _ = asked(name, on=with_rules(*rules), **TOOLS[name] | RESULTS[name])
    assert text_of(events_of(name, exchange)) == "It is sunny."


def test_refusals_json_and_finish_reasons() -> None:
    exchange, _ = asked("openai", on=with_rules(ReplyRule(refusal="I cannot.")), stream=False)
    assert exchange.json["choices"][0]["message"]["refusal"] == "I cannot."
    exchange, _ = asked(
        "openai", on=with_rules(ReplyRule(json={"a": [1]}, finish="content_filter")), stream=False
    )
    choice = exchange.json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (
        '{"a":[1]}',
        "content_filter",
    )


@streamed
def test_a_refusal_ends_with_the_stop_reason_of_anthropic(stream: bool) -> None:
    exchange, _ = asked("anthropic", on=with_rules(ReplyRule(refusal="I cannot.")), stream=stream)
    events = events_of("anthropic", exchange)
    assert (text_of(events), [event.reason for event in events if isinstance(event, Finish)]) == (
        "I cannot.",
        ["refusal"],
    )


@streamed
def test_the_limit_cuts_a_text_and_never_a_call(stream: bool) -> None:
    rule = ReplyRule(text="one two three four", prompt="hello")
    exchange, (record,) = asked("openai", on=with_rules(rule), stream=stream, max_tokens=2)
    events = events_of("openai", exchange)
    assert (text_of(events), reason_of(events), record.output_tokens) == ("one two", "length", 2)
    for name in PLAYED:
        limits: dict[str, Any] = {
            "gemini": {"generationConfig": {"maxOutputTokens": 2}},
            "responses": {"max_output_tokens": 2},
            "ollama": {"options": {"num_predict": 2}},
        }
        exchange, (record,) = asked(
            name, stream=stream, **TOOLS[name] | limits.get(name, {"max_tokens": 2})
        )
        assert call_of(events_of(name, exchange))[0] == "weather"
        assert record.output_tokens == 2


def several(profile: Profile, *requests: dict[str, Any]) -> list[Exchange]:
    """Send requests to one provider, one after another."""

    async def play() -> list[Exchange]:
        client = Client(profile)
        return [await client.send(**request) for request in requests]

    return run_virtual(play())


def test_rule_applies_to_a_limited_number_of_requests() -> None:
    error = RuleError(status=503, message="we are busy", code="busy", retry_after=2)
    rules = (ReplyRule(error=error, times=2), ReplyRule(text="At last."))
    first, second, third = several(
        with_rules(*rules), {}, {"path": "/v1/messages", "max_tokens": 9}, {}
    )
    assert (first.status, first.headers[b"retry-after"]) == (503, b"2")
    assert first.json["error"] == {
        "message": "we are busy",
        "type": "server_error",
        "param": None,
        "code": "busy",
    }
    assert (second.status, second.json["type"], second.json["error"]["message"]) == (
        503,
        "error",
        "we are busy",
    )
    assert third.json["choices"][0]["message"]["content"] == "At last."


def test_a_rule_with_a_fault() -> None:
    rules = (ReplyRule(prompt="hello", fault="cut; after=2", times=1),)
    first, second = several(with_rules(*rules), {"stream": True}, {"stream": True})
    assert (first.text, first.finished) == ("A simulated", False)
    assert second.text == "A simulated provider says nothing of"


def test_a_fault_of_the_first_requests() -> None:
    own = {"headers": {"x-splitsecond-fault": "503; first=2"}}
    assert [one.status for one in several(STEADY, own, {}, own, own)] == [503, 200, 503, 200]
    other = {"headers": {"x-splitsecond-fault": "503;first=2"}}
    assert [one.status for one in several(STEADY, own, own, own, other)] == [503, 503, 200, 503]


def test_any_model_is_served() -> None:
    anything = replace(STEADY, model="*")
    gpt, claude, models, one = several(
        anything,
        {"model": "gpt-x"},
        {"path": "/v1/messages", "model": "claude-x", "max_tokens": 9},
        {"method": "GET", "path": "/v1/models"},
        {"method": "GET", "path": "/v1/models/gpt-x"},
    )
    assert (gpt.json["model"], claude.json["model"]) == ("gpt-x", "claude-x")
    assert ([model["id"] for model in models.json["data"]], one.json["id"]) == (["steady"], "gpt-x")


@each_case(
    "name, header, kind",
    [
        ("openai", {"authorization": "Bearer sk-right"}, ("error", "code", "invalid_api_key")),
        ("responses", {"authorization": "Bearer sk-right"}, ("error", "code", "invalid_api_key")),
        ("anthropic", {"x-api-key": "sk-right"}, ("error", "type", "authentication_error")),
        ("gemini", {"x-goog-api-key": "sk-right"}, ("error", "status", "UNAUTHENTICATED")),
        ("cohere", {"authorization": "bearer sk-right"}, None),
        ("ollama", {"api-key": "sk-right"}, None),
    ],
)
def test_keys_are_checked(
    name: str, header: dict[str, str], kind: tuple[str, str, str] | None
) -> None:
    profile = replace(STEADY, keys=("sk-other", "sk-right"))
    one = PLAYED[name]
    request: dict[str, Any] = {"path": one.whole_path, **one.body, "stream": False}
    wrong = {key: value + "x" for key, value in header.items()}
    none, bad, good = several(
        profile, request, {**request, "headers": wrong}, {**request, "headers": header}
    )
    assert (none.status, bad.status, good.status) == (401, 401, 200)
    if kind is not None:
        place, field, value = kind
        assert bad.json[place][field] == value


def test_a_key_in_the_query() -> None:
    profile = replace(STEADY, keys=("k1",))
    (found,) = several(
        profile, {"path": PLAYED["gemini"].whole_path + "?key=k1", **PLAYED["gemini"].body}
    )
    assert found.status == 200


def test_the_journal_and_the_replies_of_a_test() -> None:
    async def play() -> None:
        client = Client(STEADY)
        rule = msgspec.json.encode({"text": "Hi.", "times": 1})
        assert (await client.send(path="/_splitsecond/replies", body=rule)).status == 200
        wrong = await client.send(path="/_splitsecond/replies", body=b'{"txt": 1}')
        assert (wrong.status, wrong.json["error"]["code"]) == (400, "bad_reply")
        assert "Did you mean text?" in wrong.json["error"]["message"]
        headers = {"authorization": "Bearer sk-secret", "x-api-key": "s", "x-trace": "7"}
        assert (await client.send(headers=headers)).json["choices"][0]["message"][
            "content"
        ] == "Hi."
        await client.send(path="/v1/messages", body=b"{")
        await client.send(path="/nowhere", method="GET")
        entries = (await client.send(method="GET", path="/_splitsecond/requests")).json
        assert [(entry["path"], entry["status"], entry["api_format"]) for entry in entries] == [
            ("/v1/chat/completions", 200, "openai"),
            ("/v1/messages", 400, "anthropic"),
            ("/nowhere", 404, ""),
        ]
        assert entries[0]["body"]["messages"] == [{"role": "user", "content": "hello"}]
        assert (
            entries[0]["headers"] | {"authorization": "[key]", "x-api-key": "[key]", "x-trace": "7"}
            == (entries[0]["headers"])
        )
        assert entries[1]["body"] == "{"
        await client.send(method="DELETE", path="/_splitsecond/requests")
        assert (await client.send(method="GET", path="/_splitsecond/requests")).json == []
        await client.send(
            path="/_splitsecond/replies", body=msgspec.json.encode([{"text": "Again."}])
        )
        await client.send(method="DELETE", path="/_splitsecond")
        answered = await client.send()
        assert answered.json["choices"][0]["message"]["content"].startswith("A simulated")
        assert answered.json["id"] == "chatcmpl-1"

    run_virtual(play())


@pytest.mark.parametrize("name", ["anthropic", "responses"])
def test_a_stored_conversation_continues(name: str) -> None:
    async def play() -> None:
        client = Client(
            with_rules(
                ReplyRule(calls=(RuleCall("weather"),)), ReplyRule(after="weather", text="Sunny.")
            )
        )
        path = PLAYED[name].whole_path
        last = RESULTS[name]["messages" if name == "anthropic" else "input"][-1]
        if name == "anthropic":
            created = await client.send(path=path, thread={"type": "create"}, **TOOLS[name])
            call = created.json["content"][-1]["id"]
            result = {"role": "user", "content": [{**last["content"][0], "tool_use_id": call}]}
            previous: dict[str, Any] = {
                "type": "continue",
                "previous_message_id": created.json["id"],
            }
            rest: dict[str, Any] = {"messages": [result], "max_tokens": 9}
            continued = await client.send(path=path, thread=previous, **rest)
            unknown = await client.send(
                path=path, thread={**previous, "previous_message_id": "msg_9"}, **rest
            )
            assert continued.json["content"][-1]["text"] == "Sunny."
            assert unknown.json["error"]["details"]["error_code"] == "thread_unsupported_request"
        else:
            body = {"model": "steady", "input": "hello", **TOOLS[name]}
            created = await client.send(path=path, body=msgspec.json.encode(body))
            call = created.json["output"][-1]["call_id"]
            body = {
                "model": "steady",
                "input": [{**last, "call_id": call}],
                "previous_response_id": created.json["id"],
            }
            continued = await client.send(path=path, body=msgspec.json.encode(body))
            body["previous_response_id"] = "resp_9"
            unknown = await client.send(path=path, body=msgspec.json.encode(body))
            assert continued.json["output"][-1]["content"][0]["text"] == "Sunny."
            assert unknown.json["error"]["code"] == "previous_response_not_found"
        assert unknown.status == 400

    run_virtual(play())


def test_the_journal_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitsecond.simulator.journal.MAX_ENTRIES", 3)
    monkeypatch.setattr("splitsecond.simulator.journal.MAX_BYTES", 2_000)

    async def play() -> tuple[list[int], list[int]]:
        client = Client(STEADY)

        async def numbers() -> list[int]:
            found = await client.send(method="GET", path="/_splitsecond/requests")
            return [entry["number"] for entry in found.json]

        for _ in range(5):
            await client.send()
        last = await numbers()
        await client.send(messages=[{"role": "user", "content": "x" * 3_000}])
        return last, await numbers()

    assert run_virtual(play()) == ([3, 4, 5], [6])


def test_added_rules_are_bounded() -> None:
    rules = ReplyRules(())
    rules.add([ReplyRule(text="x")] * MAX_ADDED)
    with pytest.raises(CallerFault, match="1,000"):
        rules.add([ReplyRule(text="x")])


def test_rules_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"prompt": "a", "text": "A"}\n\n{"json": {"n": 1}}\n')
    assert load_rules(path) == [ReplyRule(prompt="a", text="A"), ReplyRule(json={"n": 1})]
    path.write_text('{"text": "A"}\n{"txt": "B"}\n')
    with pytest.raises(
        CallerFault, match=r"replies.jsonl:2: .*unknown field `txt`. Did you mean text"
    ):
        load_rules(path)
    path.write_text("{")
    with pytest.raises(CallerFault, match=r"replies.jsonl:1: not JSON"):
        load_rules(path)
    with pytest.raises(CallerFault, match="cannot read"):
        load_rules(tmp_path / "absent")


def test_a_pattern_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitsecond.simulator.content.replies.MATCH_S", 0.01)
    rule = ReplyRule(pattern=r"^(a|a|a)+$", text="x")
    found, _ = asked(
        "openai", on=with_rules(rule), messages=[{"role": "user", "content": "a" * 60 + "!"}]
    )
    assert (found.status, found.json["error"]["code"]) == (400, "bad_reply")


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": 3},
        {"input": [{"role": 3, "content": 3}, {"type": "function_call_output"}]},
        {"tools": [None, {"function": 3}, {"function": {"name": 3}}]},
        {"stop": [3], "text": 3, "include": {}, "generationConfig": [], "options": 1},
        {"tool_choice": 3, "response_format": {"type": "json_schema", "json_schema": 3}},
    ],
)
def test_fields_of_an_odd_form_are_ignored(fields: dict[str, Any]) -> None:
    found, _ = asked(
        "responses", on=with_rules(ReplyRule(prompt="x", text="y")), stream=False, **fields
    )
    assert found.status == 200


def test_rules_as_one_object_or_a_list() -> None:
    assert parse_rules(b'{"text": "a"}', "x") == parse_rules(b'[{"text": "a"}]', "x")
