"""Result files of other benchmark tools, each recognised by its content.

Sources of the formats: vLLM's `vllm/benchmarks/serve.py`, SGLang 0.5's
`sglang/benchmark/serving.py`, AIPerf 0.2's to 0.13's `common/models/record_models.py`, GuideLLM
0.2's to 0.8's benchmarks, inference-perf 0.7's `reportgen/base.py`. Fields that are not needed may
have any value.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec
import yaml

from splitsecond.benchmark.foreign.result import ForeignLoad, ForeignRequest, ForeignResult
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault, content_faults, file_faults

KINDS = (
    "Known: `vllm bench serve --save-result --save-detailed`, SGLang's serving benchmark with "
    "--output-details, AIPerf's profile_export.jsonl, GuideLLM's JSON, and inference-perf's "
    "per_request_lifecycle_metrics.json."
)
SUFFIXES = (".json", ".jsonl")
MAX_BYTES = 2**30
UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}
"""Units of AIPerf's figures."""
NO_STARTS = (
    "the file does not say when requests began. They are placed as the load would have sent them, "
    "so throughput is not exact."
)

ONE_LOAD = (
    "the file does not name its load, so all requests are one row, and the most requests in flight "
    "count as its concurrency."
)
NO_TIME = -1.0
"""GuideLLM before 0.4 writes it where nothing was streamed."""

Object = dict[str, Any]


def read_result(path: Path) -> ForeignResult:
    """Read a result file of another tool. Raises `CallerFault` for any other file, or one without
    requests."""
    with file_faults(f"cannot read {path}", kind="no_run"):
        if path.stat().st_size > MAX_BYTES:
            raise CallerFault(f"{path} has more than {MAX_BYTES:,} bytes", kind="bad_run")
        data = path.read_bytes()
        saved = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    documents = _documents(data, path)
    for fits, read in _READERS:
        if documents and fits(documents[0]):
            with content_faults(f"{path}", kind="bad_run", hint=KINDS):
                result = _read(read, documents, path, saved)
            if not any(load.requests for load in result.loads):
                raise CallerFault(f"{path} contains no request", kind="bad_run")
            return result
    raise CallerFault(
        f"{path} is no result of a tool that is known here", kind="bad_run", hint=KINDS
    )


def _read(
    read: "Reader", documents: Sequence[Object], path: Path, saved: datetime
) -> ForeignResult:
    try:
        result = read(documents, path, saved)
        return msgspec.convert(msgspec.to_builtins(result), ForeignResult)  # checks all types
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        words = f"the field {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"it lacks something that its tool writes: {words}") from None


def _documents(data: bytes, path: Path) -> list[Any]:
    """Return the values of a JSON file, or of JSON lines, with NaN and Infinity, which these tools
    write."""
    with content_faults(f"{path} is not JSON", kind="bad_run", hint=KINDS):
        try:
            document = json.loads(data)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Extra data"):  # after the first line
                raise
            return [
                _line(line, number)
                for number, line in enumerate(data.splitlines(), start=1)
                if line.strip()
            ]
    return document if isinstance(document, list) else [document]


def _line(line: bytes, number: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number}: {error.msg}") from None


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(name in value for name in names)


def _details(documents: Sequence[Object], path: Path, saved: datetime) -> ForeignResult:
    first = documents[0]
    is_vllm = "model_id" in first
    server = first.get("server_info") or {}
    return ForeignResult(
        tool="vllm bench serve" if is_vllm else "SGLang's serving benchmark",
        model=str(
            first.get("model_id") or server.get("model_path") or first.get("backend") or "server"
        ),
        began=_vllm_date(first.get("date")) or saved,
        loads=[_detailed_load(each) for each in documents],
        missing=[] if "start_times" in first else [NO_STARTS],
    )


def _vllm_date(text: Any) -> datetime | None:
    try:
        return datetime.strptime(str(text), "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _detailed_load(document: Object) -> ForeignLoad:
    ttfts, gaps = document["ttfts"], document["itls"]
    count = len(ttfts)
    errors = document.get("errors") or [""] * count
    lengths = [t + sum(g) for t, g in zip(ttfts, gaps, strict=True)]
    rate = _number(document.get("request_rate"))
    concurrency = document.get("max_concurrency") if rate is None else None
    starts = document.get("start_times") or _placed(lengths, rate, concurrency or count)
    columns = zip(
        starts,
        lengths,
        ttfts,
        gaps,
        document["input_lens"],
        document["output_lens"],
        errors,
        strict=True,
    )
    return ForeignLoad(
        rate=rate,
        concurrency=None if rate is not None else int(concurrency or count),
        requests=[
            ForeignRequest(
                start_s=start,
                end_s=length,
                first_token_s=ttft,
                gaps_s=gap,
                input_tokens=int(prompt),
                output_tokens=int(output),
                error=str(error or ""),
            )
            for start, length, ttft, gap, prompt, output, error in columns
        ],
    )


def _number(value: Any) -> float | None:
    """Return a rate; None for "inf", infinity and words, such as "trace"."""
    try:
        rate = float(value)
    except (TypeError, ValueError):
        return None
    return rate if 0 < rate < float("inf") else None


def _placed(lengths: Sequence[float], rate: float | None, concurrency: int) -> list[float]:
    """Return when requests would have begun: one by one at a rate, or each when one before
    ended."""
    if rate is not None:
        return [number / rate for number in range(len(lengths))]
    free = [0.0] * min(concurrency, max(len(lengths), 1))
    starts = []
    for length in lengths:
        slot = min(range(len(free)), key=free.__getitem__)
        starts.append(free[slot])
        free[slot] += length
    return starts


def _aiperf(documents: Sequence[Object], path: Path, saved: datetime) -> ForeignResult:
    """Read the lines of profile_export.jsonl, and the settings in profile_export_aiperf.json beside
    it."""
    phases: dict[Any, list[Object]] = {}
    for each in documents:
        if each["metadata"].get("benchmark_phase") == "profiling":
            phases.setdefault(each["metadata"].get("phase_name"), []).append(each)
    settings = _beside(path, "profile_export_aiperf.json").get("input_config") or {}
    starts_ns = [
        each["metadata"]["request_start_ns"] for phase in phases.values() for each in phase
    ]
    return ForeignResult(
        tool="AIPerf",
        model=_aiperf_model(settings),
        began=datetime.fromtimestamp(min(starts_ns, default=0) / NS_PER_S, UTC),
        loads=[_aiperf_load(settings, name, requests) for name, requests in phases.items()],
    )


def _aiperf_model(settings: Object) -> str:
    models = [each["name"] for each in (settings.get("models") or {}).get("items", ())]
    models += (settings.get("endpoint") or {}).get("model_names") or ()  # before 0.10
    return str(models[0]) if models else "server"


def _aiperf_load(settings: Object, name: str | None, requests: Sequence[Object]) -> ForeignLoad:
    """Return one phase. Before 0.12 its requests do not name it, and before 0.10 the settings have
    no phases."""
    load: Object = settings.get("loadgen") or {}
    for phase in settings.get("phases") or ():
        if not phase.get("exclude_from_results") and name in (None, phase.get("name")):
            load = phase
            break
    rate = _number(load.get("rate", load.get("request_rate")))
    return ForeignLoad(
        rate=rate,
        concurrency=None if rate is not None else load.get("concurrency"),
        requests=[_aiperf_request(each) for each in requests],
    )


def _aiperf_request(record: Object) -> ForeignRequest:
    metadata, metrics = record["metadata"], record["metrics"]
    start_ns = metadata["request_start_ns"]
    error = record.get("error") or (metadata.get("was_cancelled") and {"type": "cancelled"})
    issued_ns = metadata.get("credit_issued_ns")
    gaps_s = _aiperf_metric(metrics, "inter_chunk_latency")
    first_token_s = _aiperf_metric(metrics, "time_to_first_token")
    return ForeignRequest(
        start_s=start_ns / NS_PER_S,
        end_s=(metadata["request_end_ns"] - start_ns) / NS_PER_S,
        due_s=None if issued_ns is None else min(issued_ns, start_ns) / NS_PER_S,
        first_token_s=first_token_s,
        gaps_s=gaps_s if isinstance(gaps_s, list) else (),
        input_tokens=_aiperf_count(metrics, "input_sequence_length"),
        output_tokens=_aiperf_count(metrics, "output_sequence_length"),
        error=str(error.get("message") or error.get("type")) if error else "",
    )


def _aiperf_metric(metrics: Object, name: str) -> Any:
    metric = metrics.get(name)
    if metric is None:
        return None
    value, unit_s = metric["value"], UNITS_S[metric["unit"]]
    return [each * unit_s for each in value] if isinstance(value, list) else value * unit_s


def _aiperf_count(metrics: Object, name: str) -> int | None:
    return int(metrics[name]["value"]) if name in metrics else None


def _beside(path: Path, name: str) -> Object:
    file = path.with_name(name)
    if not file.is_file():
        return {}
    with file_faults(f"cannot read {file}", kind="bad_run"):
        data = file.read_bytes()
    with content_faults(f"{file}", kind="bad_run"):
        document = yaml.safe_load(data) if file.suffix == ".yaml" else json.loads(data)
    return document if isinstance(document, dict) else {}


def _guidellm(documents: Sequence[Object], path: Path, saved: datetime) -> ForeignResult:
    benchmarks = documents[0]["benchmarks"]
    spec = (documents[0].get("config") or {}).get("spec") or documents[0].get("args") or {}
    backend = spec.get("backend")
    model = backend.get("model") if isinstance(backend, dict) else spec.get("model")
    if model is None and benchmarks:  # before 0.4
        model = (benchmarks[0].get("worker") or {}).get("backend_model")
    began = min((b["start_time"] for b in benchmarks if b.get("start_time")), default=None)
    return ForeignResult(
        tool="GuideLLM",
        model=str(model or "server"),
        began=saved if began is None else datetime.fromtimestamp(began, UTC),
        loads=[_guidellm_load(each, path) for each in benchmarks],
    )


def _guidellm_load(benchmark: Object, path: Path) -> ForeignLoad:
    settings = benchmark.get("config") or benchmark.get("args") or {}
    strategy, requests = settings.get("strategy") or {}, benchmark["requests"]
    _refuse_sample(benchmark, path)
    kind = strategy.get("type_") or strategy.get("kind")
    return ForeignLoad(
        rate=_number(strategy.get("rate")) if kind in ("constant", "poisson") else None,
        concurrency=1 if kind == "synchronous" else strategy.get("streams"),
        requests=[
            _guidellm_request(each, start_s, failed)
            for failed, several in ((False, requests["successful"]), (True, requests["errored"]))
            for each in several
            if (start_s := each.get("request_start_time", each.get("start_time"))) is not None
        ],
    )


def _refuse_sample(benchmark: Object, path: Path) -> None:
    """Raise `CallerFault` if the file has only some of the requests that GuideLLM counted."""
    total = (benchmark.get("metrics") or {}).get("request_totals") or benchmark.get(
        "request_totals"
    )
    for kind, rows in benchmark["requests"].items():
        if total and kind != "total" and len(rows or ()) < (total.get(kind) or 0):
            raise CallerFault(
                f"{path} has a sample of the requests, {len(rows or ()):,} of {total[kind]:,} that "
                f"were {kind}, so its throughput and load are unknown",
                kind="bad_run",
                hint="Run GuideLLM again without sampling of requests.",
            )


def _guidellm_request(request: Object, start_s: float, failed: bool) -> ForeignRequest:
    ttft_ms = request.get("time_to_first_token_ms")
    info = request.get("info") or {}
    timings = info.get("timings") or {}
    last_s = timings.get("last_token_iteration") or request.get("last_token_time")
    if request.get("first_token_time") == NO_TIME:
        ttft_ms = last_s = None
    return ForeignRequest(
        start_s=start_s,
        end_s=request["request_latency"] or 0.0,
        due_s=timings.get("targeted_start"),
        last_token_s=last_s and last_s - start_s,
        first_token_s=None if ttft_ms is None else ttft_ms / 1000,
        input_tokens=request.get("prompt_tokens"),
        output_tokens=request.get("output_tokens"),
        error=str(info.get("error") or request.get("error") or "it failed") if failed else "",
    )


def _inference_perf(documents: Sequence[Object], path: Path, saved: datetime) -> ForeignResult:
    """Read per_request_lifecycle_metrics.json, and the model and the stages in config.yaml beside
    it."""
    settings = _beside(path, "config.yaml")
    stages = (settings.get("load") or {}).get("stages") or []
    numbers = [
        int(each.get("num_requests") or each.get("rate", 0) * each.get("duration", 0))
        for each in stages
    ]
    ordered, missing = sorted(documents, key=lambda each: each["start_time"]), []
    if sum(numbers) != len(ordered):
        stages, numbers = [{}], [len(ordered)]
        missing.append(ONE_LOAD)
    ends = list(accumulate(numbers, initial=0))
    return ForeignResult(
        tool="inference-perf",
        model=str((settings.get("server") or {}).get("model_name") or "server"),
        began=saved,
        loads=[
            ForeignLoad(
                rate=None if stage.get("concurrency_level") else _number(stage.get("rate")),
                concurrency=stage.get("concurrency_level"),
                requests=[_inference_perf_request(each) for each in ordered[begin:end]],
            )
            for stage, (begin, end) in zip(stages, pairwise(ends), strict=True)
        ],
        missing=missing,
    )


def _inference_perf_request(entry: Object) -> ForeignRequest:
    info = entry.get("info") or {}
    response = info.get("response_metrics") or info
    usage = response.get("server_usage") or {}
    token_times = response.get("output_token_times") or response.get("chunk_times") or []
    start_s, error = entry["start_time"], entry.get("error")
    tokens = usage.get("completion_tokens")
    return ForeignRequest(
        start_s=start_s,
        end_s=entry["end_time"] - start_s,
        first_token_s=token_times[0] - start_s if token_times else None,
        gaps_s=[b - a for a, b in pairwise(token_times)],
        input_tokens=usage.get("prompt_tokens", info.get("input_tokens")),
        output_tokens=response.get("output_tokens") if tokens is None else tokens,
        counted=tokens is not None,
        error=str(error.get("error_msg") or error.get("error_type")) if error else "",
    )


def _without_requests(what: str, hint: str) -> "Reader":
    def refuse(documents: Sequence[Object], path: Path, saved: datetime) -> ForeignResult:
        raise CallerFault(f"{path} {what}", kind="bad_run", hint=hint)

    return refuse


_SUMMARY = "has a summary, not the requests, so nothing can be said about chance"
Reader = Callable[[Sequence[Object], Path, datetime], ForeignResult]
_READERS: tuple[tuple[Callable[[Any], bool], Reader], ...] = (
    (_has("ttfts", "itls", "input_lens"), _details),
    (_has("metadata", "metrics"), _aiperf),
    (_has("benchmarks"), _guidellm),
    (_has("start_time", "end_time", "info"), _inference_perf),
    (
        _has("mean_ttft_ms", "completed"),
        _without_requests(
            _SUMMARY,
            "Run the benchmark again with --save-detailed (vLLM) or --output-details (SGLang).",
        ),
    ),
    (
        _has("input_config", "request_latency"),
        _without_requests(_SUMMARY, "AIPerf writes them into profile_export.jsonl beside it."),
    ),
    (
        _has("load_summary", "successes"),
        _without_requests(
            _SUMMARY,
            "inference-perf writes them into per_request_lifecycle_metrics.json if its "
            "configuration has report.request_lifecycle.per_request: true.",
        ),
    ),
    (
        _has("experiments"),
        _without_requests(
            "is a result of GenAI-Perf, whose requests have no token counts",
            "AIPerf, which replaces it, writes profile_export.jsonl.",
        ),
    ),
)
