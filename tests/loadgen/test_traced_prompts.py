"""Prompts of a trace: as long as recorded, and equal exactly as far as their blocks are."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.benchmark.load.calibration import calibrate
from splitsecond.benchmark.workload.traced_prompts import PromptScale, TracedPrompts
from splitsecond.benchmark.workload.traces import BLOCK_TOKENS, TracedRequest, read_trace
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core.service import Call
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

EXCERPTS = Path(__file__).parents[2] / "docs/traces"


def shared(one: list[str], two: list[str]) -> int:
    """Return how many words two prompts have in common at their beginning."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b),
        min(len(one), len(two)),
    )


@given(
    st.floats(0, 900),
    st.floats(0.5, 3),
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 3 * BLOCK_TOKENS)),
        min_size=2,
        max_size=4,
    ),
)
def test_prompts_share_text_exactly_where_blocks_are_equal(
    fixed: float, per_word: float, asked: list[tuple[int, int, int]]
) -> None:
    """Each prompt has ids 0, 1, … of a common beginning, then some of its own, and then words
    without an id."""
    scale = PromptScale(fixed, per_word)
    made = TracedPrompts("run/c", 0, scale, 20 * BLOCK_TOKENS)
    texts, ids = [], []
    for number, (common, own, more) in enumerate(asked):
        ids.append([*range(common), *(100 * (number + 1) + at for at in range(own))])
        tokens = BLOCK_TOKENS * len(ids[-1]) + more
        texts.append(made.text(f"call {number}", TracedRequest(0, tokens, 1, ids[-1])).split())
        assert len(texts[-1]) == scale.words(tokens)
    for (one, two), (a, b) in zip(combinations(texts, 2), combinations(ids, 2), strict=True):
        blocks = shared(list(map(str, a)), list(map(str, b)))
        equal = scale.words(BLOCK_TOKENS * blocks) if blocks else 0
        # A word of two different blocks is the same by a chance of 1 in 256.
        assert equal <= shared(one, two) <= equal + 3


def test_prompts_of_a_conversation_trace_share_their_blocks() -> None:
    requests = read_trace(EXCERPTS / "mooncake-conversation.jsonl").requests
    made = TracedPrompts("r/c", 0, PromptScale(), max(each.input_tokens or 0 for each in requests))
    first, second = (made.text(call, requests[at]).split() for call, at in (("a", 0), ("b", 1)))
    assert [len(first), len(second)] == [6758, 7322]
    assert BLOCK_TOKENS <= shared(first, second) <= BLOCK_TOKENS + 3
    other = TracedPrompts("r2/c", 0, PromptScale(), 7322).text("a", requests[0]).split()
    assert shared(first, other) <= 3  # another run finds no block of this one in a cache


def test_prompts_without_blocks_differ_in_their_first_words() -> None:
    made = TracedPrompts("r/c", 0, PromptScale(20, 1.5), 1000)
    one, two = (made.text(call, TracedRequest(0, 1000, 1)).split() for call in "ab")
    assert shared(one, two) <= 3
    assert (len(one), one[30:]) == (round(980 / 1.5), two[30:])
    assert "detailed story" in " ".join(one)
    # the least that makes it unique
    assert len(made.text("a", TracedRequest(0, 3, 1)).split()) == 7


@pytest.mark.parametrize(("template", "per_word"), [(0, 1.0), (40, 1.3), (700, 0.8)])
def test_calibration_finds_the_scale_of_the_prompts(template: int, per_word: float) -> None:
    """Prompts of all lengths of a trace have the tokens of the trace, by the count of the
    endpoint."""

    def tokens(call: Call) -> int:
        messages: list[dict[str, str]] = call.body["messages"]  # type: ignore[assignment]
        return template + round(per_word * len(messages[0]["content"].split()))

    fake = FakeService(script=lambda call: Script(tokens=1, input_tokens=tokens(call)))
    traced = read_trace(EXCERPTS / "azure-code.csv").requests
    found = run_virtual(
        calibrate(
            fake,
            Workload(run="r", traced=traced, output_tokens=None),
            input_tokens=512,
            name="t",
            pilot=True,
        )
    )
    assert (found.note, found.response_ns is not None) == ("", True)
    assert found.workload.traced == traced
    composer = Composer(found.workload, "t@trace")
    for number, each in enumerate(traced):
        body = composer.body(f"t@trace-{number}", number)
        assert body["max_tokens"] == each.output_tokens
        least = template + round(7 * per_word)
        wanted = max(each.input_tokens or 0, least)
        assert tokens(Call(id="", body=body)) == pytest.approx(wanted, rel=0.01, abs=per_word + 0.5)


def test_a_trace_is_sent_to_a_target_that_counts_no_tokens() -> None:
    fake = FakeService(script=lambda call: Script(tokens=1, input_tokens=None))
    traced = [TracedRequest(0, 1000, 5)]
    found = run_virtual(
        calibrate(fake, Workload(run="r", traced=traced), input_tokens=512, name="t")
    )
    assert "not verified: the endpoint reports no usage; estimated" in found.note
    text = Composer(found.workload, "c").body("a", 0)["messages"][0]["content"]
    assert len(text) / 1000 == pytest.approx(5.6, rel=0.05)  # characters of a token
