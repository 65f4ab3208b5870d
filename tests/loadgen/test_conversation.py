"""The messages of a session: what each turn's prompt begins with, contains and costs."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from splitsecond.benchmark.load.session_player import Player, SessionPrompts
from splitsecond.benchmark.workload.conversation import Conversation, answer_message
from splitsecond.benchmark.workload.sessions import Answers, Session, SessionSet, Turn
from splitsecond.benchmark.workload.traced_prompts import PromptScale
from splitsecond.benchmark.workload.words import Filler
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.observation import Observation

FILLER = Filler(0, 1000)


def counts(tokens: int, output: int = 9) -> Observation:
    return Observation(id="x", call="x", target="t", input_tokens=tokens, output_tokens=output)


def player(
    turns: list[Turn],
    *,
    number: int = 0,
    condition: str = "c",
    answers: Answers = "server",
    **session: Any,
) -> Player:
    whole = Session(id="s", turns=turns, **session)
    sessions = SessionSet(name="f", format="g", sessions=[whole], answers=answers)
    prompts = SessionPrompts(Workload(run="r", sessions=sessions, output_tokens=77), condition, 1)
    return prompts.player(whole, number)


def raw(body: dict[str, Any]) -> bytes:
    return bytes(body["messages"])


def decoded(body: dict[str, Any]) -> list[dict[str, Any]]:
    return msgspec.json.decode(body["messages"], type=list[dict[str, Any]])


def growing(*tokens: int) -> list[Turn]:
    """Return turns with prompts of these lengths. Each prompt contains the one before."""
    shared = [0, *tokens]
    return [
        Turn(input_tokens=one, output_tokens=9, shared_tokens=same)
        for one, same in zip(tokens, shared, strict=False)
    ]


def test_each_turn_begins_with_the_bytes_of_the_turn_before() -> None:
    session = player(growing(100, 180, 260))
    before = b""
    for number in (1, 2, 3):
        body = session.body(number)
        assert body["max_tokens"] == 9
        text = raw(body)
        assert text.startswith(before[:-1])  # without the end of the array
        del body
        session.answered(number, f"Answer “{number}”.\n", [], counts(100 + 80 * (number - 1)))
        before = text
    messages = msgspec.json.decode(before)
    assert [each["role"] for each in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages[1]["content"] == "Answer “1”.\n"


def test_filler_makes_up_for_what_the_server_counts() -> None:
    session = player(growing(1000, 2000, 3000))
    assert len(decoded(session.body(1))[0]["content"].split()) == 1000
    session.answered(1, "a", [], counts(1100, 50))
    assert len(decoded(session.body(2))[2]["content"].split()) == 2000 - 1100 - 50
    session.answered(2, "a", [], counts(2008, 50))  # eight more than words: a template
    assert len(decoded(session.body(3))[4]["content"].split()) == 3000 - 2008 - 50 - 8


def test_a_turn_grows_without_a_copy_of_the_conversation() -> None:
    conversation = Conversation(PromptScale(), FILLER)
    conversation.fill("user", "", 500)
    buffer = conversation._text
    body = {"messages": conversation.messages()}
    del body
    conversation.add(answer_message("a"), 1)
    conversation.fill("user", "", 900)
    assert conversation._text is buffer
    held = conversation.messages()  # such as the request of a race's loser
    conversation.add(answer_message("b"), 1)
    assert conversation._text is not buffer
    assert len(msgspec.json.decode(held)) == 3


@given(
    st.integers(0, 400),
    st.lists(
        st.sampled_from(["plain words", 'a "quoted\\" word', "é 𝄞 \n x"]), min_size=1, max_size=6
    ),
)
@examples(100)
def test_a_cut_keeps_a_valid_beginning(tokens: int, answers: list[str]) -> None:
    conversation = Conversation(PromptScale(), FILLER)
    conversation.fill("user", "the nonce", 50)
    for number, answer in enumerate(answers, 1):
        conversation.add(answer_message(answer), 10)
        conversation.fill("user", "", 50 + number * 60)
    whole = bytes(conversation.messages())
    conversation.cut(tokens)
    kept = bytes(conversation.messages())
    assert whole.startswith(kept[:-3])
    contents = [each["content"] for each in msgspec.json.decode(kept)]
    assert abs(conversation.tokens - min(tokens, 50 + len(answers) * 60)) <= 60
    for one, other in zip(
        contents[:-1], [each["content"] for each in msgspec.json.decode(whole)], strict=False
    ):
        assert one == other


def test_a_turn_that_keeps_less_begins_with_that_part() -> None:
    turns = [
        *growing(400, 500),
        Turn(input_tokens=450, output_tokens=9, shared_tokens=300, cut=True),
    ]
    session = player(turns)
    texts = []
    for number in (1, 2, 3):
        texts.append(raw(session.body(number)))
        session.answered(number, "answer", [], counts(turns[number - 1].input_tokens))
    common = next(
        at for at, (one, other) in enumerate(zip(texts[1], texts[2], strict=False)) if one != other
    )
    assert 0.7 < common / len(texts[0]) < 0.78
    assert [each["role"] for each in msgspec.json.decode(texts[2])] == ["user", "assistant", "user"]


def test_a_turn_can_follow_an_earlier_one() -> None:
    turns = [
        *growing(100),
        Turn(input_tokens=60, output_tokens=9, cut=True),
        Turn(input_tokens=200, output_tokens=9, shared_tokens=100, follows=1),
    ]
    session = player(turns)
    texts = []
    for number in (1, 2, 3):
        texts.append(raw(session.body(number)))
        session.answered(number, f"answer {number}", [], counts(turns[number - 1].input_tokens))
    assert texts[2].startswith(texts[0][:-1])
    assert b"answer 1" in texts[2]
    assert b"answer 2" not in texts[2]
    assert texts[1][:60] != texts[0][:60]
    assert [each["role"] for each in msgspec.json.decode(texts[1])] == ["user"]


def test_no_two_sessions_begin_alike() -> None:
    bodies = [
        raw(player(growing(50), number=number, condition=condition).body(1))
        for number, condition in itertools.product((0, 1), ("c", "d"))
    ]
    assert len({body[:60] for body in bodies}) == 4


def test_second_session_finds_the_shared_system_prompt() -> None:
    turn = Turn(input_tokens=900, output_tokens=9, shared_tokens=600)
    one, two = (
        player([turn], number=number, shared_prompt="p", shared_tokens=600) for number in (0, 1)
    )
    first, second = decoded(one.body(1)), decoded(two.body(1))
    assert first[0] == second[0]
    assert first[0]["role"] == "system"
    assert len(first[0]["content"].split()) == 600
    assert first[1]["content"][:20] != second[1]["content"][:20]
    assert (one.place(1).reusable_tokens, one.place(1).new_tokens) == (0, 900)
    assert (two.place(1).reusable_tokens, two.place(1).new_tokens) == (600, 300)


def test_places_have_the_lengths_of_the_trace() -> None:
    turns = growing(100, 180, 260)
    session = player(turns)
    session.skip(3)
    session.body(3)
    place = session.place(3)
    assert (place.session, place.turn, place.new_tokens, place.reusable_tokens, place.last) == (
        "c-1.0-s",
        3,
        80,
        180,
        True,
    )
    assert not session.place(2).last


def test_priming_sends_the_prompt_before() -> None:
    session = player(growing(100, 180, 260))
    session.skip(3)
    primed = raw(session.priming_body())
    assert [each["role"] for each in msgspec.json.decode(primed)] == ["user", "assistant", "user"]
    session.primed(counts(185))
    assert raw(session.body(3)).startswith(primed[:-1])


CALL = {"id": "recorded", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
TEXTS = [
    Turn(
        input_tokens=9,
        output_tokens=4,
        messages='{"role":"user","content":"List."}',
        answer=msgspec.json.encode({"role": "assistant", "tool_calls": [CALL]}).decode(),
    ),
    Turn(
        input_tokens=19,
        shared_tokens=9,
        messages='{"role":"tool","tool_call_id":"recorded","content":"a b"}',
    ),
]
TOOLS = '[{"type":"function","function":{"name":"ls","description":"Lists."}}]'


def test_tool_results_belong_to_the_calls_of_the_server() -> None:
    session = player(TEXTS, tools=TOOLS)
    first = session.body(1)
    (tool,) = msgspec.json.decode(first["tools"])
    assert tool["function"]["description"].endswith(".\nLists.")
    assert tool["function"]["description"] != ".\nLists."
    del first
    calls = [CALL | {"id": "own1"}, CALL | {"id": "own2"}]
    session.answered(1, "", calls, counts(12))
    body = session.body(2)
    assert body["max_tokens"] == 77
    assert decoded(body)[1:] == [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "own1", "content": "a b"},
        {"role": "tool", "tool_call_id": "own2", "content": "done"},
    ]
    assert session.place(2).reusable_tokens == 12  # as the server counted


def test_tool_results_without_a_call_come_from_the_user() -> None:
    session = player(TEXTS)
    session.body(1)
    session.answered(1, "No tool.", [], counts(12))
    assert decoded(session.body(2))[2] == {"role": "user", "content": "a b"}


@pytest.mark.parametrize("skipped", [False, True])
def test_recorded_answers_are_sent_as_they_are(skipped: bool) -> None:
    session = player(TEXTS, answers="server" if skipped else "recorded")
    if skipped:
        session.skip(2)
    else:
        session.body(1)
        session.answered(1, "other", [], counts(12))
    messages = decoded(session.body(2))
    assert messages[1]["tool_calls"] == [CALL]
    assert messages[2] == {"role": "tool", "tool_call_id": "recorded", "content": "a b"}
