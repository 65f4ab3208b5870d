"""OpenTelemetry: a span for each call with one child for each attempt, and metrics of both,
exported by OTLP.

Names follow the semantic conventions for generative AI, schema gen-ai/1.42.0 (status: development).
The value ``gen_ai/dup`` of ``OTEL_SEMCONV_STABILITY_OPT_IN`` adds the metrics under their names
before 1.42. What the conventions do not name begins with `splitsecond.`.

The OpenTelemetry SDK, an extra, exports them in threads of its own; its variables ``OTEL_*`` apply.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from splitsecond import __version__
from splitsecond.core import clock
from splitsecond.core.catalog.provider import split_target
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.trace_context import span_id, trace_context
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.router.settings import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

SCOPE = "splitsecond"
SCHEMA = "https://opentelemetry.io/schemas/gen-ai/1.42.0"
DURATIONS_S = tuple(0.01 * 2**power for power in range(14))
"""Bounds of the histograms of durations, as the conventions advise: 0.01 to 81.92 s."""
TOKENS_PER = tuple(4**power for power in range(14))
"""Bounds of the histogram of tokens, as the conventions advise: 1 to 67,108,864."""
OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
BOTH_NAMES = "gen_ai/dup"
CLOSE_MS = 5_000
"""Timeout of the last export."""

_OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings"}
"""Operations whose names in the conventions differ from "chat"; those without a name keep ours."""
_PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Well-known values of ``gen_ai.provider.name``; other providers have their names in the
catalogue."""

_TOKENS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cache_read.input_tokens",
    "cache_write_tokens": "cache_write.input_tokens",
    "reasoning_tokens": "reasoning.output_tokens",
}
"""Counts of an observation, and their names in the conventions."""

Attributes = dict[str, str | bool | int | float | list[str]]


class _SpanIds(NamedTuple):
    trace: int
    span: int
    parent: int


class Telemetry:
    def __init__(
        self,
        settings: TelemetrySettings,
        *,
        worker: int = 0,
        environment: Mapping[str, str] = os.environ,
        exporters: "tuple[SpanExporter, MetricExporter] | None" = None,
    ) -> None:
        """`exporters`: instead of those of `settings`.

        Raises `CallerFault` if OpenTelemetry is not installed.
        """
        try:
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope

            spans, metrics = exporters or _exporters(settings)
        except ImportError as error:
            raise CallerFault(
                f"telemetry needs a package that is not installed: {error.name}",
                kind="missing_package",
                hint="pip install 'splitsecond[otel]'",
            ) from None
        attributes: Attributes = {
            "service.version": __version__,
            "service.instance.id": f"{os.getpid()}-{worker}",
        }
        if not environment.get("OTEL_SERVICE_NAME"):
            attributes["service.name"] = "splitsecond"
        self._resource = Resource.create(attributes)
        self._scope = InstrumentationScope(SCOPE, __version__, SCHEMA)
        self._sampled_below = TraceIdRatioBased.get_bound_for_rate(settings.sample)
        self._processor = BatchSpanProcessor(spans)
        self._metrics = MeterProvider(
            [PeriodicExportingMetricReader(metrics, settings.metrics_every_s * 1000)],
            self._resource,
        )
        meter = self._metrics.get_meter(SCOPE, __version__, SCHEMA)

        def seconds(name: str, what: str) -> Callable[[float, Attributes], None]:
            instrument = meter.create_histogram(
                f"gen_ai.{name}", "s", what, explicit_bucket_boundaries_advisory=list(DURATIONS_S)
            )
            return instrument.record

        def tokens(name: str) -> Callable[[int, Attributes], None]:
            instrument = meter.create_counter(
                f"gen_ai.client.inference.usage.{name}", "{token}", "Tokens of attempts."
            )
            return instrument.add

        self._call_s = seconds("server.request.duration", "A client's call, to its last byte.")
        self._call_ttft_s = seconds(
            "server.time_to_first_token", "A client's call, to its first token."
        )
        self._call_token_s = seconds(
            "server.time_per_output_token", "Between the output tokens of a call."
        )
        self._attempt_s = [
            seconds("client.inference.duration", "A request to a target, to its end.")
        ]
        self._first_chunk_s = seconds(
            "client.inference.time_to_first_chunk", "A request, to its first token."
        )
        self._chunk_s = seconds(
            "client.inference.time_per_output_chunk", "Between the output tokens of an attempt."
        )
        self._usage = {field: tokens(name) for field, name in _TOKENS.items()}
        self._old_usage: Callable[[int, Attributes], None] | None = None
        if BOTH_NAMES in environment.get(OPT_IN, "").split(","):
            self._attempt_s.append(
                seconds("client.operation.duration", "A request to a target, to its end.")
            )
            self._old_usage = meter.create_histogram(
                "gen_ai.client.token.usage",
                "{token}",
                "Tokens of an attempt.",
                explicit_bucket_boundaries_advisory=list(TOKENS_PER),
            ).record

    def add(self, record: CallRecord) -> None:
        self._measure(record)
        context = trace_context(record.call, record.traceparent)
        low_bits = context.trace & ((1 << 64) - 1)
        if low_bits < self._sampled_below if context.sampled is None else context.sampled:
            self._trace(record, context.trace, context.parent)

    def close(self) -> None:
        self._processor.force_flush(CLOSE_MS)
        self._processor.shutdown()  # type: ignore[no-untyped-call]
        self._metrics.shutdown(CLOSE_MS)

    def _measure(self, record: CallRecord) -> None:
        call: Attributes = {
            "gen_ai.operation.name": _operation(record),
            "gen_ai.provider.name": "splitsecond",
            "gen_ai.request.model": record.route_label,
        }
        if record.outcome != "ok":
            call["error.type"] = _error(record)
        self._call_s(_seconds(record.end_ns - record.start_ns), call)
        winner = next((each for each in record.attempts if each.role == "winner"), None)
        if winner is not None and record.first_token_ns is not None and winner.streamed:
            self._call_ttft_s(_seconds(record.first_token_ns - record.start_ns), call)
            if winner.tps:
                self._call_token_s(1 / winner.tps, call)
        for attempt in record.attempts:
            self._measure_attempt(attempt, _attempt_attributes(record, attempt))

    def _measure_attempt(self, attempt: Observation, attributes: Attributes) -> None:
        for add in self._attempt_s:
            add(_seconds(attempt.end_ns - attempt.start_ns), attributes)
        if attempt.streamed and attempt.ttft_ns is not None:
            self._first_chunk_s(_seconds(attempt.ttft_ns), attributes)
            if attempt.tps:
                self._chunk_s(1 / attempt.tps, attributes)
        for name, add_tokens in self._usage.items():
            if count := getattr(attempt, name):
                add_tokens(count, attributes)
        if self._old_usage is not None:
            for kind in ("input", "output"):
                if count := getattr(attempt, f"{kind}_tokens"):
                    self._old_usage(count, attributes | {"gen_ai.token.type": kind})

    def _trace(self, record: CallRecord, trace: int, parent: int) -> None:
        offset_ns = clock.wall_offset_ns()
        span = span_id(record.call)
        name = f"{_operation(record)} {record.route}"
        self._processor.on_end(
            self._span(name, _SpanIds(trace, span, parent), _call_attributes(record),
            record.start_ns + offset_ns,
                       record.end_ns + offset_ns, server=True, error=_error(record))
        )  # fmt: skip
        for attempt in record.attempts:
            attributes = _attempt_attributes(record, attempt) | _attempt_details(attempt)
            name = f"{_operation(record)} {split_target(attempt.target)[1]}"
            ids = _SpanIds(trace, span_id(attempt.id), span)
            begin_ns = attempt.sent_ns or attempt.start_ns
            self._processor.on_end(
                self._span(name, ids, attributes, begin_ns + offset_ns, attempt.end_ns + offset_ns,
                           server=False, error="" if attempt.fault is None else attempt.fault.kind)
            )  # fmt: skip

    def _span(
        self,
        name: str,
        ids: _SpanIds,
        attributes: Attributes,
        start_ns: int,
        end_ns: int,
        *,
        server: bool,
        error: str,
    ) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        flags = TraceFlags(TraceFlags.SAMPLED)
        return ReadableSpan(
            name,
            SpanContext(ids.trace, ids.span, is_remote=False, trace_flags=flags),
            SpanContext(ids.trace, ids.parent, is_remote=server, trace_flags=flags)
            if ids.parent
            else None,
            self._resource,
            attributes,
            kind=SpanKind.SERVER if server else SpanKind.CLIENT,
            status=Status(StatusCode.ERROR if error else StatusCode.UNSET),
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=self._scope,
        )


def _exporters(settings: TelemetrySettings) -> "tuple[SpanExporter, MetricExporter]":
    headers = {name.lower(): value for name, value in settings.headers.items()}
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import metric_exporter, trace_exporter

        insecure = not settings.endpoint.startswith("https:")
        return (
            trace_exporter.OTLPSpanExporter(settings.endpoint, insecure=insecure, headers=headers),
            metric_exporter.OTLPMetricExporter(
                settings.endpoint, insecure=insecure, headers=headers
            ),
        )
    from opentelemetry.exporter.otlp.proto.http import metric_exporter as over_http
    from opentelemetry.exporter.otlp.proto.http import trace_exporter as spans_over_http

    base = settings.endpoint.rstrip("/")
    return (
        spans_over_http.OTLPSpanExporter(f"{base}/v1/traces", headers=headers),
        over_http.OTLPMetricExporter(f"{base}/v1/metrics", headers=headers),
    )


def _call_attributes(record: CallRecord) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": _operation(record),
        "gen_ai.provider.name": "splitsecond",
        "gen_ai.request.model": record.route,
        "gen_ai.request.stream": record.stream,
        "http.response.status_code": record.status,
        "splitsecond.call": record.call,
        "splitsecond.attempts": len(record.attempts),
    }
    if record.outcome != "ok":
        attributes["error.type"] = _error(record)
    if record.first_token_ns is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = _seconds(
            record.first_token_ns - record.start_ns
        )
    optional = (
        ("splitsecond.target", record.target),
        ("splitsecond.cache", record.cache),
        ("user.name", record.client),
    )
    attributes |= {name: value for name, value in optional if value}
    return attributes


def _attempt_attributes(record: CallRecord, attempt: Observation) -> Attributes:
    provider, model = split_target(attempt.target)
    attributes: Attributes = {
        "gen_ai.operation.name": _operation(record),
        "gen_ai.provider.name": _PROVIDERS.get(provider)
        or _PROVIDERS.get(provider.partition("-")[0], provider),
        "gen_ai.request.model": model,
        "splitsecond.target": attempt.target,
        "splitsecond.role": attempt.role,
    }
    if attempt.fault is not None:
        attributes["error.type"] = attempt.fault.kind
    return attributes


def _attempt_details(attempt: Observation) -> Attributes:
    details: Attributes = {
        "splitsecond.attempt": attempt.id,
        "splitsecond.outcome": attempt.outcome,
        "gen_ai.request.stream": attempt.streamed,
    }
    if attempt.status:
        details["http.response.status_code"] = attempt.status
    if attempt.streamed and attempt.ttft_ns is not None:
        details["gen_ai.response.time_to_first_chunk"] = _seconds(attempt.ttft_ns)
    if attempt.finish_reason:
        details["gen_ai.response.finish_reasons"] = [attempt.finish_reason]
    counts = {name: getattr(attempt, field) for field, name in _TOKENS.items()}
    return details | {
        f"gen_ai.usage.{name}": count for name, count in counts.items() if count is not None
    }


def _operation(record: CallRecord) -> str:
    return _OPERATIONS.get(record.operation, record.operation)


def _error(record: CallRecord) -> str:
    return "" if record.outcome == "ok" else record.fault or record.outcome


def _seconds(ns: int) -> float:
    return ns / clock.NS_PER_S
