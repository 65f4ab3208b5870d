"""Counters: what they count, in Prometheus' own reading, alone and of several processes; and who
may read them."""

import asyncio
import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from msgspec import Struct, structs
from prometheus_client.parser import text_string_to_metric_families
from tests.cases import each_case
from tests.gateway.visitor import CHAT, STREAM, visitor, visits
from tests.serving.fake_client import Transport
from tests.waiting import eventually

from splitsecond.core.errors import ProviderFault
from splitsecond.core.money.closed_early import Billing
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.gateway.hub.messages import ToWorker
from splitsecond.gateway.hub.process import Hub
from splitsecond.gateway.records import metrics as metrics_room
from splitsecond.gateway.records.exposition import exposed
from splitsecond.gateway.records.metric_fields import BUCKETS_S, MetricCounts, ProcessMetrics
from splitsecond.gateway.records.metrics import LogState, Metrics, WorkerMetrics
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.hub_connection import HubConnection
from splitsecond.routing.configuration.settings import Listen, MetricsFor
from splitsecond.routing.policies.race import race
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

S = 1_000_000_000
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    """All values in `text`, by name and labels."""
    return {
        (
            sample.name.removeprefix("splitsecond_"),
            tuple(sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


def attempt(target: str = "a/x", *, ttft_ns: int | None = S // 10, **fields: Any) -> Observation:
    first = None if ttft_ns is None else ttft_ns
    return Observation(id="r.1", call="r", target=target, sent_ns=0, first_token_ns=first, **fields)


def record(*attempts: Observation, **fields: Any) -> CallRecord:
    given = {
        "call": "r",
        "start_ns": 0,
        "end_ns": S,
        "first_token_ns": S // 5,
        "route": "fast",
        "client": "web",
    }
    return CallRecord(**{**given, "status": 200, "target": "a/x", "attempts": attempts, **fields})


def test_known_costs_of_attempts_are_summed_by_client_and_target() -> None:
    metrics = Metrics(
        billing=Billing(
            lambda attempt: None if attempt.target == "b/x" else 0.25 * (attempt.output_tokens or 0)
        )
    )
    for _ in range(2):
        metrics.add(record(attempt(output_tokens=2), attempt("b/x", role="loser")))
    found = samples(exposed(metrics))
    assert value(found, "cost_usd_total", client="web", target="a/x") == 1.0
    assert value(found, "cost_usd_total", client="web", target="b/x") is None


def test_odd_fields_of_answers_are_counted_by_target() -> None:
    metrics = Metrics()
    metrics.add(record(attempt(odd_fields=["usage", "finish_reason"]), attempt("b/x")))
    found = samples(exposed(metrics))
    assert value(found, "odd_answers_total", target="a/x", field="usage") == 1
    assert value(found, "odd_answers_total", target="a/x", field="finish_reason") == 1
    assert value(found, "odd_answers_total", target="b/x", field="usage") is None


def test_loser_without_usage_costs_the_winners_prompt() -> None:
    def cost(attempt: Observation) -> float | None:
        tokens_in, tokens_out = attempt.input_tokens, attempt.output_tokens
        return None if tokens_in is None or tokens_out is None else tokens_in + 10.0 * tokens_out

    def lost(target: str, **fields: Any) -> Observation:
        return attempt(target, ttft_ns=None, role="loser", outcome="cancelled", **fields)

    metrics = Metrics(billing=Billing(cost))
    won = attempt(role="winner", input_tokens=7, output_tokens=2)
    unsent = structs.replace(lost("e/x"), sent_ns=None)
    losers = [
        lost("b/x"),
        lost("c/x", input_tokens=9),
        lost("d/x", input_tokens=7, output_tokens=1),
        unsent,
    ]
    metrics.add(record(won, *losers))
    found = samples(exposed(metrics))
    for target, usd in {"b/x": 7, "c/x": 9, "d/x": 17}.items():
        assert value(found, "lost_cost_usd_total", target=target) == usd
        assert value(found, "cost_usd_total", client="web", target=target) == usd
    assert value(found, "cost_usd_total", client="web", target="a/x") == 27
    assert value(found, "attempts_lost_total", target="e/x") == 1
    assert value(found, "lost_cost_usd_total", target="e/x") is None


@pytest.mark.parametrize(
    ("stops", "low", "expected", "high"),
    [(True, 17, 17, 17), (False, 17, 507, 4007), (None, 17, 17, 4007)],
)
def test_cost_of_a_loser_follows_its_providers_billing_rule(
    stops: bool | None, low: int, expected: int, high: int
) -> None:
    """One token had arrived; the winner has 50, and the client allows 400."""
    metrics = Metrics(
        billing=Billing(
            lambda attempt: (attempt.input_tokens or 0) + 10.0 * (attempt.output_tokens or 0),
            {"b/x": stops}.get,
        )
    )
    lost = attempt("b/x", role="loser", outcome="cancelled", input_tokens=7, output_tokens=1)
    metrics.add(
        record(attempt(role="winner", input_tokens=7, output_tokens=50), lost, output_limit=400)
    )
    found = samples(exposed(metrics))
    names = ("lost_cost_low_usd_total", "lost_cost_usd_total", "lost_cost_high_usd_total")
    assert [value(found, name, target="b/x") for name in names] == [low, expected, high]
    assert value(found, "cost_usd_total", client="web", target="b/x") == expected


def test_attempts_are_counted_by_route_but_exposed_without_it() -> None:
    metrics = Metrics()
    for route in ("fast", "safe", "safe", "a/x"):
        metrics.add(record(attempt(), route=route))
    assert metrics.counts.attempts == {
        ("fast", "a/x", "ok", ""): 1, ("safe", "a/x", "ok", ""): 2, ("direct", "a/x", "ok", ""): 1
    }  # fmt: skip
    assert (
        value(samples(exposed(metrics)), "attempts_total", target="a/x", outcome="ok", fault="")
        == 4
    )


def test_a_call_is_counted_once_with_its_attempts() -> None:
    metrics = Metrics(
        available=lambda: {"a/x": True, "b/x": False}, log=lambda: LogState(dropped=3)
    )
    metrics.in_flight = 2
    lost = attempt("b/x", ttft_ns=None, role="loser", outcome="cancelled")
    metrics.add(record(attempt(role="winner", input_tokens=7, output_tokens=5), lost, cache="miss"))
    fault = FaultRecord(type="ProviderFault", kind="http_500", phase="head", message="down")
    metrics.add(
        record(attempt(ttft_ns=None, role="loser", outcome="failed", fault=fault), status=502,
        target="",
               first_token_ns=None)
    )  # fmt: skip
    metrics.refused(401)
    found = samples(exposed(metrics))
    assert value(found, "requests_total", route="fast", client="web", status="200") == 1
    assert value(found, "requests_total", route="fast", client="web", status="502") == 1
    assert value(found, "requests_total", route="", client="", status="401") == 1
    assert value(found, "attempts_total", target="a/x", outcome="ok", fault="") == 1
    assert value(found, "attempts_total", target="a/x", outcome="failed", fault="http_500") == 1
    assert value(found, "attempts_lost_total", target="b/x") == 1
    assert value(found, "cache_total", route="fast", result="miss") == 1
    assert value(found, "tokens_total", target="a/x", direction="input") == 7
    assert value(found, "tokens_total", target="a/x", direction="output") == 5
    assert value(found, "target_available", target="a/x") == 1
    assert value(found, "target_available", target="b/x") == 0
    assert value(found, "requests_in_flight") == 2
    assert value(found, "log_dropped_total") == 3
    pid = str(os.getpid())
    assert (value(found, "process_resident_memory_bytes", pid=pid) or 0) > 1e6
    assert (value(found, "process_cpu_seconds_total", pid=pid) or 0) > 0


def test_every_counter_and_gauge_is_exposed() -> None:
    shown = exposed(Metrics()).decode()
    fields = {
        **get_type_hints(MetricCounts, include_extras=True),
        **get_type_hints(ProcessMetrics, include_extras=True),
    }
    families = {
        name: [each.name for each in getattr(hint, "__metadata__", ())]
        for name, hint in fields.items()
    }
    assert {name for name, found in families.items() if not found} == {"pid", "began_ns"}
    for (name,) in filter(None, families.values()):
        assert f"# HELP splitsecond_{name}" in shown


def test_times_to_first_token_are_in_their_buckets() -> None:
    metrics = Metrics()
    for ns in (1, S // 10, S // 10 + 1, 100 * S):
        metrics.add(record(attempt(ttft_ns=ns), first_token_ns=ns))
    found = samples(exposed(metrics))
    for name, label in (
        ("target_ttft_seconds", {"target": "a/x"}),
        ("route_ttft_seconds", {"route": "fast"}),
    ):
        upto = {
            bound: value(found, f"{name}_bucket", le=bound, **label)
            for bound in ("0.05", "0.1", "0.15", "60.0")
        }
        assert upto == {"0.05": 1, "0.1": 2, "0.15": 3, "60.0": 3}
        assert value(found, f"{name}_bucket", le="+Inf", **label) == 4
        assert value(found, f"{name}_count", **label) == 4
        assert value(found, f"{name}_sum", **label) == pytest.approx(100.2)
    assert list(BUCKETS_S) == sorted(BUCKETS_S)


def test_whole_answers_have_no_time_to_first_token() -> None:
    metrics = Metrics()
    metrics.add(
        record(msgspec.structs.replace(attempt(ttft_ns=S), streamed=False), first_token_ns=S)
    )
    assert metrics.counts.target_ttft == {}
    assert metrics.counts.route_ttft == {}


def test_targets_beyond_the_maximum_share_the_label_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_room, "MAX_TARGETS", 3)
    metrics = Metrics()
    for number in range(20):
        metrics.add(record(attempt(f"groq/model-{number}"), route=f"groq/model-{number}"))
    metrics.add(record(attempt("groq/model-0")))
    found = samples(exposed(metrics))
    assert value(found, "requests_total", route="direct", client="web", status="200") == 20
    assert value(found, "attempts_total", target="other", outcome="ok", fault="") == 17
    assert value(found, "attempts_total", target="groq/model-0", outcome="ok", fault="") == 2


def test_unknown_models_do_not_displace_targets_of_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_room, "MAX_TARGETS", 3)
    metrics = Metrics(available=lambda: {"a/x": True})
    for number in range(20):
        metrics.add(record(attempt(f"groq/model-{number}")))
    metrics.add(record(attempt("a/x")))
    assert (
        value(samples(exposed(metrics)), "attempts_total", target="a/x", outcome="ok", fault="")
        == 1
    )


def test_control_characters_in_labels_are_escaped() -> None:
    metrics = Metrics()
    name = 'sim/\0\n\r\x1b[31m"\\\ud800\u2028'
    metrics.add(record(attempt(name), route=name))
    text = exposed(metrics).decode()
    assert all(c.isprintable() or c == "\n" for c in text)
    shown = 'sim/\\x00\\n\\r\\x1b[31m"\\\\ud800\\u2028'
    assert (
        value(samples(text.encode()), "attempts_total", target=shown, outcome="ok", fault="") == 1
    )


@contextlib.contextmanager
def hub(path: Path) -> Iterator[None]:
    """Run the loop of a hub without a log, in a thread."""
    end, close = os.pipe()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=Hub(lambda: (listening, None), end).run)
        thread.start()
        try:
            yield
        finally:
            os.close(close)
            thread.join()
            os.close(end)


def sent(metrics: Metrics) -> None:
    """Send the metrics to the hub now."""
    if metrics._timer is not None:
        metrics._timer.cancel()
    metrics._send()


def test_metrics_of_all_workers_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        one, two = (HubConnection(tmp_path / "hub", number, ToWorker) for number in range(2))
        metrics = Metrics(
            hub=one, available=lambda: {"a/x": True}, cascades=lambda: {"one": (0.25, False)}
        )
        metrics.counts.requests["fast", "web", 200] = 2
        cascades = {"one": (0.75, True), "two": (0.1, False)}
        other = Metrics(hub=two, available=lambda: {"a/x": False}, cascades=lambda: cascades)
        other.in_flight = 5
        other.counts.requests["fast", "web", 200] = 40
        other.counts.tokens["a/x", "output"] = 9
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 7)
            sent(other)
        found = samples(exposed(metrics, await metrics.others()))
        assert value(found, "requests_total", route="fast", client="web", status="200") == 42
        assert value(found, "tokens_total", target="a/x", direction="output") == 9
        assert value(found, "requests_in_flight") == 5
        assert value(found, "target_available", target="a/x") == 0.5
        assert [value(found, "cascade_escalated", policy=each) for each in ("one", "two")] == [
            0.5,
            0.1,
        ]
        assert [value(found, "cascade_dearer", policy=each) for each in ("one", "two")] == [0.5, 0]
        assert value(found, "process_cpu_seconds_total", pid="7") is not None
        two.close()
        three = HubConnection(tmp_path / "hub", 1, ToWorker)
        successor = Metrics(hub=three)
        assert three.open()
        await eventually(lambda: successor.counts.requests, "it inherits nothing")
        gone = samples(exposed(metrics, await metrics.others()))
        assert value(gone, "requests_total", route="fast", client="web", status="200") == 42
        assert value(gone, "requests_in_flight") == 0
        assert value(gone, "target_available", target="a/x") == 1
        sent(successor)
        again = samples(exposed(metrics, await metrics.others()))
        assert value(again, "requests_total", route="fast", client="web", status="200") == 42
        for each in (metrics, successor):
            each.close()
        one.close()
        three.close()

    with hub(tmp_path / "hub"):
        asyncio.run(main())


def test_metrics_without_a_hub_are_those_of_one_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_room, "ASK_S", 0.01)

    async def main() -> None:
        connection = HubConnection(tmp_path / "hub", 0, ToWorker)
        metrics = Metrics(hub=connection)
        assert await metrics.others() == []
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(tmp_path / "hub"))
            silent.listen()
            assert await metrics.others() == []
            assert await metrics.others() == []
        metrics.close()
        connection.close()

    asyncio.run(main())


def test_metrics_are_sent_a_second_after_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[WorkerMetrics] = []
    takes = [False, True]

    class Recorder(HubConnection):
        def post(self, message: Struct) -> bool:
            assert isinstance(message, WorkerMetrics)
            posted.append(message)
            return takes[min(len(posted), 2) - 1]

    async def main() -> None:
        metrics = Metrics(hub=Recorder(Path("hub")))
        metrics.add(record(attempt()))
        await asyncio.sleep(0.9)
        assert not posted
        metrics.add(record(attempt()))
        await asyncio.sleep(0.2)
        assert len(posted) == 1
        await asyncio.sleep(10)  # the hub did not take the first
        assert len(posted) == 2
        metrics.refused(404)
        await asyncio.sleep(1)
        assert len(posted) == 3
        metrics.close()

    run_virtual(main())


KEY = "a-key-of-a-client-of-ours"


def key(*routes: str) -> ClientKey:
    return ClientKey("web", hashlib.sha256(KEY.encode()).digest(), routes)


@pytest.mark.parametrize("path", ["/metrics", "/explain"])
def test_host_name_that_rebinds_to_loopback_is_refused(path: str) -> None:
    client = visitor(FakeService())
    run_virtual(
        client.asks(b"", path=path, method="GET", headers={"host": "points-here.example:8800"})
    )
    assert client.status == 403


@each_case(
    ("given", "peer", "routes", "presented", "status"),
    [
        ("loopback", "127.0.0.1", None, False, 200),
        ("loopback", "::1", ("*",), False, 200),
        ("loopback", "10.0.0.9", ("*",), False, 401),
        ("loopback", "10.0.0.9", ("*",), True, 200),
        ("loopback", "10.0.0.9", ("fast",), True, 403),
        ("loopback", "10.0.0.9", ("/metrics",), True, 200),
        ("loopback", "10.0.0.9", ("/explain",), True, 403),
        ("loopback", "", ("*",), False, 401),
        ("loopback", "10.0.0.9", None, False, 403),
        ("key", "127.0.0.1", ("*",), False, 401),
        ("key", "127.0.0.1", ("*",), True, 200),
        ("key", "127.0.0.1", None, False, 403),
        ("off", "127.0.0.1", ("*",), True, 404),
    ],
)
def test_access_to_metrics_depends_on_setting_key_and_peer(
    given: MetricsFor, peer: str, routes: Any, presented: bool, status: int
) -> None:
    async def main() -> None:
        keys = [] if routes is None else [key(*routes)]
        headers = {"authorization": f"Bearer {KEY}"} if presented else {}
        client = visitor(FakeService(), *keys, listen=Listen(metrics=given))
        client.transport = Transport(peer)
        await client.asks(b"", path="/metrics", method="GET", headers=headers)
        assert client.status == status
        if status == 200:
            assert client.headers["content-type"].startswith("text/plain")
            assert b"# TYPE splitsecond_requests_total counter" in client.body

    run_virtual(main())


def test_a_key_for_the_metrics_reaches_no_model() -> None:
    assert not any(key("/metrics").allows(name) for name in ("fast", "groq/fast", "*"))


@each_case("header", ["forwarded", "via", "x-forwarded-for", "x-real-ip"])
@each_case("path", ["/metrics", "/explain"])
def test_request_forwarded_by_a_local_proxy_is_not_local(path: str, header: str) -> None:
    async def main() -> None:
        client = await visitor(FakeService(), key("*")).asks(
            b"", path=path, method="GET", headers={header: "8.8.8.8"}
        )
        assert client.status == 401

    run_virtual(main())


def test_metrics_count_exactly_the_served_requests() -> None:
    async def main() -> None:
        metrics = Metrics()
        tracker = CallTracker(metrics.add)

        def fake(name: str, **script: Any) -> FakeService:
            return FakeService(script=lambda call: Script(**script), target=name)

        services = race(fake("a/x", ttft=0.1, tokens=3, input_tokens=2), fake("b/x", ttft=2.0))
        down = fake("c/x", fault=ProviderFault("no", kind="http_500", phase="head", status=500))
        given: dict[str, Any] = {"tracker": tracker, "metrics": metrics}
        for asking in (CHAT, STREAM):
            assert (await visitor(services, **given).asks(asking)).status == 200
        assert (await visitor(down, **given).asks(CHAT)).status == 502
        assert (await visitor(down, **given).asks({"model": "nope"})).status == 404
        client = visitor(services, **given)
        asyncio.get_running_loop().call_later(0.05, client.leave)
        await client.asks(STREAM)
        reader = visits(client.gateway)
        await reader.asks(b"", path="/metrics", method="GET")
        found = samples(reader.body)
        counted = {
            status: value(found, "requests_total", route="fast", client="", status=status)
            for status in ("200", "499", "502")
        }
        assert counted == {"200": 2, "499": 1, "502": 1}
        assert value(found, "requests_total", route="", client="", status="404") == 1
        assert value(found, "attempts_lost_total", target="b/x") == 2
        assert value(found, "requests_in_flight") == 0

    run_virtual(main())
