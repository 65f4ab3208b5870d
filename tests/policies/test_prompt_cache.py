"""What is learned of a target's prompt cache: its lifetime, and the time that a hit saves."""

from collections.abc import Callable
from random import Random

import pytest

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.session import CallSession
from splitsecond.routing.targets.conversations import MAX_AGENTS, MAX_SESSIONS, Conversations
from splitsecond.routing.targets.prompt_cache import (
    AGES_S,
    PRIOR,
    CacheLifetime,
    LoadEffect,
    PrefillFit,
)

MINUTE_NS = 60 * NS_PER_S


def learned(share: Callable[[float], float], turns: int = 300) -> CacheLifetime:
    """Return what turns after waits of up to an hour teach, of which most are short."""
    lifetime, random = CacheLifetime(), Random(1)
    for _ in range(turns):
        age_s = random.choice([5, 20, 50, 100, 150, 200, 280, 350, 500, 800, 1500, 3000])
        lifetime.add(age_s * NS_PER_S, share(age_s))
    return lifetime


def test_the_lifetime_is_learned_from_hits_and_misses() -> None:
    for true_s in (120, 300, 3600):
        lifetime = learned(lambda age_s, true_s=true_s: float(age_s < true_s))  # type: ignore[misc]
        assert lifetime.lasts_s == true_s
        assert lifetime.share((true_s - 1) * NS_PER_S) > 0.8
        assert lifetime.share(true_s * NS_PER_S) < 0.35


def test_two_replicas_halve_the_share_at_every_age() -> None:
    random = Random(2)
    lifetime = learned(lambda age_s: float(age_s < 300 and random.random() < 0.5))
    assert 0.35 < lifetime.share(10 * NS_PER_S) < 0.65
    assert lifetime.kept_share(200 * NS_PER_S)
    assert not lifetime.kept_share(500 * NS_PER_S)


def test_an_unknown_share_is_the_prior_and_never_rises_with_age() -> None:
    unknown = CacheLifetime()
    assert [unknown.share(end_s * NS_PER_S - 1) for end_s in AGES_S[:-1]] == pytest.approx(
        PRIOR[:-1]
    )
    some = CacheLifetime()
    for age_s, found in ((5, 0.0), (5, 0.0), (5, 1.0), (3000, 1.0), (3000, 1.0)):
        some.add(age_s * NS_PER_S, found)
    shares = [some.share(end_s * NS_PER_S - 1) for end_s in AGES_S[:-1]]
    assert shares == sorted(shares, reverse=True)


def test_a_lifetime_that_changes_is_learned_again() -> None:
    lifetime = learned(lambda age_s: float(age_s < 3600))
    for _ in range(60):
        lifetime.add(200 * NS_PER_S, 0.0)
    assert not lifetime.kept_share(200 * NS_PER_S)


def fitted(turns: int, slower: Callable[[int], float] = lambda turn: 1.0) -> PrefillFit:
    """Return the fit to turns of which each tenth is new, every 5 s: TTFT = 800 ms + 80 µs × new +
    4 µs × cached."""
    fit, random = PrefillFit(), Random(3)
    for turn in range(turns):
        prompt = random.randrange(10_000, 150_000)
        new = prompt if turn % 10 == 0 else random.randrange(200, 3000)
        ttft_ns = 800 * NS_PER_MS + 80_000 * new + 4_000 * (prompt - new)
        fit.add(
            new,
            prompt - new,
            slower(turn) * ttft_ns * random.lognormvariate(0, 0.2),
            (turn + 1) * 5 * NS_PER_S,
        )
    return fit


def test_the_fit_finds_the_cost_of_new_and_of_cached_tokens() -> None:
    fit = fitted(400)
    assert abs(fit.ttft_ns(100_000, 0) / (8.8 * NS_PER_S) - 1) < 0.15
    assert abs(fit.ttft_ns(1_000, 100_000) / (1.28 * NS_PER_S) - 1) < 0.15
    assert 0.1 < fit.noise < 0.35


def test_hits_alone_show_that_a_target_has_become_slower() -> None:
    fit, faster = fitted(400, lambda turn: 1.0 if turn < 391 else 3.0), fitted(391)
    assert fit.ttft_ns(100_000, 0) > 1.8 * faster.ttft_ns(100_000, 0)


def test_one_slow_turn_does_not_tilt_the_fit() -> None:
    fit, before = fitted(401, lambda turn: 30.0 if turn == 400 else 1.0), fitted(400)
    assert fit.ttft_ns(1_000, 100_000) < 1.3 * before.ttft_ns(1_000, 100_000)


def test_uncertainty_falls_with_turns_and_rises_with_time() -> None:
    fit, at_ns = fitted(100), 100 * 5 * NS_PER_S
    known, later = (
        fit.variance(1, 50_000, 0, at_ns),
        fit.variance(1, 50_000, 0, at_ns + 10 * MINUTE_NS),
    )
    assert known < PrefillFit().variance(1, 50_000, 0, at_ns) / 10
    assert later > 2 * known


def test_requests_in_flight_slow_a_target_by_what_was_learned() -> None:
    load, random = LoadEffect(), Random(4)
    assert load.factor(50) == 1
    for _ in range(400):
        in_flight = random.randrange(1, 11)
        load.add(in_flight, (1 + 0.1 * in_flight) / 1.55 * random.lognormvariate(0, 0.2) - 1)
    assert 1.1 < load.factor(10) < 1.5
    assert 0.55 < load.factor(1) < 0.9


def of_session(number: int, agent: str = "", reusable: int = 50_000) -> CallSession:
    return CallSession(id=f"s{number}", source="x", agent=agent, reusable_tokens=reusable)


def cached(
    conversations: Conversations, session: CallSession, target: str, now_ns: int
) -> tuple[int, int]:
    """Return the tokens of the next prompt that `target` has been sent before, and how long ago."""
    found = conversations.prompts(session).get(target)
    assert found == conversations.before(session, target)
    return (
        (0, 0)
        if found is None
        else (min(found.tokens, session.reusable_tokens), now_ns - found.at_ns)
    )


def test_conversations_are_remembered_by_target_and_agent() -> None:
    conversations = Conversations()
    conversations.remember(of_session(1), "a/m", 40_000, 100)
    conversations.remember(of_session(1, "helper"), "a/m", 9_000, 200)
    assert cached(conversations, of_session(1), "a/m", 300) == (40_000, 200)
    assert cached(conversations, of_session(1, reusable=500), "a/m", 300) == (500, 200)
    assert cached(conversations, of_session(1, "helper"), "a/m", 300) == (9_000, 100)
    assert cached(conversations, of_session(1, "new"), "a/m", 300) == (9_000, 100)
    assert cached(conversations, of_session(1), "b/m", 300)[0] == 0
    assert conversations.is_only_at(of_session(1), "a/m")
    conversations.remember(of_session(1), "b/m", 41_000, 400)
    assert not conversations.is_only_at(of_session(1), "a/m")
    conversations.forget("a/m", 0)
    assert cached(conversations, of_session(1), "a/m", 300)[0] == 0


def test_a_short_prompt_does_not_replace_the_conversation() -> None:
    """Claude Code has the title of a session written under the session's id."""
    conversations, shared = Conversations(), []
    conversations.share = lambda session, target, tokens, at_ns: shared.append(tokens)
    conversations.remember(of_session(1, reusable=0), "a/m", 40_000, 100)
    conversations.remember(of_session(1, reusable=0), "a/m", 500, 200)
    assert cached(conversations, of_session(1), "a/m", 300) == (40_000, 200)
    conversations.remember(of_session(1, reusable=9_000), "a/m", 12_000, 400)  # it was compacted
    assert cached(conversations, of_session(1), "a/m", 500) == (12_000, 100)
    conversations.remember(of_session(1, reusable=0), "a/m", 30_000, 600)
    assert shared == [40_000, 12_000, 30_000]


def test_what_other_workers_know_counts_if_it_is_newer() -> None:
    conversations = Conversations()
    conversations.remember(of_session(1), "a/m", 40_000, 100)
    conversations.receive("s1", [("a/m", "", 30_000, 50), ("b/m", "helper", 9_000, 50)])
    assert cached(conversations, of_session(1), "a/m", 300) == (40_000, 200)
    assert cached(conversations, of_session(1, "helper"), "b/m", 300) == (9_000, 250)
    conversations.forget("b/m", 200)
    conversations.receive("s1", [("b/m", "helper", 9_000, 50), ("a/m", "", 41_000, 150)])
    assert cached(conversations, of_session(1), "b/m", 300)[0] == 0, "it was another server"
    assert cached(conversations, of_session(1), "a/m", 300) == (41_000, 150)


def test_only_the_latest_sessions_and_agents_are_remembered() -> None:
    conversations = Conversations()
    for number in range(MAX_SESSIONS + 10):
        conversations.remember(of_session(number), "a/m", 2_000, number)
    assert cached(conversations, of_session(9), "a/m", 0)[0] == 0
    assert cached(conversations, of_session(10), "a/m", 0)[0] == 2_000
    for number in range(MAX_AGENTS + 5):
        conversations.remember(of_session(10, f"agent{number}"), "a/m", 3_000 + number, number)
    agents = conversations._sessions["s10"]["a/m"]
    assert len(agents) == MAX_AGENTS
    (latest,) = conversations.latest(1, ["a/m"])
    assert (latest.id, latest.agent) == ("s10", "agent20")
