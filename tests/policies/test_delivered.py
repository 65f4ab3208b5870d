"""Comparison of the delivered text with its replay by another target, by content and not by
events."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.events import Done, Event, Finish, Quiet, Token, ToolPart, Usage
from splitsecond.routing.machinery.replies.delivered import (
    MAX_WAITING,
    DeliveredText,
    ReplayDiff,
    ReplayMismatch,
)

DONE = Done(0, marker=True)
SIGNED, OTHER = Quiet(0, "signature", "of one"), Quiet(0, "signature", "of another")


def text(*parts: str, index: int = 0) -> list[Event]:
    return [Token(0, part, index=index) for part in parts]


def thought(*parts: str) -> list[Event]:
    return [Token(0, part, "reasoning") for part in parts]


def tool(name: str, *arguments: str, number: int = 0, call_id: str = "c") -> list[Event]:
    begun = Token(0, name, "tool", tool=ToolPart(number, call_id, name))
    return [begun, *(Token(0, part, "tool", tool=ToolPart(number)) for part in arguments)]


def ended(reason: str = "stop", index: int = 0) -> list[Event]:
    return [Finish(0, reason, index), DONE]


def replayed(had: Sequence[Event], again: Sequence[Event]) -> list[Event]:
    delivered_text = DeliveredText()
    delivered_text.add(list(had))
    diff = ReplayDiff(delivered_text)
    new = [event for each in again for event in diff.take([each])]
    diff.finish()
    return new


AGAIN: list[tuple[list[Event], list[Event], list[Event]]] = [
    (text("ab"), [*text("ab", "c"), *ended()], [*text("c"), *ended()]),
    (text("ab"), [*text("a", "bc"), *ended()], [*text("c"), *ended()]),
    (text("ab"), [Quiet(0), *text("abc"), *ended()], [*text("c"), *ended()]),
    (text("ab"), [*text("ab"), *ended()], ended()),
    (text("aé"), [*text("aéx"), *ended()], [*text("x"), *ended()]),
    ([], [*text("ab"), *ended()], [*text("ab"), *ended()]),
    (thought("a"), [*thought("ab"), *text("c"), *ended()], [*thought("b"), *text("c"), *ended()]),
    ([*thought("a"), *text("b")], [*thought("a"), *text("bc"), *ended()], [*text("c"), *ended()]),
    ([*text("ab"), Finish(0, "stop")], [*text("ab"), *ended("length")], [DONE]),
    (
        [*text("a"), Usage(0, 1, 2)],
        [*text("ab"), Usage(0, 5, 6), DONE],
        [*text("b"), Usage(0, 5, 6), DONE],
    ),
    (
        [*text("a"), Finish(0, "stop"), Usage(0, 1, 2)],
        [*text("a"), *ended()[:1], Usage(0, 5, 6), DONE],
        [DONE],
    ),
    ([*thought("a"), SIGNED], [*thought("a"), OTHER, *text("b"), DONE], [*text("b"), DONE]),
    (
        [*thought("a"), SIGNED, *text("b")],
        [*thought("a"), OTHER, *text("bc"), DONE],
        [*text("c"), DONE],
    ),
    (thought("a"), [*thought("a"), OTHER, DONE], [OTHER, DONE]),
    (
        [*thought("a"), SIGNED],
        [*thought("a"), *text("b"), *thought("c"), OTHER, DONE],
        [*text("b"), *thought("c"), OTHER, DONE],
    ),
    (
        text("a"),
        [*text("ab"), Usage(0, 1, 1), Usage(0, 5, 6), DONE],
        [*text("b"), Usage(0, 5, 6), DONE],
    ),
    (
        tool("f", '{"a'),
        [*tool("f", '{"a":1}', call_id="d"), *ended()],
        [Token(0, '":1}', "tool", tool=ToolPart(0)), *ended()],
    ),
    (
        tool("f", "{}"),
        [*tool("f", "{}"), *tool("g", "{}", number=1), *ended()],
        [*tool("g", "{}", number=1), *ended()],
    ),
    (
        [*text("a"), *text("x", index=1)],
        [*text("ab"), *text("xy", index=1), DONE],
        [*text("b"), *text("y", index=1), DONE],
    ),
]


@each_case(("had", "again", "new"), AGAIN)
def test_replay_gives_only_new_events(
    had: list[Event], again: list[Event], new: list[Event]
) -> None:
    assert replayed(had, again) == new


DIFFERENT: list[tuple[list[Event], list[Event], str]] = [
    (text("ab"), text("ax"), "after 0 characters of text"),
    (text("ab"), text("a", "x"), "after 1 characters of text"),
    (text("ab"), [*text("a"), *ended()], "it ends earlier"),
    (text("ab"), text("a"), "it ends earlier"),
    (text("ab"), thought("ab"), "reasoning instead of text"),
    ([*thought("a"), *text("b")], [*thought("aa"), *text("b")], "after 0 characters of reasoning"),
    (
        [*thought("a"), *text("b")],
        [*thought("a", "a"), *text("b")],
        "after 1 characters of reasoning",
    ),
    ([*text("a"), Finish(0, "stop")], text("ab"), "it continues after the end of the first answer"),
    ([*thought("a"), SIGNED], thought("ab"), "it continues reasoning that was already signed"),
    (tool("f", "{}"), tool("g", "{}"), "it calls another tool"),
    (tool("f", "x"), tool("fx", ""), "it calls another tool"),
    (tool("f", "x"), tool("f", "x", number=1), "tool instead of tool"),
    ([*text("a"), *text("x", index=1)], text("a" * MAX_WAITING, "bc"), "far behind another"),
]


@each_case(("had", "again", "words"), DIFFERENT)
def test_replay_of_a_different_response_raises(
    had: list[Event], again: list[Event], words: str
) -> None:
    with pytest.raises(ReplayMismatch, match=words):
        replayed(had, again)


def test_new_text_waits_until_all_choices_have_caught_up() -> None:
    delivered_text = DeliveredText()
    delivered_text.add([*text("a"), *text("xy", index=1)])
    diff = ReplayDiff(delivered_text)
    assert diff.take([*text("ab"), *text("x", index=1)]) == []
    assert diff.take(text("yz", index=1)) == [*text("b"), *text("z", index=1)]


@given(st.text(max_size=12), st.data())
def test_any_cut_of_the_same_text_is_completed(whole: str, data: st.DataObject) -> None:
    had = whole[: data.draw(st.integers(0, len(whole)))]
    new = replayed(text(*pieces(had, data)), [*text(*pieces(whole, data)), *ended()])
    assert had + "".join(event.text for event in new if isinstance(event, Token)) == whole
    assert new[-2:] == ended()


@given(st.text("ab", max_size=8), st.text("ab", max_size=8), st.data())
def test_other_text_continues_only_from_the_delivered_text(
    had: str, other: str, data: st.DataObject
) -> None:
    try:
        new = replayed(text(*pieces(had, data)), [*text(*pieces(other, data)), *ended()])
    except ReplayMismatch:
        assert not other.startswith(had)
    else:
        assert had + "".join(event.text for event in new if isinstance(event, Token)) == other


def pieces(whole: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(whole) - 1, 1)))))
    return [
        part for part in map(whole.__getitem__, map(slice, [0, *cuts], [*cuts, len(whole)])) if part
    ]


def test_only_text_without_log_probabilities_is_comparable() -> None:
    def delivered_text(*events: Event) -> DeliveredText:
        had = DeliveredText()
        had.add(list(events))
        return had

    assert delivered_text().is_empty
    assert delivered_text(*text("a")).comparable
    assert not delivered_text(Token(0, "UklGRg==", "audio")).comparable
    assert not delivered_text(Token(0, "print()", "tool")).comparable
    assert not delivered_text(Token(0, "a", logprobs=(-0.1,))).comparable
