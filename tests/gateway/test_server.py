"""One worker with all its parts: what it keeps when settings change, what it begins with, what it
writes down."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.cli.conftest import run_splitsecond
from tests.gateway.conftest import KEY, ServedGateway
from tests.gateway.visitor import CHAT, visits
from tests.noon import noon as noon  # a fixture
from tests.router.test_warm_start import run
from tests.store.records import answered
from tests.store.test_remote_writer import process as hub
from tests.waiting import WITHIN_S

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.prices import PriceLookup
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.process import worker as worker_module
from splitsecond.gateway.process.slot import SharedTables, WorkerSlot
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.gateway.process.worker_server import worker_server
from splitsecond.log.store.call_record import CallAccounting
from splitsecond.log.store.database import unwritten_stem
from splitsecond.log.store.log import Log, Past
from splitsecond.log.store.remote_writer import encode
from splitsecond.log.store.unwritten import save
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.router.settings import ProviderSettings
from splitsecond.routing.router.target_directory import TargetDirectory

pytestmark = pytest.mark.system

AS_WEB = {"authorization": f"Bearer {KEY}"}


def play(settings: GatewaySettings, play: Callable[[GatewayWorker], Awaitable[None]]) -> None:
    """A worker that learns while it is played with."""

    async def main() -> None:
        worker = GatewayWorker(settings)
        try:
            async with asyncio.TaskGroup() as group:
                learning = group.create_task(worker.learn())
                await play(worker)
                learning.cancel()
        finally:
            worker.close()

    asyncio.run(main())


Configured = Callable[[str], GatewaySettings]
PROVIDERS = """
providers:
  sim: {{base_url: {url}, price: {{input_usd: 1000, output_usd: 1000}}}}
  down: {{base_url: {url}, price: {{input_usd: 0, output_usd: 0}},
    headers: {{x-splitsecond-fault: "500"}}}}
"""
FAST = "routes: {fast: {policy: '\"sim/quick\"'}}\n"
DOWN = FAST.replace("sim", "down")
FASTEST = 'routes: {fast: {policy: \'fastest("down/quick", "sim/quick")\'}}\n'
OTHER = {"other": parse('"sim/quick"')}
LIMITED = "keys: [{name: web, key: env:WEB_KEY, usd_per_day: 0.02}]\n"
LOGGED = "log: sqlite:///log.db\n"


@pytest.fixture
def configured(served: ServedGateway, tmp_path: Path) -> Configured:
    """Settings with two simulated providers and more; relative paths begin in a folder of the
    test's."""

    def configured(more: str) -> GatewaySettings:
        return read(
            PROVIDERS.format(url=served.simulated.base_url) + more,
            {"WEB_KEY": KEY},
            folder=tmp_path,
        )

    return configured


def test_connections_are_kept_when_settings_change(configured: Configured) -> None:
    async def ask(worker: GatewayWorker) -> None:
        for settings in (FAST, FAST + "listen: {max_body_mib: 1}", FAST + LOGGED):
            worker.renew(configured(settings))
            assert (await visits(worker.gateway).asks(CHAT)).status == 200
            assert repr(worker) == "[origins: 1 | connections: 1 idle, 0 active]"

    play(configured(FAST), ask)


def test_unchanged_route_keeps_its_cache_after_a_hot_reload(configured: Configured) -> None:
    cached = 'routes: {fast: {policy: \'cache("sim/quick", ttl="1m", sampled=True)\'}}\n'

    async def ask(worker: GatewayWorker) -> None:
        assert [await cache_of(worker), await cache_of(worker)] == ["miss", "hit"]
        worker.renew(configured(cached + "listen: {max_body_mib: 1}"))
        assert await cache_of(worker) == "hit"
        worker.renew(configured(cached.replace("1m", "2m")))
        assert await cache_of(worker) == "miss"

    play(configured(cached), ask)


async def cache_of(worker: GatewayWorker) -> str:
    visitor = await visits(worker.gateway).asks(CHAT)
    assert visitor.status == 200
    return visitor.headers["x-splitsecond-cache"]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"x-splitsecond-fault": "401"}, "key_refused"),  # the same once more: it is tried again
        ({"x-splitsecond-fault": "400"}, "simulated"),
        ({}, None),
    ],
)
def test_rejected_key_is_retried_after_its_headers_change(
    configured: Configured, headers: dict[str, str], said: str | None
) -> None:
    found = configured(DOWN)

    def with_headers(headers: dict[str, str]) -> GatewaySettings:
        down = structs.replace(found.providers["down"], headers=headers)
        return structs.replace(found, providers={**found.providers, "down": down})

    async def main(worker: GatewayWorker) -> None:
        async def code() -> str | None:
            answer = (await visits(worker.gateway).asks(CHAT)).json
            return answer["error"]["code"] if "error" in answer else None

        assert [await code(), await code()] == ["key_refused", "ejected"]
        worker.renew(
            structs.replace(
                with_headers({"x-splitsecond-fault": "401"}), routes=dict(found.routes) | OTHER
            )
        )
        assert await code() == "ejected"  # of all that has changed nothing is about that target
        worker.renew(structs.replace(with_headers(headers), routes=dict(found.routes) | OTHER))
        assert await code() == said

    play(with_headers({"x-splitsecond-fault": "401"}), main)


def test_settings_that_cannot_be_built_change_nothing(configured: Configured) -> None:
    async def ask(worker: GatewayWorker) -> None:
        with pytest.raises(CallerFault, match=r"^routes\.fast\.policy: .*mars"):
            worker.renew(
                configured('routes: {fast: {policy: \'near("sim/a", "sim/b", region="mars")\'}}')
            )
        assert (await visits(worker.gateway).asks(CHAT)).status == 200

    play(configured(FAST), ask)


@pytest.mark.usefixtures("noon")
def test_a_limit_in_money_holds_and_outlives_a_restart(configured: Configured) -> None:
    async def asked(worker: GatewayWorker) -> str:
        visitor = await visits(worker.gateway).asks(CHAT, headers=AS_WEB)
        return "" if visitor.status == 200 else str(visitor.json["error"]["message"])

    async def spend(worker: GatewayWorker) -> None:
        assert await asked(worker) == ""  # 20 tokens, for 0.02 USD
        assert "has spent its 0.02 USD for today" in await asked(worker)

    async def spent(worker: GatewayWorker) -> None:
        assert "has spent its" in await asked(worker)

    play(configured(FAST + LIMITED + LOGGED), spend)
    play(configured(DOWN + LIMITED + LOGGED), spent)


TEAM = """
keys: [{name: web, key: env:WEB_KEY, team: research}]
teams: {research: {usd_per_month: 0.02}}
"""


@pytest.mark.usefixtures("noon")
def test_the_budget_of_a_team_outlives_a_restart_without_its_key(configured: Configured) -> None:
    async def spend(worker: GatewayWorker) -> None:
        assert (await visits(worker.gateway).asks(CHAT, headers=AS_WEB)).status == 200

    async def spent(worker: GatewayWorker) -> None:
        refused = await visits(worker.gateway).asks(CHAT, headers=AS_WEB)
        assert refused.status == 429
        message = refused.json["error"]["message"]
        assert "the team 'research' has spent its 0.02 USD for this month" in message

    play(configured(FAST + TEAM + LOGGED), spend)
    settings = configured(FAST + TEAM.replace("web,", "new,") + LOGGED)
    play(settings, spent)
    assert settings.log is not None
    since = clock.wall_time() - timedelta(days=1)
    ((_, record),) = Past.open(settings.log.url).calls(since)
    assert record.accounting == CallAccounting(team="research")
    for command, field in (("cost", "rows"), ("speed", "speeds")):
        asked = "--log", settings.log.url, "--by", "team", "--json", "-"
        rows = run_splitsecond(command, *asked).json[field]
        assert [row["name"] for row in rows] == ["research"]


@pytest.mark.usefixtures("noon")
def test_earlier_cost_of_a_target_that_has_left_is_reported(
    configured: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    async def spend(worker: GatewayWorker) -> None:
        assert (await visits(worker.gateway).asks(CHAT, headers=AS_WEB)).status == 200

    async def spent(worker: GatewayWorker) -> None:
        refused = await visits(worker.gateway).asks(CHAT, headers=AS_WEB)
        assert refused.status == 502

    play(configured(FAST + LIMITED + LOGGED), spend)
    settings = configured(DOWN + LIMITED + LOGGED)
    play(structs.replace(settings, providers={"down": settings.providers["down"]}), spent)
    assert "sim/quick has left the configuration and has no known price" in capsys.readouterr().err


@pytest.mark.usefixtures("noon")
def test_unwritten_calls_of_an_earlier_gateway_count_as_spent(
    configured: Configured, tmp_path: Path
) -> None:
    """The hub begins after the worker, and writes them into the log."""
    url = f"sqlite:///{tmp_path}/log.db"
    save(unwritten_stem(url), [encode(answered(1, client="web", target="sim/quick"))])
    (file,) = tmp_path.glob("log.db.unwritten-*")
    os.utime(file, (0, 0))

    async def spent(worker: GatewayWorker) -> None:
        with hub(url, tmp_path / "log"):
            while (
                visitor := await visits(worker.gateway).asks(CHAT, headers=AS_WEB)
            ).status != 429:
                assert visitor.status == 502
        assert "has spent its 0.02 USD" in visitor.json["error"]["message"]

    play(configured(DOWN + LIMITED + LOGGED), spent)


def test_unreadable_files_are_reported_and_not_awaited(
    configured: Configured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(worker_module, "EARLIER_S", worker_module.LOOK_S)
    (tmp_path / "log.db.unwritten-1").touch()
    os.utime(tmp_path / "log.db.unwritten-1", (0, 0))
    said = ""

    async def asked(worker: GatewayWorker) -> None:
        nonlocal said
        while "spending limits" not in said:
            await asyncio.sleep(0)
            said += capsys.readouterr().err

    play(configured(FAST + LIMITED + LOGGED), asked)
    assert (
        f"spending limits do not count earlier calls that wait in {tmp_path}/log.db.unwritten-*."
        in said
    )


def priced_by_the_list(settings: GatewaySettings) -> GatewaySettings:
    """Return `settings` with the provider "bare", whose prices are in the public list only, and a
    route to it."""
    return structs.replace(
        settings,
        providers={
            **settings.providers,
            "bare": ProviderSettings(like="groq", base_url=settings.providers["sim"].base_url),
        },
        routes={"fast": parse('"bare/quick"')},
    )


def slow_list(monkeypatch: pytest.MonkeyPatch, price: Price | None) -> list[str]:
    """Make the public list say `price` for each model, after a while. Return the models that are
    looked up."""
    looked_up: list[str] = []

    def look_up(facts: TargetDirectory, targets: Iterable[str]) -> PriceLookup:
        found = [facts._like(target) for target in targets if not facts.knows(target)]
        looked_up.extend(found)
        return PriceLookup(dict.fromkeys(found, price))

    monkeypatch.setattr(TargetDirectory, "look_up", look_up)
    monkeypatch.setattr(worker_module, "LEARN_S", 0.01)
    return looked_up


@pytest.mark.parametrize("model", ["bare/quick", "fast"], ids=["named by the client", "of a route"])
def test_a_burst_before_prices_are_known_holds_the_limit(
    configured: Configured, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    settings = priced_by_the_list(configured(FAST + LIMITED))
    looked_up = slow_list(monkeypatch, Price(input_usd=1000, output_usd=1000))

    async def main(worker: GatewayWorker) -> None:
        visitors = [visits(worker.gateway) for _ in range(5)]
        async with asyncio.TaskGroup() as group:
            for each in visitors:
                group.create_task(each.asks(CHAT | {"model": model}, headers=AS_WEB))
        assert [each.status for each in visitors] == [200, 429, 429, 429, 429]
        assert looked_up == ["groq/quick"]
        assert (
            await visits(worker.gateway).asks(CHAT | {"model": model}, headers=AS_WEB)
        ).status == 429

    play(settings, main)


def test_model_without_a_known_price_refuses_limited_keys(
    configured: Configured, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = priced_by_the_list(configured(FAST + LIMITED))
    slow_list(monkeypatch, None)

    async def main(worker: GatewayWorker) -> None:
        refused = await visits(worker.gateway).asks(CHAT, headers=AS_WEB)
        assert (refused.status, refused.json["error"]["code"]) == (403, "price_unknown")

    play(settings, main)
    assert (
        "bare/quick has no known price. Keys with a limit in USD cannot use it"
        in capfd.readouterr().err
    )


def test_prices_that_cannot_be_read_refuse_limited_keys(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(facts: TargetDirectory, targets: Iterable[str]) -> PriceLookup:
        raise CallerFault("the list is away", kind="no_prices")

    monkeypatch.setattr(TargetDirectory, "look_up", look_up)
    monkeypatch.setattr(worker_module, "COST_WAIT_S", 0.01)

    async def main(worker: GatewayWorker) -> None:
        refused = await visits(worker.gateway).asks(CHAT, headers=AS_WEB)
        assert (refused.status, refused.json["error"]["code"]) == (429, "cost_unknown")
        assert refused.headers["retry-after"] == "1"

    play(priced_by_the_list(configured(FAST + LIMITED)), main)


def test_only_the_first_worker_reports_what_all_read(
    configured: Configured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    settings, shared = configured(FAST + "seeds: [empty]"), SharedTables.create(2)
    for number in (0, 1):
        worker = GatewayWorker(settings, WorkerSlot(number=number, workers=2, shared=shared))
        try:
            asyncio.run(worker.router.warm_start())
        finally:
            worker.close()
    assert capsys.readouterr().err.count("no run at") == 1


def test_other_workers_wait_until_the_first_has_read_the_log(configured: Configured) -> None:
    settings, shared = configured(FAST + LIMITED + LOGGED), SharedTables.create(2)
    first, second = (
        GatewayWorker(settings, WorkerSlot(number=number, workers=2, shared=shared))
        for number in (0, 1)
    )
    try:
        assert (
            first._unknown(["sim/quick"]) == second._unknown(["sim/quick"]) == "what it has spent"
        )
        first._note_spending_read()
        assert first._unknown(["sim/quick"]) == second._unknown(["sim/quick"]) == ""
    finally:
        first.close()
        second.close()


def test_a_limit_in_money_holds_for_many_calls_at_once(configured: Configured) -> None:
    async def main(worker: GatewayWorker) -> None:
        visitors = [visits(worker.gateway) for _ in range(5)]
        async with asyncio.TaskGroup() as group:
            for each in visitors:
                group.create_task(each.asks(CHAT, headers=AS_WEB))
        assert [each.status for each in visitors] == [200, 429, 429, 429, 429]
        assert "its calls in flight may cost" in visitors[1].json["error"]["message"]

    play(configured(FAST + LIMITED), main)


@pytest.mark.parametrize(
    ("path", "body", "counted"),
    [
        ("/v1/chat/completions", {}, ("prompt_tokens", "completion_tokens")),
        ("/v1/messages", {"max_tokens": 9}, ("input_tokens", "output_tokens")),
        ("/v1/responses", {"input": "hi"}, ("input_tokens", "output_tokens")),
    ],
)
def test_response_header_states_the_cost_of_its_tokens(
    configured: Configured, path: str, body: dict[str, Any], counted: tuple[str, ...]
) -> None:
    async def main(worker: GatewayWorker) -> None:
        answer = await visits(worker.gateway).asks(CHAT | body, path=path)
        tokens = sum(answer.json["usage"][name] for name in counted)
        assert tokens > 0
        assert float(answer.headers["x-splitsecond-cost-usd"]) == pytest.approx(tokens * 1000 / 1e6)

    play(configured(FAST), main)


def test_readiness_is_503_as_soon_as_the_server_ends(configured: Configured) -> None:
    async def ask(worker: GatewayWorker) -> None:
        with socket.socket() as listening:
            running = worker_server(worker, listening, 30)
            for expected in (200, 503):
                assert (
                    await visits(worker.gateway).asks(path="/health/ready", method="GET")
                ).status == expected
                running.end()

    play(configured(FAST), ask)


def test_every_call_is_logged(configured: Configured, tmp_path: Path) -> None:
    async def ask(worker: GatewayWorker) -> None:
        for _ in range(3):
            await visits(worker.gateway).asks(CHAT)

    play(configured(FAST + LOGGED), ask)
    with Log.open(f"sqlite:///{tmp_path}/log.db") as log:
        calls = [record for _, record in log.calls(clock.wall_time() - timedelta(hours=1))]
    assert [(record.route, record.target, record.status) for record in calls] == [
        ("fast", "sim/quick", 200)
    ] * 3


def test_worker_takes_live_speed_from_its_seeds(configured: Configured, tmp_path: Path) -> None:
    run(tmp_path / "run", "down/quick")

    async def wait(worker: GatewayWorker) -> None:
        async with asyncio.timeout(WITHIN_S):
            while (known := worker.router.states.status("down/quick").ttft_p50_ns) is None:
                await visits(worker.gateway).asks(CHAT)
        # it has never answered this worker
        assert known == pytest.approx(300 * clock.NS_PER_MS, rel=0.1)

    play(configured(FASTEST + "seeds: [run]"), wait)
