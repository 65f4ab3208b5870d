"""The router: built from settings or from an expression, warm from the log, renewed while calls are
in flight."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs
from tests.policies.attempts import answered

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.prices import PriceLookup
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.upstream.spec import Timeouts
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.router.router import ROUTE, Listeners, Router, explained_by_history
from splitsecond.routing.router.settings import RouterSettings
from splitsecond.routing.router.target_directory import TargetDirectory

TEXT = """
providers: {{ours: {{base_url: http://127.0.0.1:1/v1}}}}
routes: {{fast: {{policy: 'race("ours/a", "ours/b")'}}}}
log: sqlite:///{log}
"""


def settings(folder: Path) -> RouterSettings:
    return read(TEXT.format(log=folder / "log.db"), {})


def test_router_of_an_expression_needs_its_providers_keys_only() -> None:
    routes = {ROUTE: parse('race("groq/x", "openai/y")')}
    router = Router(
        RouterSettings(
            routes=routes, environment={"GROQ_API_KEY": "k" * 20, "OPENAI_API_KEY": "k" * 20}
        )
    )
    assert repr(router.routes.expression(ROUTE)) == 'race("groq/x", "openai/y")'
    assert router.service() is router.service(ROUTE)
    assert router.log is None
    router.close()
    with pytest.raises(CallerFault, match="OPENAI_API_KEY is not set"):
        Router(RouterSettings(routes=routes, environment={"GROQ_API_KEY": "k" * 20}))


def test_warm_start_fills_live_speed_from_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        first = Router(settings(tmp_path))
        made = Call(id="c", body={}, start_ns=clock.now_ns())
        made.notes.attempts = 1
        call = first.tracker.open(made, "fast")
        assert made.notes.observer is not None
        made.notes.observer(answered(200, target="ours/a"))
        first.tracker.close(call, 200)
        first.close()
        second = Router(settings(tmp_path))
        assert second.states.status("ours/a").ttft_p50_ns is None
        assert await second.warm_start() == 1
        assert second.states.status("ours/a").ttft_p50_ns is not None
        second.close()

    asyncio.run(main())


def test_observers_get_attempts_after_the_target_states() -> None:
    known: list[bool] = []

    def observe(attempt: Observation) -> None:
        known.append(router.states.status(attempt.target).ttft_p50_ns is not None)

    router = Router(RouterSettings(), listeners=Listeners(observe))
    assert router.states.status("ours/a").ttft_p50_ns is None
    router._observe(answered(200, target="ours/a"))
    assert known == [True]
    router.close()


def test_renewed_settings_keep_unchanged_routes_and_prices(tmp_path: Path) -> None:
    router = Router(settings(tmp_path))
    router.directory.learn(PriceLookup({"ours/a": Price(input_usd=1, output_usd=2)}))
    before = router.service("fast")
    router.renew(
        structs.replace(
            router.settings, routes={**router.settings.routes, "one": parse('"ours/b"')}
        )
    )
    assert router.service("fast") is before
    assert router.routed() == ["ours/a", "ours/b"]
    with pytest.raises(CallerFault, match="nobody-knows"):
        router.renew(structs.replace(router.settings, routes={"bad": parse('"nobody-knows/x"')}))
    assert router.service("one") is not None
    router.close()


def test_a_target_is_untested_only_once_its_address_changes(tmp_path: Path) -> None:
    router = Router(settings(tmp_path))
    for target in ("ours/a", "ours/b"):
        router._observe(answered(200, target=target))
    router.renew(router.settings)
    slower = structs.replace(router.settings.providers["ours"], timeouts=Timeouts(total_ms=9_000))
    router.renew(structs.replace(router.settings, providers={"ours": slower}))
    assert router.states.status("ours/a").state == "up"
    moved = structs.replace(slower, base_url="http://127.0.0.1:2/v1")
    router.renew(structs.replace(router.settings, providers={"ours": moved}))
    assert [router.states.status(target).state for target in ("ours/a", "ours/b")] == [
        "untested",
        "untested",
    ]
    router.close()


def test_prices_that_cannot_be_looked_up_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(directory: TargetDirectory, targets: object) -> PriceLookup:
        raise CallerFault("the prices could not be looked up")

    monkeypatch.setattr(TargetDirectory, "look_up", fails)
    said: list[str] = []

    async def main() -> None:
        found = await explained_by_history(settings(tmp_path), "fast", say=said.append)
        assert [each.status.target for each in found.targets] == ["ours/a", "ours/b"]

    asyncio.run(main())
    assert said == [
        "the prices could not be looked up. Targets without a price in the configuration have none."
    ]
