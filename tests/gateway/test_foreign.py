"""A conversation with answers of other targets that continues at a target of the client's
format."""

import json
from typing import Any

import pytest
from msgspec import Raw

from splitsecond.core.events import Done, Event, Finish, Token, ToolPart
from splitsecond.core.service import Call, Spoken
from splitsecond.core.wire import anthropic, responses
from splitsecond.core.wire.anthropic.client_side import MessageAssembly
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.responses.client_side import ResponseAssembly
from splitsecond.core.wire.transcoder import Transcoder

ANSWER: list[Event] = [
    Token(1, "Hm.", "reasoning"),
    Token(1, "Let me see."),
    Token(1, 'f{"x":1}', "tool", tool=ToolPart(0, "call_1", "f")),
    Finish(1, "tool_calls"),
    Done(1, True),
]


def answered(assembly: Any, writer: Any) -> Any:
    """Return `ANSWER` as the client gets it, assembled."""
    assembly.feed(Transcoder(writer, "1" * 32, single=True).encode(ANSWER))
    return json.loads(assembly.answer())


def passed_on(api_format: Spoken, **fields: Any) -> Any:
    """Return the fields of the request that reach the target."""
    raw = {name: Raw(json.dumps(value).encode()) for name, value in fields.items()}
    spoken = anthropic if api_format == "anthropic" else responses
    return json.loads(
        spoken.pass_on(Call(id="1", body=raw, api_format=api_format), "m", Quirks()).body
    )


def test_unsigned_reasoning_does_not_reach_anthropic() -> None:
    message = answered(
        MessageAssembly(), anthropic.StreamWriter("chat", "m", id="msg_1", created=1)
    )
    thought, *said = message["content"]
    assert thought["type"] == "thinking"
    own = {"type": "thinking", "thinking": "Aha.", "signature": "xx"}
    question = {"role": "user", "content": 'Why "signature":""?'}
    turns = [question, {"role": "assistant", "content": [own, thought, *said]}, question]
    turns += [{"role": "assistant", "content": [thought]}, question]
    kept = passed_on("anthropic", messages=turns, max_tokens=5)["messages"]
    assert kept == [question, {"role": "assistant", "content": [own, *said]}, question, question]
    counted = anthropic.count(Call(id="1", body={"messages": Raw(json.dumps(turns).encode())}), "m")
    assert json.loads(counted.body)["messages"] == kept


def test_items_of_other_targets_lose_their_ids() -> None:
    output = answered(
        ResponseAssembly(), responses.StreamWriter("chat", "m", id="resp_1", created=1)
    )["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    own = {"type": "reasoning", "id": "rs_68af", "summary": [], "encrypted_content": "xx"}
    kept = passed_on("responses", input=[{"role": "user", "content": "hi"}, own, *output])["input"]
    assert kept[:2] == [{"role": "user", "content": "hi"}, own]
    assert [item["type"] for item in kept[2:]] == ["message", "function_call"]
    assert not any("id" in item for item in kept[2:])
    assert kept[3]["call_id"] == "call_1"
    call = Call(id="1", body={"input": Raw(json.dumps(output).encode())}, api_format="responses")
    responses.pass_on(call, "m", Quirks())
    assert call.notes.dropped == ["reasoning items"]


@pytest.mark.parametrize("api_format", ["anthropic", "responses"])
def test_everything_else_passes_byte_for_byte(api_format: Spoken) -> None:
    name = "messages" if api_format == "anthropic" else "input"
    for text in (
        b'[ {"role":"user", "content":"\\"signature\\":\\"\\" 1.50"} ]',
        b'"id:rs_resp_"',
        b'[{"signature":""]',
    ):
        spoken = anthropic if api_format == "anthropic" else responses
        request = spoken.pass_on(
            Call(id="1", body={name: Raw(text)}, api_format=api_format), "m", Quirks()
        )
        assert text in request.body
