"""Collection of the dashboard's data: contents, bounds of its work, and today's cost."""

import asyncio
import os
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.gateway.conftest import KEY, ServedGateway
from tests.gateway.limits import key_limits
from tests.gateway.test_metrics import attempt, record
from tests.gateway.test_server import AS_WEB, Configured, configured, play  # noqa: F401 - a fixture
from tests.gateway.visitor import CHAT, Visitor, visits
from tests.noon import noon as noon  # a fixture
from tests.waiting import WITHIN_S

from splitsecond import __version__
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.closed_early import Billing
from splitsecond.gateway.dashboard.collection import MAX_PREVIEWS, DashboardData
from splitsecond.gateway.dashboard.data import Overview
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.log.store.log import SpentTokens
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.target_states import TargetStates

LOOKS = {"host": "127.0.0.1:8800"}
PLAYED = """
keys: [{name: web, key: env:WEB_KEY, usd_per_day: 100, requests_per_minute: 60}]
routes:
  fast: {policy: 'fallback("down/quick", "sim/quick")'}
  kept: {policy: 'cache("sim/quick", ttl="1m", sampled=True)'}
  idle: {policy: '"sim/quick"'}
"""
LOGGED = "routes: {fast: {policy: '\"sim/quick\"'}}\nlog: sqlite:///log.db\n"


async def seen(worker: GatewayWorker) -> Overview:
    client = await visits(worker.gateway).asks(
        b"", path="/dashboard/data", method="GET", headers=LOOKS
    )
    assert client.status == 200, client.body
    return msgspec.json.decode(client.body, type=Overview)


def test_dashboard_shows_exactly_the_served_calls(configured: Configured) -> None:  # noqa: F811
    async def main(worker: GatewayWorker) -> None:
        for model in ("fast", "kept", "kept", "sim/quick"):
            assert (
                await visits(worker.gateway).asks(CHAT | {"model": model}, headers=AS_WEB)
            ).status == 200
        assert (await visits(worker.gateway).asks(CHAT)).status == 401
        found = await seen(worker)
        assert (found.version, found.pid, found.slots, len(found.workers)) == (
            __version__,
            os.getpid(),
            1,
            1,
        )
        assert (found.requests.all, found.direct.all, found.rejected, found.in_flight) == (
            4,
            1,
            1,
            0,
        )
        assert (found.lost, found.cache) == (0, {"miss": 1, "hit": 1})
        routes = {each.name: each for each in found.routes}
        assert {name: each.requests.all for name, each in routes.items()} == {
            "fast": 1,
            "kept": 2,
            "idle": 0,
        }
        assert routes["fast"].answers == routes["kept"].answers == {"sim/quick": 1}
        now = routes["idle"].now
        assert now is not None
        assert [(each.calls, each.targets) for each in now] == [(10, ("sim/quick",))]
        targets = {each.name: each for each in found.targets}
        assert [*targets] == ["down/quick", "sim/quick"]
        failures = targets["down/quick"].faults["http_500"]
        assert failures > 0
        assert targets["down/quick"].attempts == {"failed": failures}
        assert targets["sim/quick"].attempts == {"ok": 3}
        assert found.attempts == failures + 3
        assert (targets["sim/quick"].ttft_p50_ms or 0) > 1
        assert found.output_tokens == targets["sim/quick"].output_tokens > 3
        (web,) = found.clients
        assert (web.name, web.requests.all) == ("web", 4)
        assert web.requests_used == pytest.approx(4, abs=0.1)
        assert web.usd == pytest.approx(found.usd)
        assert web.usd_today == pytest.approx(found.usd)
        assert found.usd == pytest.approx((found.input_tokens + found.output_tokens) * 1000 / 1e6)

    play(configured(PLAYED), main)


@pytest.mark.usefixtures("noon")
def test_cost_of_today_before_a_restart_is_read_from_the_log(configured: Configured) -> None:  # noqa: F811
    spent: list[float] = []

    async def first(worker: GatewayWorker) -> None:
        assert (await visits(worker.gateway).asks(CHAT)).status == 200
        spent.append((await seen(worker)).usd)

    async def second(worker: GatewayWorker) -> None:
        found = await seen(worker)
        assert found.usd == 0
        assert found.usd_today == pytest.approx(spent[0])
        assert (await visits(worker.gateway).asks(CHAT)).status == 200
        worker.renew(configured(LOGGED))  # which drops the cached data
        found = await seen(worker)
        assert found.usd > 0
        assert found.usd_today == pytest.approx(spent[0] + found.usd)

    play(configured(LOGGED), first)
    play(configured(LOGGED), second)


def test_longer_periods_come_from_the_log(configured: Configured) -> None:  # noqa: F811
    async def main(worker: GatewayWorker) -> None:
        async def history(query: str) -> Visitor:
            return await visits(worker.gateway).asks(
                b"", path=f"/dashboard/history{query}", method="GET", headers=LOOKS
            )

        for _ in range(3):
            assert (await visits(worker.gateway).asks(CHAT)).status == 200
        assert (await seen(worker)).logged
        assert (await seen(worker)).calls[0].attempts[0].target == "sim/quick"
        assert worker.router.log is not None
        await eventually(lambda: worker.router.log is not None and worker.router.log.written == 3)
        for query in ("", "?hours=3", "?hours=x", f"?hours={'9' * 5000}"):
            assert (await history(query)).status == 400
        found = await history("?hours=1")
        assert (found.status, found.json["period_s"]) == (200, 60)
        assert sum(period["calls"] for period in found.json["periods"]) == 3
        assert (await visits(worker.gateway).asks(CHAT)).status == 200
        assert (await history("?hours=1")).body == found.body, "it is cached"

    play(configured(LOGGED), main)


def test_without_a_log_there_are_no_longer_periods(configured: Configured) -> None:  # noqa: F811
    async def main(worker: GatewayWorker) -> None:
        client = visits(worker.gateway)
        found = await client.asks(
            b"", path="/dashboard/history?hours=1", method="GET", headers=LOOKS
        )
        assert found.status == 404
        assert not (await seen(worker)).logged

    play(configured(PLAYED), main)


async def eventually(true: Callable[[], bool]) -> None:
    """Wait until the log's thread has done its work."""
    for _ in range(3_000):  # a minute
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the log has not written its records")


class Log:
    """A fake log. `days`: the use of today that each reading returns; None: the reading fails.
    `before`: that of the days before it, by any client or team."""

    def __init__(self, *days: list[SpentTokens] | None, before: Sequence[SpentTokens] = ()) -> None:
        self.days = [*days]
        self.before = [*before]
        self.asked: list[tuple[str, datetime]] = []

    def spent_tokens(self, client: str, since: datetime, until: datetime) -> list[SpentTokens]:
        if since.day == 1:
            return self.before
        self.asked.append((client, since))
        used = self.days.pop(0)
        if used is None:
            raise CallerFault("no disk", kind="log")
        return used

    team_tokens = spent_tokens


class Played:
    """Dashboard data in virtual time, which begins at `hour` of a day."""

    def __init__(self, settings: str, hour: float, log: Log | None = None) -> None:
        self.now_ns = 5 * NS_PER_S
        self._begun = datetime(2026, 11, 20, tzinfo=UTC).timestamp() + hour * 3600
        self.said: list[str] = []
        with self.clock():
            self.metrics = Metrics(billing=Billing(lambda each: 0.5))
            given: Any = log
            self.dashboard = DashboardData(
                self.metrics, TargetStates(), self.said.append, log=given
            )
            found = read(settings, {"WEB_KEY": KEY, "MORE_KEY": KEY + "-2"})
            self.dashboard.use(
                found, key_limits(found.keys, lambda each: None), TargetDirectory(found)
            )

    def clock(self) -> Any:
        return clock.using(
            lambda: self.now_ns, lambda: round((self._begun - 5) * NS_PER_S) + self.now_ns
        )

    def data(self, *, after_s: float) -> Overview:
        """Return the data `after_s` later."""
        self.now_ns += round(after_s * NS_PER_S)
        with self.clock():
            return msgspec.json.decode(asyncio.run(self.dashboard.data()), type=Overview)


PRICED = (
    "providers: {ours: {base_url: 'http://10.0.0.5/v1', price: {input_usd: 1, output_usd: 0}}}\n"
)
MILLION = [
    SpentTokens(target="ours/x", attempts=1, input_tokens=2_000_000),
    SpentTokens(target="free/x", attempts=1, input_tokens=9),
]


def test_cost_of_today_without_a_log_is_known_until_midnight() -> None:
    played = Played(PRICED, hour=22)
    played.metrics.add(record(attempt()))
    assert played.data(after_s=3600).usd_today == 0.5
    assert played.data(after_s=3500).usd_today == 0.5
    assert played.data(after_s=101).usd_today is None


def test_cost_of_today_restarts_at_midnight_with_one_log_read() -> None:
    log = Log(MILLION, [])
    played = Played(PRICED, hour=22, log=log)
    played.metrics.add(record(attempt()))
    # of which the counters' half a dollar is a part
    assert played.data(after_s=60).usd_today == pytest.approx(2)
    played.metrics.add(record(attempt()))
    assert played.data(after_s=60).usd_today == pytest.approx(2.5)
    assert played.data(after_s=7200).usd_today == pytest.approx(0)
    played.metrics.add(record(attempt()))
    assert played.data(after_s=60).usd_today == pytest.approx(0.5)
    midnights = [datetime(2026, 11, day, tzinfo=UTC) for day in (20, 21)]
    assert log.asked == [("", midnight) for midnight in midnights]


def test_log_is_read_for_each_configured_client() -> None:
    log = Log(MILLION, MILLION)
    keys = "keys: [{name: web, key: env:WEB_KEY}, {name: more, key: env:MORE_KEY}]\n"
    played = Played(PRICED + keys, hour=3, log=log)
    assert played.data(after_s=60).usd_today == pytest.approx(4)
    assert [client for client, _ in log.asked] == ["web", "more"]


def test_clients_and_teams_have_what_they_spent_in_the_month() -> None:
    log = Log([], MILLION, MILLION, before=MILLION)
    text = (
        "keys: [{name: web, key: env:WEB_KEY, team: ours}, {name: more, key: env:MORE_KEY}]\n"
        "teams: {ours: {requests_per_minute: 5}}\n"
    )
    played = Played(PRICED + text, hour=3, log=log)
    played.data(after_s=1)
    played.metrics.add(record(attempt()))
    found = played.data(after_s=60)
    spent = [(each.name, each.usd_today, each.usd_month) for each in (*found.clients, *found.teams)]
    assert spent == [("web", 0.5, 2.5), ("more", 2, 4), ("ours", 2.5, 4.5)]
    assert [name for name, _ in log.asked] == ["web", "more", "ours"]


def test_without_a_log_spending_is_known_since_the_start() -> None:
    played = Played(PRICED + "keys: [{name: web, key: env:WEB_KEY}]\n", hour=22)
    played.metrics.add(record(attempt()))
    found = [played.data(after_s=each).clients[0] for each in (60, 7200, 9 * 86_400)]
    assert [(each.usd_today, each.usd_month) for each in found] == [
        (0.5, 0.5),
        (None, 0.5),
        (None, 0.5),
    ]
    assert played.data(after_s=86_400).clients[0].usd_month is None  # the 1st of December


def test_a_log_that_cannot_be_read_is_reported_once() -> None:
    log = Log(None)
    played = Played(PRICED, hour=3, log=log)
    played.metrics.add(record(attempt()))
    assert played.data(after_s=2).usd_today == 0
    played.metrics.add(record(attempt()))
    assert played.data(after_s=2).usd_today == 0.5
    assert played.said == ["no disk. The dashboard counts today's cost from now on."]


def test_data_are_collected_at_most_once_a_second() -> None:
    played = Played(PRICED, hour=3)
    first = played.data(after_s=0)
    played.metrics.add(record(attempt()))
    assert played.data(after_s=0.9) == first
    assert played.data(after_s=0.2).requests.all == 1


def test_policies_are_previewed_a_few_at_a_time() -> None:
    routes = "".join(
        f"  r{number}: {{policy: '\"ours/m{number}\"'}}\n" for number in range(MAX_PREVIEWS + 2)
    )
    played = Played(f"{PRICED}routes:\n{routes}", hour=3)

    def not_previewed(after_s: float) -> list[str]:
        return [each.name for each in played.data(after_s=after_s).routes if each.now is None]

    assert not_previewed(0) == [f"r{MAX_PREVIEWS}", f"r{MAX_PREVIEWS + 1}"]
    assert not_previewed(2) == []


def test_a_changed_route_is_previewed_again() -> None:
    played = Played(f"{PRICED}routes: {{one: {{policy: '\"ours/m\"'}}}}\n", hour=3)

    def where() -> list[tuple[str, ...]]:
        (one,) = played.data(after_s=2).routes
        return [] if one.now is None else [choice.targets for choice in one.now]

    assert where() == [("ours/m",)]
    found = read(f"{PRICED}routes: {{one: {{policy: '\"ours/other\"'}}}}\n", {})
    played.dashboard.use(found, key_limits([], lambda each: None), TargetDirectory(found))
    assert where() == [("ours/other",)]


def test_gateway_process_serves_the_dashboard_data(served: ServedGateway) -> None:
    address = served.base_url.removesuffix("/v1")
    with urllib.request.urlopen(f"{address}/dashboard/data", timeout=WITHIN_S) as answer:
        found = msgspec.json.decode(answer.read(), type=Overview)
    assert {"fast", "safe", "late"} <= {each.name for each in found.routes}
    assert [each.name for each in found.clients] == ["web", "small"]
