"""Warm start from runs of a bench and the log, and the cost of earlier calls."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Struct, structs
from tests.policies.attempts import answered

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price, Tier
from splitsecond.core.errors import CallerFault
from splitsecond.core.session import CallSession
from splitsecond.log.production.token_cost import spent_usd
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.folder import RunFolder
from splitsecond.log.store.log import Log, SpentTokens
from splitsecond.log.store.settings import LogSettings
from splitsecond.routing.router.warm_start import history, of_run, open_log
from splitsecond.routing.targets.target_states import TargetStates

HOUR_NS = 3600 * clock.NS_PER_S


class Began(Struct):
    began: str
    began_ns: int


def never(words: str) -> None:
    raise AssertionError(words)


def run(path: Path, *targets: str, hours_ago: float = 2.0) -> Path:
    """A run that began so long ago, with an answer of each target an hour after that."""
    began = clock.wall_time() - timedelta(hours=hours_ago)
    with RunFolder.create(path) as folder:
        folder.write_run(Began(began.isoformat(), 5))
        for target in targets:
            folder.add(answered(300, end_ns=5 + HOUR_NS, target=target))
    return path


def test_attempts_of_a_run_have_their_age(tmp_path: Path) -> None:
    ((attempt, age_ns),) = of_run(run(tmp_path / "run", "a/x", 'race("a/x", "b/x")'))
    assert attempt.target == "a/x"
    assert attempt.ttft_ns == 300 * clock.NS_PER_MS
    assert age_ns == pytest.approx(HOUR_NS, rel=0.01)


def test_history_is_read_from_matching_runs_and_the_log(tmp_path: Path) -> None:
    run(tmp_path / "2026-11-01", "a/x")
    run(tmp_path / "2026-11-02", "b/x")
    run(tmp_path / "2026-12-01", "c/x")
    url = f"sqlite:///{tmp_path}/log.db"
    now_ns = clock.now_ns()
    with Log.open(url) as before:
        attempt = structs.replace(answered(target="d/x"), role="winner")
        record = CallRecord(
            call="c", start_ns=now_ns - clock.NS_PER_S, end_ns=now_ns, route="r", status=200
        )
        before.put(
            structs.replace(
                record, target="d/x", wall_us=clock.wall_offset_us(), attempts=(attempt,)
            )
        )
    with Log.open(url) as log:
        found = history(log, [f"{tmp_path}/2026-11-*", f"{tmp_path}/none-*"], never).attempts
    assert [attempt.target for attempt, _ in found] == ["a/x", "b/x", "d/x"]
    assert 0 <= found[-1][1] < HOUR_NS
    assert history(None, [], never) == ([], [])


def test_folder_without_a_run_is_reported_and_skipped(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run(tmp_path / "run", "a/x")
    said: list[str] = []
    assert [
        attempt.target for attempt, _ in history(None, [f"{tmp_path}/*"], said.append).attempts
    ] == ["a/x"]
    (words,) = said
    assert f"no run at {tmp_path}/empty" in words


def test_no_log_is_opened_without_log_settings() -> None:
    assert open_log(None, never) is None


def test_log_that_cannot_be_opened_raises_caller_fault(tmp_path: Path) -> None:
    with pytest.raises(CallerFault):
        open_log(LogSettings(f"sqlite:///{tmp_path}/none/log.db"), never)


def test_spent_tokens_are_multiplied_by_their_prices() -> None:
    used = [
        SpentTokens(target="a/x", input_tokens=1_000_000, output_tokens=500_000),
        SpentTokens(target="free/x", output_tokens=9),
    ]
    assert spent_usd(used, {"a/x": Price(input_usd=2, output_usd=4)}.get) == pytest.approx(4.0)


def test_each_attempt_has_the_rates_of_its_own_length_and_tier() -> None:
    price = Price(
        input_usd=2,
        output_usd=4,
        cache_write_usd=2.5,
        tiers=(Tier(above_tokens=200_000, input_usd=4, output_usd=8),),
        by_tier={"priority": 2.0},
    )
    used = [
        SpentTokens(
            target="a/x", longest_prompt=9_000, input_tokens=1_000_000, output_tokens=500_000
        ),
        SpentTokens(target="a/x", longest_prompt=200_500, input_tokens=1_000_000),
        SpentTokens(target="a/x", longest_prompt=9_000, input_tokens=1_000_000, tier="priority"),
        SpentTokens(
            target="a/x",
            longest_prompt=9_000,
            input_tokens=2_000_000,
            cache_write_tokens=2_000_000,
            cache_write_1h_tokens=1_000_000,
        ),
    ]
    assert spent_usd(used, {"a/x": price}.get) == pytest.approx(4 + 4 + 4 + 2.5 + 4)


def test_lifetime_and_times_are_learned_from_logged_turns(tmp_path: Path) -> None:
    """A session with pauses of 20 s and of 10 minutes, after which the cache was lost: TTFT = 300
    ms + 50 µs x new."""
    url, now_ns = f"sqlite:///{tmp_path}/log.db", clock.now_ns()
    with Log.open(url) as before:
        age_s = 12_000.0
        for number in range(30):
            pause_s = 600 if number % 2 else 20
            age_s -= pause_s
            cached = 0 if number == 0 or pause_s == 600 else 20_000
            ttft_ms = 300 + (21_000 - cached) * 0.05
            began_ns = now_ns - round(age_s * clock.NS_PER_S)
            attempt = structs.replace(
                answered(ttft_ms, target="a/"
                "x", end_ns=began_ns + round((ttft_ms + 100) * clock.NS_PER_MS)),
                id=f"{number}"
                f".1", call=f"{number}", input_tokens=21_000, cached_tokens=cached,
                output_tokens=100,
                role="winner",
            )  # fmt: skip
            session = CallSession(
                id="00000000000000ab", source="x", turn=number + 1, new_tokens=1_000 if number
                else 21_000,
                reusable_tokens=20_000 if number else 0,
            )  # fmt: skip
            record = CallRecord(
                call=f"{number}", start_ns=began_ns, end_ns=attempt.end_ns, route="r", status=200
            )
            before.put(
                structs.replace(
                    record,
                    target="a/x",
                    wall_us=clock.wall_offset_us(),
                    attempts=(attempt,),
                    session=session,
                )
            )
    with Log.open(url) as log:
        turns = history(log, [], never).turns
    assert [session.turn for _, session, _ in turns] == list(range(1, 31))
    states = TargetStates()
    states.seed_turns(turns)
    known = states.state("a/x").prompt_cache
    assert known.fit.turns == 30
    assert known.fit.ttft_ns(21_000, 0) == pytest.approx(1_350 * clock.NS_PER_MS, rel=0.15)
    assert known.fit.ttft_ns(1_000, 20_000) == pytest.approx(350 * clock.NS_PER_MS, rel=0.25)
    assert known.lifetime.share(20 * clock.NS_PER_S) > 0.8
    assert known.lifetime.share(600 * clock.NS_PER_S) < 0.2
    assert not states.state("a/x").turns
    last = CallSession(id="00000000000000ab", source="x", reusable_tokens=20_000)
    assert states.conversations.prompts(last)["a/x"].tokens == 21_100
