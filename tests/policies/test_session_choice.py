"""Where the next turn of a session goes, by what each target has of its prompt."""

from collections.abc import Sequence

from benchmarks.session_providers import PRICE, Provider, Scenario, Turnaround
from benchmarks.session_world import POLICIES, World

from splitsecond.benchmark.workload.sessions import Session, Turn
from splitsecond.core.clock import NS_PER_S
from splitsecond.testing.virtual_time import run_virtual

QUICK = Provider(a=0.3, b=0.0001, lifetime_s=600)
STEADY = Provider(a=0.5, b=0.0001, lifetime_s=600)


def session(waits_s: Sequence[float], *, tokens: int = 100_000, name: str = "s") -> Session:
    """Return a session whose first prompt has so many tokens, with a turn after each of the
    waits."""
    turns = [Turn(input_tokens=tokens, output_tokens=100)]
    for wait_s in waits_s:
        size = turns[-1].input_tokens
        turns.append(
            Turn(
                input_tokens=size + 500,
                output_tokens=100,
                shared_tokens=size,
                wait_ns=round(wait_s * NS_PER_S),
            )
        )
    return Session(id=name, turns=turns)


def played(
    policy: str,
    sessions: Sequence[Session],
    a: Provider = QUICK,
    b: Provider = STEADY,
    apart_s: float = 0.0,
) -> list[list[Turnaround]]:
    """Return the turns of sessions over two providers. Each session begins `apart_s` after the one
    before."""
    world = World(Scenario("", {"a/m": a, "b/m": b}), 3)
    starts_s = [number * apart_s for number in range(len(sessions))]
    return run_virtual(world.run(policy, sessions, starts_s)).sessions


def where(turns: Sequence[Turnaround]) -> str:
    return "".join(turn.target[0] for turn in turns)


def test_a_session_stays_where_its_prompt_is_cached() -> None:
    for policy in ("fastest", "cheapest", "weighted", "fallback"):
        (turns,) = played(policy, [session([5] * 20)])
        assert len(set(where(turns))) == 1, policy


def test_without_cache_awareness_weighted_moves_each_turn() -> None:
    (turns,) = played("round robin", [session([5] * 6)])
    assert where(turns) == "abababa"


def test_the_reason_names_the_tokens_and_the_price_of_moving() -> None:
    (turns,) = played("fastest", [session([5] * 4)])
    words = f"stays at {turns[0].target}: 99,000 tokens cached there, moving would cost 9.4 s"
    assert turns[-1].why == words


def test_a_session_leaves_a_target_that_became_much_slower() -> None:
    slow = Provider(a=0.3, b=0.0001, tps=4.0)
    every = [session([5] * 20, tokens=2_000, name=str(number)) for number in range(12)]
    last = played("fastest", every, a=slow, apart_s=20)[-1]
    assert where(last).endswith("bbb")


def test_fallback_stays_at_the_second_target_after_an_outage() -> None:
    down = Provider(a=0.3, b=0.0001, lifetime_s=600, down=(0, 30))
    (turns,) = played("fallback", [session([10] * 20)], a=down)
    assert where(turns) == "b" * 21
    assert turns[-1].why.startswith("stays at b/m: ")


def test_fallback_returns_once_the_cache_has_expired() -> None:
    down = Provider(a=0.3, b=0.0001, lifetime_s=600, down=(0, 30))
    (turns,) = played("fallback", [session([10] * 5 + [3000] + [10] * 3)], a=down)
    assert where(turns) == "bbbbbbaaaa"


def test_fallback_returns_for_a_gain_that_exceeds_the_loss() -> None:
    down = Provider(a=0.3, b=0.0001, lifetime_s=600, down=(0, 30))
    slow = Provider(a=9.0, b=0.0001, lifetime_s=600)
    others = [session([10] * 20, tokens=3_000, name=f"o{number}") for number in range(3)]
    turns = played(
        "fallback", [session([10] * 30, tokens=5_000), *others], a=down, b=slow, apart_s=40
    )[0]
    assert where(turns).startswith("b")
    assert where(turns).endswith("aaaaa")
    assert any(turn.why.startswith("moves to a/m from b/m: ") for turn in turns)


def test_one_transient_error_moves_one_turn_only() -> None:
    hiccup = Provider(a=0.3, b=0.0001, lifetime_s=600, down=(60, 72))
    (turns,) = played("fallback", [session([10] * 12)], a=hiccup)
    assert where(turns).count("b") == 1
    assert where(turns).endswith("aaaa")


def test_a_refused_key_moves_a_session_for_good() -> None:
    refuses = Provider(a=0.3, b=0.0001, lifetime_s=600, down=(60, 90), fails=(401, "key_refused"))
    (turns,) = played("fallback", [session([10] * 60)], a=refuses)
    assert where(turns).rstrip("b") == "a" * where(turns).count("a")
    assert where(turns).endswith("bbbb")


def test_fallback_to_another_model_returns_at_once() -> None:
    POLICIES["two models"] = 'fallback("a/m", "b/n")'
    world = World(Scenario("", {"a/m": Provider(down=(0, 30)), "b/n": STEADY}), 3)
    (turns,) = run_virtual(world.run("two models", [session([10] * 20)], [0.0])).sessions
    del POLICIES["two models"]
    assert where(turns).endswith("aaaaaaa")


def test_a_lifetime_shorter_than_the_wait_frees_the_session() -> None:
    forgets = Provider(a=0.5, b=0.0001, lifetime_s=60)
    every = [session([100] * 40, name=str(number)) for number in range(4)]
    all_turns = played("fastest", every, a=forgets, b=STEADY, apart_s=30)
    assert {where(turns)[-10:] for turns in all_turns} == {"b" * 10}


def test_weighted_counts_the_calls_of_sessions() -> None:
    every = [session([5] * 20, name=str(number)) for number in range(40)]
    all_turns = played("weighted", every, apart_s=20)
    assert all(len(set(where(turns))) == 1 for turns in all_turns)
    share = sum(where(turns).count("a") for turns in all_turns) / (40 * 21)
    assert 0.4 < share < 0.6


def test_cheapest_prefers_the_cached_tokens_of_a_dear_target() -> None:
    dear = Provider(a=0.3, b=0.0001, lifetime_s=3600, price=PRICE)
    cheap = Provider(a=0.3, b=0.0001, lifetime_s=20, price=PRICE.scaled(0.6))
    every = [session([10, 40] * 20, name=str(number)) for number in range(6)]
    all_turns = played("cheapest", every, a=dear, b=cheap, apart_s=100)
    assert {where(turns)[-10:] for turns in all_turns[2:]} == {"a" * 10}


def test_a_target_that_reports_no_cache_is_learned_by_time() -> None:
    every = [session([10] * 30, name=str(number)) for number in range(5)]
    silent = Provider(a=0.3, b=0.0001, lifetime_s=600, reports=False)
    forgetful = Provider(a=0.3, b=0.0001, lifetime_s=0, reports=False)
    all_turns = played("fastest", every, a=silent, b=forgetful, apart_s=60)
    assert {where(turns)[-10:] for turns in all_turns} == {"a" * 10}


def test_a_prompt_too_short_for_a_cache_is_like_any_call() -> None:
    for policy in ("fastest", "cheapest"):
        every = [session([5] * 10), session([5], tokens=100), session([5], tokens=5_000)]
        _, short, long = played(policy, every, apart_s=100)
        free = "no branch has the session in its cache"
        assert [free in turns[0].why for turns in (short, long)] == [False, True]
        assert short[0].why.startswith(f"{policy}: ")
