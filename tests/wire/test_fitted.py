"""Values that do not fit are left out of an answer if they are not needed, and only a limited
number of them."""

import msgspec
import pytest

from splitsecond.core.wire import streaming
from splitsecond.core.wire.openai.shapes import Chunk
from splitsecond.core.wire.streaming import MAX_ODD, fitted, repair_json

CHUNK = msgspec.json.Decoder(Chunk)


def test_values_that_do_not_fit_are_left_out_and_named() -> None:
    data = (
        b'{"choices":[{"index":"0","delta":{"content":"a","reasoning":{},"tool_calls":[null,'
        b'{"id":[]}]}}]}'
    )
    chunk, odd = fitted(data, CHUNK)
    assert chunk.choices is not None
    (choice,) = chunk.choices
    assert (choice.index, choice.delta and choice.delta.content) == (0, "a")
    assert sorted(odd) == ["id", "index", "reasoning", "tool_calls"]


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices":5}',
        b'{"choices":[{"delta":{"content":5}}]}',
        b'{"choices":[{"delta":"a"}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":5}}]}}]}',
        b"[]",
        b'{"choices":',
    ],
)
def test_what_holds_the_answer_is_never_left_out(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expected|truncated"):
        fitted(data, CHUNK)


def test_the_number_of_values_that_are_left_out_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def data(odd: int) -> bytes:
        return b'{"choices":[%b]}' % b",".join([b'{"index":"0","delta":{"content":"a"}}'] * odd)

    assert len(fitted(data(MAX_ODD), CHUNK)[1]) == MAX_ODD
    with pytest.raises(ValueError, match="index"):
        fitted(data(MAX_ODD + 1), CHUNK)
    monkeypatch.setattr(streaming, "MAX_READ_AGAIN", 100)
    with pytest.raises(ValueError, match="index"):
        fitted(data(5), CHUNK)


def test_half_a_surrogate_pair_waits_only_in_a_stream() -> None:
    assert repair_json(b'"a\\ud83d"') == b'"a?"'
    halves: dict[tuple[object, ...], str] = {}
    assert repair_json(b'{"t":"a\\ud83d"}', halves) == b'{"t": "a"}'
    assert repair_json(b'{"t":"\\ude00b"}', halves) == '{"t": "\U0001f600b"}'.encode()
    assert halves == {}
    assert repair_json(b'{"t":"\\ude00"}', halves) == b'{"t": "?"}'
