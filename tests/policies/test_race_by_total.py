"""`race(..., by="total")`: the first complete answer wins, or the branch that should end first."""

import asyncio

import pytest
from tests.policies.branches import ask, play, reset, scripted
from tests.policies.traffic import Speed, shares, steady, traffic

from splitsecond.core import clock
from splitsecond.core.errors import AllFailed
from splitsecond.core.service import Call
from splitsecond.routing.policies.race import race
from splitsecond.testing.fake_service import Script

EARLY = Script(ttft=0.1, tps=30, tokens=200)
"""Document 004: the first token in 100 ms and 30 tokens per second."""
QUICK = Script(ttft=0.8, tps=300, tokens=200)
QUICK_S = 0.8 + 199 / 300


LEARNING = 'by_task(first="a/x", second="b/x", default=race("a/x", "b/x", by="total"))'
"""The first two calls measure the targets, one each."""


def learning_call(number: int) -> Call:
    hints = {"task": {0: "first", 1: "second"}.get(number, "")}
    return Call(id=f"call-{number}", body={"max_tokens": 200}, start_ns=clock.now_ns(), hints=hints)


def whole_call(number: int = 1) -> Call:
    return Call(id=f"call-{number}", body={}, start_ns=clock.now_ns(), stream=False)


def test_first_complete_response_wins_if_not_streamed() -> None:
    """Raced by the first token, the same call takes 6.7 s."""
    fakes = scripted(EARLY, target="a/x"), scripted(QUICK, target="b/x")

    async def main() -> None:
        began_ns = clock.now_ns()
        reply = await race(*fakes, by="total")(whole_call())
        async with reply:
            await reply.finished()
        assert reply.target == "b/x"
        assert (clock.now_ns() - began_ns) / clock.NS_PER_S == pytest.approx(QUICK_S, abs=0.01)
        loser, winner = (fake.calls[0].observation for fake in fakes)
        assert loser is not None
        assert winner is not None
        assert (loser.outcome, winner.outcome) == ("cancelled", "ok")
        # what it generated is in the ledger
        assert loser.output_tokens == pytest.approx(30 * (QUICK_S - 0.1), abs=2)

    play(main, fakes)


def test_a_stream_comes_from_the_branch_that_should_end_first() -> None:
    """Once both speeds are known."""
    targets: dict[str, Speed] = {
        "a/x": steady(0.1, tps=30, tokens=200),
        "b/x": steady(0.8, tps=300, tokens=200),
    }
    sent = traffic(LEARNING, targets, seconds=60, rate=0.1, call=learning_call)[2:]
    assert shares(sent) == {"b/x": 1.0}
    assert [each.ttft for each in sent] == pytest.approx([0.8] * len(sent), abs=0.01)


def test_race_learns_the_speed_of_a_branch_with_late_first_token() -> None:
    """The first call is raced to its end, which shows both speeds; then the branch that ends first
    is waited for."""
    targets: dict[str, Speed] = {
        "a/x": steady(0.1, tps=30, tokens=200),
        "b/x": steady(0.8, tps=300, tokens=200),
    }
    sent = traffic('race("a/x", "b/x", by="total")', targets, seconds=60, rate=0.1)
    assert shares(sent) == {"b/x": 1.0}
    assert [each.ttft for each in sent] == pytest.approx(
        [QUICK_S, *[0.8] * (len(sent) - 1)], abs=0.01
    )


def test_branch_of_unknown_speed_delays_ever_fewer_streams() -> None:
    """Its first token comes after the end of the other answer, so it never shows how fast it
    writes."""
    targets: dict[str, Speed] = {"a/x": steady(0.1, tps=100, tokens=50), "b/x": steady(5.0)}
    sent = traffic('race("a/x", "b/x", by="total")', targets, seconds=200, rate=0.1)
    assert shares(sent) == {"a/x": 1.0}
    assert [number for number, each in enumerate(sent, 1) if each.ttft > 0.2] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("rival", "ttft"),
    [
        # after that, its answer could no longer end sooner
        (Script(ttft=30.0), 0.1 + 200 / 30 - 200 / 300),
        (Script(ttft=0.5, fault=reset()), 0.5),
    ],
)
def test_branch_expected_to_end_first_is_awaited(rival: Script, ttft: float) -> None:
    answers = iter([Script(ttft=0.8, tps=300, tokens=200), rival])
    targets: dict[str, Speed] = {
        "a/x": steady(0.1, tps=30, tokens=200),
        "b/x": lambda at: next(answers),
    }

    (_, _, sent) = traffic(LEARNING, targets, seconds=30, rate=0.1, call=learning_call)
    assert sent.target == "a/x"
    assert sent.ttft == pytest.approx(ttft, abs=0.3)


def test_an_answer_that_breaks_does_not_win() -> None:
    fakes = (
        scripted(Script(ttft=0.1, tokens=9, tps=10, fault=reset(), breaks_after=5)),
        scripted(Script(ttft=2.0)),
    )
    failing = (
        scripted(Script(fault=reset())),
        scripted(Script(tokens=5, fault=reset(), breaks_after=2)),
    )

    async def main() -> None:
        seen = await ask(race(*fakes, by="total"), whole_call())
        assert seen.fault is None
        assert seen.ms == pytest.approx(2090)
        seen = await ask(race(*failing, by="total"), whole_call(2))
        assert isinstance(seen.fault, AllFailed)

    play(main, [*fakes, *failing])


def test_a_caller_that_leaves_closes_all_branches() -> None:
    fakes = scripted(EARLY), scripted(QUICK)

    async def main() -> None:
        waiting = asyncio.create_task(ask(race(*fakes, by="total"), whole_call()))
        await asyncio.sleep(1.0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert [fake.left_open for fake in fakes] == [0, 0]

    play(main, fakes)
