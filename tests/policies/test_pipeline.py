"""`pipeline`: which model answers, and when; the marker is never shown."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import each_case
from tests.policies.branches import SILENT, a_call, fails, play, scripted, status
from tests.policies.test_cascade import chat, read_all, shown

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import AllFailed, CallerFault, ProviderFault
from splitsecond.core.events import Broken, Token
from splitsecond.core.service import Call
from splitsecond.routing.policies.pipeline import INSTRUCTION, MARKER, EarlyStart, pipeline
from splitsecond.testing.fake_service import Script

SLOW = Script(ttft=1.0, tokens=1, texts=("slow",))


def says(*texts: str, ttft: float = 0.1) -> Script:
    return Script(ttft=ttft, tokens=len(texts), texts=texts, tps=10)


PASSES = [
    (MARKER,),
    ("[[", "ESC", "ALATE]]"),
    ("\n", "**[[ESCALATE]]**"),
    ("ESCALATE",),
    ("[", "ESCALATE", "]"),
    (" ",),
]
ANSWERS = [("It is.",), ("[", "1, 2]"), ("E", "ven so"), ("[[", "ESCAPE]]"), ("E",)]


@each_case("texts", PASSES)
def test_escalation_of_the_fast_model_is_not_shown(texts: tuple[str, ...]) -> None:
    fast, slow = scripted(says(*texts), target="fast/x"), scripted(SLOW, target="slow/x")

    async def main() -> None:
        call = chat()
        assert await shown(pipeline(fast, slow), call) == ("slow/x", "slow")
        assert slow.calls[0].call is call
        assert call.notes.chosen == "pipeline: slow, as fast was not sure"

    play(main, [fast, slow])


@pytest.mark.parametrize("texts", ANSWERS)
def test_response_passes_once_it_cannot_be_the_marker(texts: tuple[str, ...]) -> None:
    fast, slow = scripted(says(*texts)), scripted(SLOW)

    async def main() -> None:
        began_ns, call = clock.now_ns(), chat()
        async with await pipeline(fast, slow)(call) as reply:
            assert (clock.now_ns() - began_ns) / NS_PER_MS == pytest.approx(100 * len(texts))
            assert "".join(
                [event.text async for event in reply if isinstance(event, Token)]
            ) == "".join(texts)
        assert not slow.calls
        assert call.notes.chosen == "pipeline: fast, which was sure"

    play(main, [fast, slow])


def test_the_instruction_is_in_the_system_message() -> None:
    fast, slow = scripted(says("x")), scripted(SLOW)

    async def main() -> None:
        said: list[object] = [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hi"},
        ]
        for first in (
            said[:1],
            [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}],
            [],
        ):
            body = {"messages": Raw(msgspec.json.encode([*first, said[1]])), "own": Raw(b"1")}
            await shown(pipeline(fast, slow), msgspec.structs.replace(chat(), body=body))
        sent = [msgspec.json.decode(fake.call.body["messages"]) for fake in fast.calls]
        assert all(messages[0]["role"] == "system" and messages[1] == said[1] for messages in sent)
        assert [messages[0]["content"] for messages in sent] == [
            f"Be kind.\n\n{INSTRUCTION}",
            [{"type": "text", "text": "Be kind."}, {"type": "text", "text": INSTRUCTION}],
            INSTRUCTION,
        ]
        assert fast.calls[0].call.body["own"] == Raw(b"1")

    play(main, [fast, slow])


@each_case(
    "texts",
    [("I think. ", MARKER), ("I ", "think. [", "[ESCALATE", "]] so"), ("a", "b[[ESCALATE]]c")],
)
@each_case("watched", [False, True])
def test_marker_in_the_middle_breaks_the_response(texts: tuple[str, ...], watched: bool) -> None:
    fast, slow = scripted(says(*texts, "after")), scripted(SLOW)

    async def main() -> None:
        async with await pipeline(fast, slow)(
            msgspec.structs.replace(chat(), watched=watched)
        ) as reply:
            parts: list[bytes] = []
            with pytest.raises(ProviderFault, match="not sure in the middle"):
                await read_all(reply, parts)
            if watched:
                events = reply.arrived()
                assert isinstance(events[-1], Broken)
                assert not any("[[" in event.text for event in events if isinstance(event, Token))
        assert parts
        assert b"[[" not in b"".join(parts)

    play(main, [fast, slow])


def test_text_is_held_back_only_while_it_may_become_the_marker() -> None:
    fast, slow = scripted(says("a ", "[[", "ESC", " key")), scripted(SLOW)

    async def main() -> None:
        assert (await shown(pipeline(fast, slow), chat()))[1] == "a [[ESC key"

    play(main, [fast, slow])


@pytest.mark.parametrize(
    "fields",
    [
        {"n": Raw(b"2")},
        {"response_format": Raw(b'{"type":"json_object"}')},
        {"tool_choice": Raw(b'"required"')},
        {"messages": Raw(b"{}")},
        {"messages": Raw(b'["x"]')},
    ],
)
def test_requests_that_rule_out_the_marker_use_the_slow_model(fields: dict[str, Any]) -> None:
    fast, slow = scripted(says("x")), scripted(SLOW, target="slow/x")

    async def main() -> None:
        assert await shown(pipeline(fast, slow), chat(**fields)) == ("slow/x", "slow")
        assert not fast.calls

    play(main, [fast, slow])


EARLY = [
    # early, what fast does, who answers, after how many ms, and how many calls slow got
    (None, says(MARKER, ttft=0.5), "slow", 1500, 1),
    ("200ms", says("fast", ttft=0.1), "fast", 100, 0),
    ("200ms", says("fast", ttft=0.5), "fast", 500, 1),
    ("200ms", says(MARKER, ttft=0.5), "slow", 1200, 1),
    ("200ms", says("fast", ttft=2), "slow", 1200, 1),
    ("200ms", says(MARKER, ttft=0.1), "slow", 1100, 1),
    (True, says("fast", ttft=0.5), "fast", 500, 1),
    (True, says(MARKER, ttft=0.5), "slow", 1000, 1),
    ("200ms", SILENT, "slow", 1200, 1),
    (None, fails(status(503), 0.1), "slow", 1100, 1),
]


@each_case(("early", "script", "answers", "after_ms", "asked"), EARLY)
def test_early_starts_the_slow_model_before_the_fast_one_decides(
    early: str | bool | None, script: Script, answers: str, after_ms: int, asked: int
) -> None:
    fast, slow = scripted(script, target="fast"), scripted(SLOW, target="slow")

    async def main() -> None:
        began_ns = clock.now_ns()
        async with await pipeline(fast, slow, early=early)(chat()) as reply:
            assert (clock.now_ns() - began_ns) / NS_PER_MS == pytest.approx(after_ms)
            assert reply.target == answers
            assert fast.left_open + slow.left_open == 1  # the other is closed already
            await reply.finished()
        assert len(slow.calls) == asked

    play(main, [fast, slow])


def test_failures_and_timeouts_of_both_models_are_listed() -> None:
    fast, slow = scripted(says(MARKER), SILENT), scripted(fails(status(503)))

    async def main() -> None:
        with pytest.raises(AllFailed) as failed:
            await pipeline(fast, slow)(chat())
        assert [cause.kind for cause in failed.value.causes] == ["unsure", "http_503"]
        late: Call = msgspec.structs.replace(chat(), deadline_ns=a_call(within_ms=500).deadline_ns)
        with pytest.raises(AllFailed) as failed:
            await pipeline(fast, slow)(late)
        assert [cause.phase for cause in failed.value.causes] == ["total", "total"]
        assert len(slow.calls) == 1

    play(main, [fast, slow])


def test_early_is_true_or_a_duration() -> None:
    assert [EarlyStart.parse("early", value).ns for value in (True, "2ms")] == [0, 2 * NS_PER_MS]
    for wrong in (False, 1, "soon"):
        with pytest.raises(CallerFault, match="early is"):
            EarlyStart.parse("early", wrong)
