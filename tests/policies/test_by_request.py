"""Policies that decide by the request alone: by_complexity, by_task and cap."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.cases import each_case
from tests.policies.branches import a_call, play, scripted

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Service
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.by_complexity import LEVELS, by_complexity, complexity
from splitsecond.routing.policies.by_task import by_task
from splitsecond.routing.policies.cap import cap
from splitsecond.testing.fake_service import FakeService, Script


def asks(
    text: Any = "Hi", *, turns: int = 1, hints: dict[str, str] | None = None, **more: object
) -> Call:
    said = [
        {"role": "user" if turn % 2 == 0 else "assistant", "content": text} for turn in range(turns)
    ]
    body = {
        name: Raw(msgspec.json.encode(value)) for name, value in {"messages": said, **more}.items()
    }
    return msgspec.structs.replace(a_call(), body=body, hints=hints or {})


def picture(text: str) -> list[dict[str, object]]:
    return [
        {"type": "text", "text": text},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    ]


JUDGED: list[tuple[Call, str]] = [
    (asks("Hi"), "simple"),
    (asks("What is the capital of France?"), "simple"),
    (asks("Translate to German: good morning."), "simple"),
    (asks(picture("What is this?")), "simple"),
    (asks("Hi", response_format={"type": "json_object"}), "simple"),
    (asks("Why is the sky blue?", max_tokens=20), "simple"),
    (asks("Fix this:\n```py\nprint(1\n```"), "medium"),
    (asks("Hi", tools=[{"type": "function"}]), "medium"),
    (asks("word " * 1000), "medium"),
    (asks("Hi", reasoning_effort="medium"), "medium"),
    (asks("Compare and evaluate both."), "medium"),
    (asks("Write a poem.", turns=11, max_tokens=4000), "medium"),
    (asks("Prove the theorem, then derive the integral."), "complex"),
    (asks("Review this algorithm:\n```py\nx\n```"), "complex"),
    (asks("word " * 6000), "complex"),
    (asks("x" * 3_000_000), "complex"),
    (asks("Hi", reasoning_effort="high"), "complex"),
    (asks(r"Is $\int_0^1 x dx$ right? Explain, justify."), "complex"),
]


@each_case(("call", "level"), JUDGED)
def test_complexity(call: Call, level: str) -> None:
    assert complexity(call)[0] == level, complexity(call)


@given(
    st.binary(max_size=200)
    | st.sampled_from([b"[1]", b'["x"]', b'[{"role":5}]', b'[{"content":[{"text":[]}]}]'])
)
def test_messages_of_any_form_have_a_complexity(messages: bytes) -> None:
    call = msgspec.structs.replace(
        a_call(), body={"messages": Raw(messages), "max_tokens": Raw(messages)}
    )
    assert complexity(call)[0] in LEVELS


def test_a_completion_is_judged_by_its_prompt() -> None:
    body = {"prompt": Raw(b'"Prove the lemma and derive the equation."')}
    call = msgspec.structs.replace(a_call(), operation="completions", body=body)
    assert complexity(call)[0] == "complex"


async def answered_by(service: Service, call: Call) -> str:
    async with await service(call) as reply:
        await reply.finished()
        return reply.target


def built(text: str) -> tuple[Service, list[FakeService]]:
    fakes: list[FakeService] = []

    def target(name: str) -> FakeService:
        fakes.append(scripted(Script(tokens=1), target=name))
        return fakes[-1]

    return build(parse(text), target), fakes


EASY, HARD = "Hi", "Prove the theorem, then derive the integral."
MIDDLE = "Compare and evaluate both."
STANDING_IN = [
    ('by_complexity(simple="s", medium="m", complex="c")', "smc"),
    ('by_complexity(simple="s", complex="c")', "scc"),
    ('by_complexity(medium="m", complex="c")', "mmc"),
    ('by_complexity(simple="s", medium="m")', "smm"),
    ('by_complexity(simple="s")', "sss"),
    ('by_complexity(complex="c")', "ccc"),
]


@each_case(("text", "expected"), STANDING_IN)
def test_the_next_stronger_branch_replaces_a_missing_one(text: str, expected: str) -> None:
    service, fakes = built(text)

    async def main() -> None:
        found = [await answered_by(service, asks(question)) for question in (EASY, MIDDLE, HARD)]
        assert "".join(found) == expected
        for level, target in zip(LEVELS, expected, strict=True):
            call = asks(EASY, hints={"complexity": level})
            assert await answered_by(service, call) == target
            assert call.notes.chosen == f"by_complexity: {level} (the client says so)"

    play(main, fakes)


def test_a_wrong_complexity_is_refused() -> None:
    service, fakes = built('by_complexity(simple="s")')

    async def main() -> None:
        with pytest.raises(CallerFault, match="simple, medium, complex"):
            await service(asks(hints={"complexity": "hard"}))

    play(main, fakes)


def test_hint_task_chooses_the_branch() -> None:
    service, fakes = built('by_task(code="c", chat=race("a", "b"), default="d")')
    strict, others = built('by_task(code="c", chat="a")')

    async def main() -> None:
        for task, target in (("code", "c"), ("other", "d"), ("", "d"), ("default", "d")):
            call = asks(hints={"task": task} if task else {})
            assert await answered_by(service, call) == target
            assert call.notes.chosen.startswith("by_task: ")
        for hints in ({}, {"task": "other"}):
            with pytest.raises(CallerFault) as refused:
                await strict(asks(hints=hints))
            assert "code, chat" in refused.value.hint
        with pytest.raises(CallerFault):
            await strict(asks(hints={"task": "x" * 10_000}))
        assert len(str(refused.value)) < 300

    play(main, [*fakes, *others])


CAPPED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"max_tokens": 100}),
    ({"max_tokens": Raw(b"null")}, {"max_tokens": 100}),
    ({"max_tokens": Raw(b"50")}, {"max_tokens": 50}),
    ({"max_tokens": Raw(b"500")}, {"max_tokens": 100}),
    ({"max_tokens": 500}, {"max_tokens": 100}),
    ({"max_completion_tokens": Raw(b"500")}, {"max_completion_tokens": 100, "max_tokens": None}),
    ({"max_completion_tokens": Raw(b"50")}, {"max_completion_tokens": 50, "max_tokens": None}),
    (
        {"max_tokens": 50, "max_completion_tokens": 500},
        {"max_tokens": 50, "max_completion_tokens": 100},
    ),
    (
        {"generationConfig": Raw(b'{"topK":3,"maxOutputTokens":900}'), "num_predict": 50},
        {
            "generationConfig": {"topK": 3, "maxOutputTokens": 100},
            "num_predict": 50,
            "max_tokens": 100,
        },
    ),
    ({"options": {"num_predict": -1}}, {"options": {"num_predict": 100}}),
    ({"max_output_tokens": 5000}, {"max_tokens": 100, "max_output_tokens": 100}),
]


@each_case(("fields", "expected"), CAPPED)
def test_cap_limits_the_output_tokens_of_a_request(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    fake = scripted(Script(tokens=1))

    async def main() -> None:
        call = msgspec.structs.replace(a_call(), body={"messages": Raw(b"[]"), **fields})
        await answered_by(cap(fake, max_tokens=100), call)
        body = fake.calls[0].call.body
        assert {name: _plain(body.get(name)) for name in expected} == expected
        assert body["messages"] == Raw(b"[]")
        # the original call is unchanged
        assert dict(call.body) == {"messages": Raw(b"[]"), **fields}

    play(main, [fake])


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


def test_cap_refuses_an_invalid_limit_and_ignores_embeddings() -> None:
    fake = scripted(Script(tokens=1))

    async def main() -> None:
        service = cap(fake, max_tokens=100)
        for wrong in (Raw(b'"many"'), Raw(b"1.5"), "many"):
            with pytest.raises(CallerFault, match="max_tokens is wrong"):
                await service(msgspec.structs.replace(a_call(), body={"max_tokens": wrong}))
        await answered_by(service, msgspec.structs.replace(a_call(), operation="embeddings"))
        assert dict(fake.calls[0].call.body) == {}

    play(main, [fake])


@pytest.mark.parametrize(
    "make", [lambda: by_task(), lambda: by_complexity(), lambda: by_complexity(easy=FakeService())]
)
def test_missing_or_wrong_branches_are_refused(make: Any) -> None:
    with pytest.raises(CallerFault):
        make()


WRONG = [
    ("by_task()", "by_task has no branches"),
    ("by_complexity()", "by_complexity has no branches"),
    ('by_complexity("a/x")', "expected none without a name"),
    ('by_complexity(easy="a/x")', "has no setting easy"),
    ('cap("a/x")', "cap needs max_tokens"),
    ('cascade("a/x", "b/x", accept="good")', 'accept is "good"'),
    ('cache("a/x", size="1")', 'size is "1"'),
]


@each_case(("text", "message"), WRONG)
def test_wrong_expressions_are_refused(text: str, message: str) -> None:
    with pytest.raises(CallerFault, match=message):
        parse(text)
