"""What is known of the length of the next answer."""

from splitsecond.core.upstream.answer_lengths import LIKE_BEFORE, AnswerLengths


def test_full_length_is_expected_after_several_full_responses() -> None:
    lengths = AnswerLengths()
    for _ in range(LIKE_BEFORE):
        assert lengths.expected(100) is None
        lengths.record(50, 49)
    assert lengths.expected(100) == 98
    assert lengths.expected(None) is None
    lengths.record(None, 1)
    assert lengths.expected(100) == 98
    lengths.record(100, 97)
    assert lengths.expected(100) is None
