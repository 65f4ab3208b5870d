"""Teams: keys that share limits, by the day and by the month, and what the log knows of them."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.limits import key_limits
from tests.gateway.test_allowance import ATTEMPT, admitted
from tests.gateway.test_app import fake
from tests.gateway.test_settings import ENVIRONMENT, GOOD
from tests.gateway.visitor import CHAT, visitor
from tests.store.records import answered

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.gateway.fleet.member import FleetMember
from splitsecond.gateway.fleet.settings import FleetSettings
from splitsecond.gateway.process.hub_process import limited_keys
from splitsecond.gateway.records.fleet_ceilings import NANO, FleetCeilings
from splitsecond.gateway.records.journal import Journal
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.limits import used_tokens, with_budget
from splitsecond.gateway.records.orphans import open_journal, orphan_record
from splitsecond.gateway.records.session_budgets import SessionCounters
from splitsecond.gateway.records.shared_counters import SharedCounters, month_of
from splitsecond.log.store.call_record import CallAccounting
from splitsecond.log.store.log import Log
from splitsecond.routing.configuration.checkup import checkup
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.configuration.settings import decode, encode
from splitsecond.routing.configuration.warnings import problems
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.requests.error_response import LimitReached
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.routing.router.settings import ClientKey, Team
from splitsecond.testing.virtual_time import run_virtual

HOUR_NS = 3600 * clock.NS_PER_S
SECRETS = {"alice": "a-key-of-alice-in-the-team", "bob": "a-key-of-bob-in-the-team"}


def keys(team: Team, **limits: Any) -> tuple[ClientKey, ClientKey]:
    """Return two keys of `team`; the first has `limits` of its own."""
    digests = [hashlib.sha256(each.encode()).digest() for each in SECRETS.values()]
    alice, bob = zip(SECRETS, digests, strict=True)
    return ClientKey(*alice, team=team, **limits), ClientKey(*bob, team=team)


class Calendar:
    """A wall clock that is set by hand; the monotonic clock stands still."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 27, 12, tzinfo=UTC)

    def wall_ns(self) -> int:
        return round(self.now.timestamp() * clock.NS_PER_S)


@pytest.fixture
def calendar() -> Iterator[Calendar]:
    calendar = Calendar()
    with clock.using(lambda: HOUR_NS, calendar.wall_ns):
        yield calendar


def refusal(allowance: KeyLimits, key: ClientKey) -> LimitReached:
    with pytest.raises(LimitReached) as caught:
        allowance.admit(key)
    return caught.value


@pytest.mark.usefixtures("calendar")
def test_a_team_shares_its_day_over_keys_and_workers() -> None:
    alice, bob = keys(Team("research", usd_per_day=1.0))
    counters = SharedCounters.create(2)
    one, two = (
        key_limits(
            [alice, bob],
            lambda attempt: 0.6,
            counters=SharedCounters(counters, workers=2, number=number),
        )
        for number in (0, 1)
    )
    one.charge("alice", ATTEMPT)
    assert admitted(two, bob)
    two.charge("bob", ATTEMPT)
    for worker in (one, two):
        fault = refusal(worker, alice)
        assert fault.message == "the team 'research' has spent its 1 USD for today (1.2000)"
        assert fault.hint == "The budget begins again on 2026-11-28 at 00:00 UTC."
        assert fault.retry_after_ns == 12 * HOUR_NS
    assert one.spent_usd("alice") == 0.6


def test_a_month_ends_after_its_last_day(calendar: Calendar) -> None:
    alice, bob = keys(Team("research", usd_per_month=1.0), usd_per_day=0.7)
    allowance = key_limits([alice, bob], lambda attempt: 0.6)
    allowance.charge("alice", ATTEMPT)
    allowance.charge("alice", ATTEMPT)
    assert "the key 'alice' has spent its 0.7 USD for today" in refusal(allowance, alice).message
    fault = refusal(allowance, bob)
    assert fault.message == "the team 'research' has spent its 1 USD for this month (1.2000)"
    assert fault.hint == "The budget begins again on 2026-12-01 at 00:00 UTC."
    assert fault.retry_after_ns == (3 * 24 + 12) * HOUR_NS
    calendar.now = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
    assert not admitted(allowance, bob)
    assert "the team 'research'" in refusal(allowance, alice).message
    calendar.now = datetime(2026, 12, 1, tzinfo=UTC)
    assert admitted(allowance, alice)
    assert admitted(allowance, bob)
    assert allowance.spent_usd("alice", "month") == 0


@pytest.mark.usefixtures("calendar")
def test_a_request_that_the_team_refuses_counts_for_no_key() -> None:
    alice, bob = keys(Team("research", requests_per_minute=3), requests_per_minute=5)
    allowance = key_limits([alice, bob], lambda attempt: None)
    headers = dict(allowance.admit(alice))
    assert headers[b"x-ratelimit-limit-requests"] == b"3", "the limit that has least left"
    assert [admitted(allowance, each) for each in (bob, alice, alice, bob)] == [
        True,
        True,
        False,
        False,
    ]
    assert "the team 'research' may make 3 requests per minute" in refusal(allowance, bob).message
    assert allowance.requests_used("alice") == 2


@pytest.mark.usefixtures("calendar")
def test_calls_in_flight_reserve_the_budget_of_the_team() -> None:
    alice, bob = keys(Team("research", usd_per_month=1.0))
    journal = Journal(open_journal(None, 0, print), print)
    allowance = key_limits([alice, bob], lambda attempt: 0.6, journal=journal)
    tracker = CallTracker(charge=allowance.charge)
    call = Call(id="r", client="alice", body={})
    call.notes.team = "research"
    assert allowance.counts("alice")
    first = allowance.reserve(call, "fast", parse('"a/x"'))
    second = allowance.reserve(call, "fast", parse('"a/x"'))
    assert first is not None
    assert second is not None
    with pytest.raises(LimitReached, match="the team 'research' has 1 USD for this month: 0"):
        allowance.admit(bob)
    assert [orphan_record(each).accounting for each in journal.entries()] == [
        CallAccounting(team="research")
    ] * 2
    first.release()
    second.release()
    assert admitted(allowance, bob)
    assert tracker.open(call, "fast").call.notes.team == "research"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/v1/chat/completions", "insufficient_quota"), ("/v1/messages", "rate_limit_error")],
)
def test_the_refusal_is_the_error_of_the_clients_api(path: str, kind: str) -> None:
    async def main() -> None:
        alice, bob = keys(Team("research", usd_per_month=1.0))
        allowance = key_limits([alice, bob], lambda attempt: 1.0)
        allowance.charge("alice", ATTEMPT)
        client = visitor(fake(), alice, bob, limits=allowance)
        headers = {"authorization": f"Bearer {SECRETS['bob']}"}
        refused = await client.asks(CHAT, path=path, headers=headers)
        assert refused.status == 429
        error = refused.json["error"]
        assert error["type"] == kind
        assert "the team 'research' has spent its 1 USD for this month" in error["message"]
        assert "The budget begins again on " in error["message"]

    run_virtual(main())


def test_the_record_of_a_call_names_the_team_of_its_key() -> None:
    async def main() -> list[CallAccounting | None]:
        found: list[CallAccounting | None] = []
        tracker = CallTracker(lambda record: found.append(record.accounting))
        alice, _ = keys(Team("research"))
        alone = ClientKey("alone", hashlib.sha256(SECRETS["bob"].encode()).digest())
        for secret in SECRETS.values():
            client = visitor(fake(), alice, alone, tracker=tracker)
            headers = {"authorization": f"Bearer {secret}"}
            assert (await client.asks(CHAT, headers=headers)).status == 200
        return found

    assert run_virtual(main()) == [CallAccounting(team="research"), None]


def earlier(log: Log, bearer: ClientKey | Team, until: datetime) -> Any:
    return used_tokens(
        log,
        bearer.name,
        until,
        is_team=isinstance(bearer, Team),
        of_month=bearer.usd_per_month is not None,
    )


def test_use_before_the_start_is_that_of_the_teams_calls(tmp_path: Path) -> None:
    """Also of keys that are in another team now, or gone."""
    url = f"sqlite:///{tmp_path}/log.db"
    team = CallAccounting(team="research")
    with Log.open(url) as log:
        for number, client in enumerate(("alice", "gone", "alice")):
            log.put(answered(number, client=client, accounting=team if number < 2 else None))
    with Log.open(url) as log:
        now = clock.wall_time()
        found = [
            sum(each.attempts for part in earlier(log, bearer, now) for each in part)
            for bearer in with_budget(keys(Team("research", usd_per_month=1.0), usd_per_month=1.0))
        ]
    assert found == [2, 2]


def test_a_budget_by_the_month_reads_the_whole_month(tmp_path: Path, calendar: Calendar) -> None:
    (key, _) = keys(Team("research"), usd_per_month=1.0)
    with Log.open(f"sqlite:///{tmp_path}/log.db", keep_days=3650) as log:
        for number, days in enumerate((0, 2, 26, 27)):  # the last one was in October
            log.put(answered(number, client="alice", ago_s=60 + days * 86_400))
    with Log.open(f"sqlite:///{tmp_path}/log.db", keep_days=3650) as log:
        today, before = earlier(log, key, clock.wall_time())
    assert [sum(each.attempts for each in part) for part in (today, before)] == [1, 2]
    allowance = key_limits([key], lambda attempt: 0.0)
    allowance.carry_over({key.counter: (0.25, 0.5)})
    assert (allowance.spent_usd("alice"), allowance.spent_usd("alice", "month")) == (0.25, 0.75)
    calendar.now = datetime(2026, 11, 28, tzinfo=UTC)
    assert (allowance.spent_usd("alice"), allowance.spent_usd("alice", "month")) == (0, 0.75)


def test_use_since_the_start_is_not_earlier_use(tmp_path: Path, calendar: Calendar) -> None:
    """The gateway began before midnight, and reads the log after it."""
    (key, _) = keys(Team("research"), usd_per_month=1.0)
    calendar.now = datetime(2026, 11, 28, 0, 1, tzinfo=UTC)
    with Log.open(f"sqlite:///{tmp_path}/log.db") as log:
        for number, ago_s in enumerate((120, 240)):
            log.put(answered(number, client="alice", ago_s=ago_s))
    with Log.open(f"sqlite:///{tmp_path}/log.db") as log:
        today, before = earlier(log, key, datetime(2026, 11, 27, 23, 58, tzinfo=UTC))
    assert [sum(each.attempts for each in part) for part in (today, before)] == [0, 1]


TEAMS = "teams: {research: {usd_per_day: 20, usd_per_month: 400}, other: }\n"


def with_team(team: str = "research", more: str = TEAMS) -> str:
    return GOOD.replace("env:WEB_KEY,", f"env:WEB_KEY, team: {team}, usd_per_month: 90,") + more


def test_a_key_names_its_team() -> None:
    settings = read(with_team(), ENVIRONMENT)
    (key,) = settings.keys
    assert key.team == Team("research", usd_per_day=20, usd_per_month=400)
    assert key.usd_per_month == 90
    assert [each.name for each in key.bearers] == ["web", "research"]
    assert decode(encode(settings)).keys == settings.keys


def test_the_check_of_a_configuration_lists_its_teams(tmp_path: Path) -> None:
    lines = checkup(read(with_team(), ENVIRONMENT, folder=tmp_path))
    assert "client web: fast, groq/*; 90 USD per month; team research" in lines
    assert "team research: 20 USD per day, 400 USD per month" in lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_team("reserch"), r"keys\[0\]\.team: there is no team reserch. Did you mean research"),
        (with_team(more=""), r"keys\[0\]\.team: there is no team research. Add teams: "),
        (with_team(more="teams: {research: {usd: 1}}"), r"^teams\.research: .*`usd`"),
        (with_team(more="teams: [research]"), "teams: Expected `object`"),
        (with_team('"a\\tb"', 'teams: {"a\\tb": {}}'), "characters that can be printed"),
    ],
)
def test_a_wrong_team_is_named(text: str, message: str) -> None:
    with pytest.raises(CallerFault, match=message):
        read(text, ENVIRONMENT)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("log: sqlite:///a.db\n", ""),
        ("log: {url: 'sqlite:///a.db', keep_days: 30}\n", "log.keep_days: 30 is less than a month"),
        ("log: off\n", "usd_per_month of web: without a log"),
    ],
)
def test_a_month_that_a_restart_would_forget_is_a_problem(log: str, words: str) -> None:
    found = [each for each in problems(read(with_team() + log, ENVIRONMENT)) if "month" in each]
    assert [each[: len(words)] for each in found] == ([words] if words else [])


def test_a_fleet_shares_the_limits_of_a_team_once() -> None:
    team = Team("research", requests_per_minute=60, usd_per_month=5.0)
    settings = FleetSettings(
        url="postgresql://nobody@127.0.0.1:9/none",
        gateway="g",
        instance="1",
        counters=SharedCounters.create(1),
        ceilings=FleetCeilings.create(1),
        budgets=SessionCounters.create(1),
        workers=1,
        keys=limited_keys(keys(team, usd_per_day=1.0)),
    )
    with clock.using(lambda: 0, Calendar().wall_ns):
        member = FleetMember(settings, print)
        assert [*member._holders] == [
            "usd of alice",
            "team requests of research",
            "team usd per month of research",
        ]
        member._counters.spend(team.counter, member._day(), 2.0)
        member._counters.spend(team.counter, member._day() - 1, 1.0)
        holder = member._holders["team usd per month of research"]
        assert member._use(holder).used == 3 * NANO
        member._apply()
        ceilings = member.metrics().fleet_ceilings
        assert ("usd_per_month", "team research") in ceilings


def test_months_are_those_of_the_calendar() -> None:
    days = [datetime(2026, month, day, tzinfo=UTC) for month, day in ((1, 31), (2, 1), (2, 28))]
    months = [month_of(int(day.timestamp()) // 86_400) for day in days]
    assert [month - months[0] for month in months] == [0, 1, 1]
