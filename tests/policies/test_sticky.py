"""`sticky`: a conversation stays at one branch, and returns to it."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.cases import each_case
from tests.policies.branches import ask, play
from tests.policies.test_fastest import Down

from splitsecond.core.service import Call
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.sticky import Sticky, conversation, sticky
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

NAMES = ["a/x", "b/x", "c/x"]
POLICY = 'sticky("a/x", "b/x", "c/x", ttl="10m")'
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
HELLO = {"role": "user", "content": "Hello, who are you?"}
ANSWER = {"role": "assistant", "content": "I am a model."}
MORE = {"role": "user", "content": "Tell me more."}


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def chat(*messages: dict[str, Any], client: str = "me", **fields: Any) -> Call:
    body = {"messages": list(messages), **fields}
    return Call(id="c", client=client, body={name: raw(value) for name, value in body.items()})


def about(topic: int, turns: int = 1) -> Call:
    return chat(
        SYSTEM, {"role": "user", "content": f"topic {topic}"}, *[ANSWER, MORE] * (turns - 1)
    )


FIRST = chat(SYSTEM, HELLO)


@each_case(
    ("same", "call"),
    [
        (True, chat(SYSTEM, HELLO, ANSWER, MORE)),
        (True, chat(SYSTEM, HELLO, temperature=1, max_tokens=5, stream=True)),
        (True, Call(id="other", client="me", body={"messages": [SYSTEM, HELLO, ANSWER, MORE]})),
        (False, chat(SYSTEM, HELLO, client="you")),
        (False, chat(SYSTEM, MORE)),
        (False, chat({**SYSTEM, "content": "You are rude."}, HELLO)),
        (False, chat(HELLO)),
        (False, chat(SYSTEM, HELLO, tools=[{"type": "function"}])),
        (False, chat(SYSTEM, HELLO, prompt_cache_key="mine")),
    ],
)
def test_calls_with_the_same_beginning_are_one_conversation(same: bool, call: Call) -> None:
    assert (conversation(call) == conversation(FIRST)) is same


@pytest.mark.parametrize("word", ["prompt_cache_key", "user"])
def test_client_key_determines_the_conversation(word: str) -> None:
    one, other = chat(SYSTEM, HELLO, **{word: "w"}), chat(MORE, **{word: "w"})
    assert conversation(one) == conversation(other) != conversation(chat(MORE, **{word: "v"}))


def test_the_cache_key_takes_precedence_over_the_user() -> None:
    one = chat(HELLO, user="u", prompt_cache_key="k")
    assert conversation(one) == conversation(chat(MORE, user="v", prompt_cache_key="k"))


@pytest.mark.parametrize(
    ("body", "longer"),
    [
        ({"prompt": "x" * 2000}, {"prompt": "x" * 3000}),
        ({"input": "x" * 2000}, {"input": "x" * 2000 + "y"}),
        (
            {"instructions": "be", "input": [HELLO]},
            {"instructions": "be", "input": [HELLO, ANSWER, MORE]},
        ),
        ({"system": "be", "messages": [HELLO]}, {"system": "be", "messages": [HELLO, ANSWER]}),
        (
            {"input": [{"type": "message", **HELLO}]},
            {"input": [{"type": "message", **HELLO}, ANSWER]},
        ),
    ],
)
def test_conversations_in_other_api_formats_have_a_beginning(
    body: dict[str, Any], longer: dict[str, Any]
) -> None:
    calls = [
        Call(id="c", body={name: raw(value) for name, value in fields.items()})
        for fields in (body, longer)
    ]
    assert conversation(calls[0]) == conversation(calls[1]) is not None


def test_calls_without_a_beginning_have_no_conversation() -> None:
    assert conversation(Call(id="c", body={})) is None
    assert (
        conversation(Call(id="c", operation="embeddings", body={"input": raw("some text")})) is None
    )


@given(
    st.dictionaries(
        st.sampled_from(["messages", "input", "prompt", "tools", "user", "system"]), st.binary()
    )
)
def test_any_bytes_give_a_conversation_key_or_none(fields: dict[str, bytes]) -> None:
    key = conversation(Call(id="c", body={name: Raw(data) for name, data in fields.items()}))
    assert key is None or len(key) == 16


class FakeStates(TargetStates):
    """Target states in which the test decides which targets are down."""

    def __init__(self) -> None:
        super().__init__()
        self.down: set[str] = set()

    def available(self, target: str, client: str | None = None) -> bool:
        return target not in self.down


class Site:
    """Three targets, behind one worker process or several."""

    def __init__(self) -> None:
        self.states = FakeStates()
        self.fakes = {
            name: FakeService(script=lambda call: Script(), target=name) for name in NAMES
        }

    def worker(self) -> Sticky:
        service = build(parse(POLICY), self.fakes.__getitem__, self.states)
        assert isinstance(service, Sticky)
        return service

    async def home(self, service: Sticky, call: Call) -> str:
        before = {name: len(fake.calls) for name, fake in self.fakes.items()}
        assert (await ask(service, call)).fault is None
        return next(name for name, fake in self.fakes.items() if len(fake.calls) > before[name])


def test_conversation_stays_at_one_branch_in_all_workers() -> None:
    site = Site()

    async def main() -> None:
        one, other = site.worker(), site.worker()
        homes = {topic: await site.home(one, about(topic)) for topic in range(60)}
        for topic, home in homes.items():
            assert await site.home(one, about(topic, turns=3)) == home
            assert await site.home(other, about(topic, turns=2)) == home
        assert min(Counter(homes.values()).values()) >= 10  # of 60 in three

    play(main, list(site.fakes.values()))


def test_conversation_moves_while_its_branch_is_down() -> None:
    site = Site()

    async def main() -> None:
        service = site.worker()
        homes = {topic: await site.home(service, about(topic)) for topic in range(30)}
        site.states.down = {"a/x"}
        away = {topic: await site.home(service, about(topic, 2)) for topic in range(30)}
        assert all((away[topic] == home) is (home != "a/x") for topic, home in homes.items())
        assert {away[topic] for topic, home in homes.items() if home == "a/x"} == {"b/x", "c/x"}
        site.states.down = set()
        assert {topic: await site.home(service, about(topic, 3)) for topic in range(30)} == homes

    play(main, list(site.fakes.values()))


def test_moved_conversation_stays_while_it_is_used() -> None:
    site = Site()

    async def main() -> None:
        service = site.worker()
        by_hash = await site.home(site.worker(), FIRST)
        site.states.down = {by_hash}
        home = await site.home(service, FIRST)
        assert home != by_hash
        site.states.down = set()
        for _ in range(4):
            await asyncio.sleep(9 * 60)
            assert await site.home(service, FIRST) == home
        await asyncio.sleep(11 * 60)
        assert await site.home(service, FIRST) == by_hash

    play(main, list(site.fakes.values()))


def test_number_of_remembered_conversations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitsecond.routing.policies.sticky.REMEMBERED", 50)
    site = Site()

    async def main() -> None:
        service = site.worker()
        for number in range(60):
            async with await service(chat(HELLO, user=str(number))) as reply:
                await reply.finished()
        assert len(service._homes) == 50

    play(main)


def test_the_next_branch_by_hash_is_asked_if_nothing_was_sent() -> None:
    down, well = Down(), FakeService(script=lambda call: Script())

    async def main() -> None:
        service = sticky(down, well)
        for number in range(20):
            assert (await ask(service, about(number))).fault is None
        before = down.asked
        assert before > 1
        for number in range(20):
            assert (await ask(service, about(number))).fault is None
        assert down.asked == before  # a conversation that moved stays there

    play(main, [well])


def test_notes_name_the_branch_and_why() -> None:
    site = Site()

    async def main() -> None:
        service, call, again = site.worker(), chat(SYSTEM, HELLO), chat(SYSTEM, HELLO)
        home = await site.home(service, call)
        await site.home(service, again)
        assert call.notes.chosen == f"sticky: {home}"
        assert again.notes.chosen == f"sticky: {home}, where the conversation is"

    play(main)
