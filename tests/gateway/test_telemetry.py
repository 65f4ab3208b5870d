"""OpenTelemetry: the spans and metrics that leave, in memory and from a gateway that serves."""

import gzip
from collections.abc import Iterator, Mapping
from concurrent import futures
from pathlib import Path
from random import Random
from typing import Any

import grpc  # type: ignore[import-untyped]
import openai
import pytest
from msgspec import structs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.gateway.conftest import KEY, ServedGateway, gateway, ready
from tests.gateway.test_served import ASK
from tests.http_server import Received, Response, http_server
from tests.waiting import WITHIN_S

from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.trace_context import span_id
from splitsecond.gateway.records import telemetry
from splitsecond.gateway.records.telemetry import Telemetry
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.settings import TelemetrySettings

MS = 1_000_000
CALL = "req-0af7651916cd43dd8448eb211c80319c"
CLIENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736


def attempt(number: int, target: str, **fields: Any) -> Observation:
    return Observation(
        id=f"{CALL}.{number}",
        call=CALL,
        target=target,
        start_ns=0,
        sent_ns=1 * MS,
        end_ns=500 * MS,
        **fields,
    )


FAULT = FaultRecord("ProviderFault", "http_500", "head", "no")
LOST = attempt(1, "groq/m", role="loser", outcome="failed", fault=FAULT)
WON = attempt(
    2, "azure-eu/"
    "gpt-4o", role="winner", first_token_ns=101 * MS, last_token_ns=401 * MS, output_tokens=31,
    input_tokens=20, cached_tokens=8, token_source="usage", token_lengths=[4] * 31,
    finish_reason="stop", status=200,
)  # fmt: skip
RECORD = CallRecord(
    call=CALL, start_ns=0, end_ns=510 * MS, first_token_ns=110 * MS, route="fast", client="web",
    stream=True,
    status=200, target="azure-eu/gpt-4o", traceparent=CLIENT, attempts=(LOST, WON),
)  # fmt: skip


class Exported:
    """What leaves, kept in memory."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str] = {}, **fields: Any
    ) -> None:
        self.spans_out, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        monkeypatch.setattr(
            "opentelemetry.sdk.metrics.export.PeriodicExportingMetricReader",
            lambda exporter, every_ms: exporter,
        )
        settings = TelemetrySettings(endpoint="http://unused", **fields)
        given: Any = (self.spans_out, self.reader)
        self.telemetry = Telemetry(settings, environment=environment, exporters=given)

    def spans(self, *records: CallRecord) -> list[ReadableSpan]:
        for record in records:
            self.telemetry.add(record)
        metrics: Any = self.reader.get_metrics_data()
        found = metrics.resource_metrics[0].scope_metrics[0].metrics if metrics else []
        self.points = {each.name: each.data.data_points for each in found}
        self.telemetry.close()
        return list(self.spans_out.get_finished_spans())


def test_call_span_joins_the_clients_trace_and_has_attempt_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call, lost, won = Exported(monkeypatch).spans(RECORD)
    assert [each.name for each in (call, lost, won)] == ["chat fast", "chat m", "chat gpt-4o"]
    assert {each.context.trace_id for each in (call, lost, won)} == {TRACE}
    assert call.parent is not None
    assert (call.parent.span_id, call.context.span_id) == (0xF067AA0BA902B7, span_id(CALL))
    assert {each.parent and each.parent.span_id for each in (lost, won)} == {span_id(CALL)}
    assert call.end_time - call.start_time == 510 * MS  # type: ignore[operator]
    assert won.end_time - won.start_time == 499 * MS  # type: ignore[operator]
    assert call.status.is_unset
    attributes = dict(won.attributes or {})
    assert attributes["gen_ai.provider.name"] == "azure.ai.openai"
    assert attributes["gen_ai.usage.output_tokens"] == 31
    assert attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.1)
    assert dict(lost.attributes or {})["error.type"] == "http_500"
    assert not lost.status.is_unset
    assert dict(call.attributes or {})["splitsecond.target"] == "azure-eu/gpt-4o"


def test_metrics_count_the_call_once_and_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = Exported(monkeypatch)
    exported.spans(RECORD)
    (call,) = exported.points["gen_ai.server.request.duration"]
    assert (call.count, call.sum) == (1, pytest.approx(0.51))
    assert call.explicit_bounds[:2] == (0.01, 0.02)
    assert call.explicit_bounds[-1] == pytest.approx(81.92)
    (first,) = exported.points["gen_ai.server.time_to_first_token"]
    assert first.sum == pytest.approx(0.11)
    (token,) = exported.points["gen_ai.server.time_per_output_token"]
    assert token.sum == pytest.approx(0.01)
    attempts = exported.points["gen_ai.client.inference.duration"]
    assert {each.attributes.get("error.type") for each in attempts} == {"http_500", None}
    (cached,) = exported.points["gen_ai.client.inference.usage.cache_read.input_tokens"]
    assert cached.value == 8
    assert "gen_ai.client.operation.duration" not in exported.points


def test_older_metric_names_are_exported_if_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = Exported(monkeypatch, {"OTEL_SEMCONV_STABILITY_OPT_IN": "http,gen_ai/dup"})
    exported.spans(RECORD)
    assert sum(each.count for each in exported.points["gen_ai.client.operation.duration"]) == 2
    assert {
        each.attributes["gen_ai.token.type"]
        for each in exported.points["gen_ai.client.token.usage"]
    } == {
        "input",
        "output",
    }
    assert "gen_ai.client.inference.duration" in exported.points


def test_client_flag_or_sample_share_decides_which_spans_export(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unsampled = structs.replace(RECORD, traceparent=CLIENT[:-1] + "0")
    without = [
        CallRecord(
            call=f"req-{Random(seed).getrandbits(128):032x}",
            start_ns=0,
            end_ns=1,
            route="fast",
            status=200,
        )
        for seed in range(400)
    ]
    exported = Exported(monkeypatch, sample=0.25)
    spans = exported.spans(RECORD, unsampled, *without)
    assert len([each for each in spans if each.context.trace_id == TRACE]) == 3
    assert 60 <= len(spans) - 3 <= 140
    assert sum(each.count for each in exported.points["gen_ai.server.request.duration"]) == 402


def test_missing_telemetry_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(settings: TelemetrySettings) -> Any:
        raise ModuleNotFoundError("No module named 'x'", name="opentelemetry.exporter")

    monkeypatch.setattr(telemetry, "_exporters", missing)
    with pytest.raises(CallerFault, match="package that is not installed") as caught:
        Telemetry(TelemetrySettings(endpoint="http://unused"))
    assert "splitsecond[otel]" in caught.value.hint


def test_telemetry_settings_are_read_and_checked(tmp_path: Path) -> None:
    text = (
        "telemetry: {endpoint: 'http://c:4318', headers: {authorization: 'env:OTLP'}, sample: 0.1}"
    )
    found = read(text, {"OTLP": "Basic abc"}, folder=tmp_path).telemetry
    assert found == TelemetrySettings(
        endpoint="http://c:4318", headers={"authorization": "Basic abc"}, sample=0.1
    )
    for wrong, why in (
        ("{endpoint: 'c:4318'}", "is not an address"),
        ("{endpoint: 'http://c', headers: {authorization: abc}}", "must not contain a secret"),
        ("{endpoint: 'http://c', sample: 2}", "telemetry.sample"),
        ("{}", "endpoint"),
    ):
        with pytest.raises(CallerFault, match=why):
            read(f"telemetry: {wrong}", {}, folder=tmp_path)


class Collector:
    """A collector of OTLP over HTTP and over gRPC: decodes everything that arrives."""

    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []

    def spans(self) -> list[Any]:
        return [
            span
            for each in self.traces
            for one in each.resource_spans
            for two in one.scope_spans
            for span in two.spans
        ]

    def metric_names(self) -> set[str]:
        return {
            metric.name
            for each in self.metrics
            for one in each.resource_metrics
            for two in one.scope_metrics
            for metric in two.metrics
        }


@pytest.fixture
def over_http() -> Iterator[tuple[str, Collector]]:
    collector = Collector()

    def receive(request: Received) -> Response:
        body = (
            gzip.decompress(request.body)
            if request.headers.get("content-encoding") == "gzip"
            else request.body
        )
        collector.headers.append(dict(request.headers))
        if request.path == "/v1/traces":
            collector.traces.append(ExportTraceServiceRequest.FromString(body))
        elif request.path == "/v1/metrics":
            collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
        return Response()

    with http_server(receive) as url:
        yield url, collector


@pytest.fixture
def over_grpc() -> Iterator[tuple[str, Collector]]:
    collector = Collector()

    class Traces(TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportTraceServiceResponse:
            collector.headers.append(dict(context.invocation_metadata()))
            collector.traces.append(request)
            return ExportTraceServiceResponse()

    class MetricsReceiver(MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportMetricsServiceResponse:
            collector.metrics.append(request)
            return ExportMetricsServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call]
    add_MetricsServiceServicer_to_server(MetricsReceiver(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", collector
    server.stop(None).wait()


CONFIGURATION = """
keys: [{{name: web, key: env:WEB_KEY}}]
providers:
  sim: {{base_url: {simulated}, trusted: true}}
  other: {{base_url: {simulated}}}
  down: {{base_url: {simulated}, headers: {{x-splitsecond-fault: "500"}}, trusted: true}}
routes: {{fast: {{policy: 'fallback("down/quick", "sim/quick")'}}}}
telemetry: {{endpoint: "{endpoint}", protocol: {protocol}, headers: {{authorization: env:WEB_KEY}}}}
"""


@pytest.mark.system
@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("number", ["1", "2"])
def test_a_gateway_exports_to_a_collector(
    tmp_path: Path,
    served: ServedGateway,
    request: pytest.FixtureRequest,
    protocol: str,
    number: str,
) -> None:
    endpoint, collector = request.getfixturevalue(f"over_{protocol}")
    settings = CONFIGURATION.format(
        simulated=served.simulated.base_url, endpoint=endpoint, protocol=protocol
    )
    (tmp_path / "splitsecond.yaml").write_text(settings)
    with gateway(tmp_path, "--workers", number) as process:
        with openai.OpenAI(
            base_url=ready(process), api_key=KEY, max_retries=0, timeout=WITHIN_S
        ) as client:
            client.chat.completions.create(
                model="fast", messages=ASK, max_tokens=2, extra_headers={"traceparent": CLIENT}
            )
        process.terminate()
        assert process.wait(WITHIN_S) == 0
    (call,) = (span for span in collector.spans() if span.name == "chat fast")
    attempts = [span for span in collector.spans() if span.name == "chat quick"]
    assert {span.trace_id.hex() for span in (call, *attempts)} == {f"{TRACE:032x}"}
    assert {span.parent_span_id for span in attempts} == {call.span_id}
    assert len(attempts) >= 2
    assert "gen_ai.server.request.duration" in collector.metric_names()
    assert collector.headers[0]["authorization"] == KEY


@pytest.mark.system
@pytest.mark.parametrize("trusted", [True, False])
def test_only_trusted_targets_get_the_trace(
    tmp_path: Path, served: ServedGateway, trusted: bool
) -> None:
    canned = next(
        line
        for line in (served.folder / "splitsecond.yaml").read_text().splitlines()
        if "canned:" in line
    )
    entry = canned.replace("}", f", trusted: {str(trusted).lower()}}}")
    (tmp_path / "splitsecond.yaml").write_text(
        f"keys: [{{name: web, key: env:WEB_KEY}}]\nproviders:\n{entry}\n"
    )
    seen = len(served.asked)
    with (
        gateway(tmp_path) as process,
        openai.OpenAI(
            base_url=ready(process), api_key=KEY, max_retries=0, timeout=WITHIN_S
        ) as client,
    ):
        client.chat.completions.create(
            model="canned/m", messages=ASK, extra_headers={"traceparent": CLIENT}
        )
    headers = {name.lower(): value for name, value in served.asked[seen][0].items()}
    if trusted:
        assert headers["traceparent"].startswith(CLIENT[:36])
        assert headers["traceparent"] != CLIENT
    else:
        assert "traceparent" not in headers
