"""Rows of a run as Benchmark Reports of llm-d, version 0.2, one YAML document for each row.

The format has no intervals and no validity: `observability` has the row's reasons for INVALID and
its notes, and the intervals of its percentiles. Source: llm-d-benchmark's
`analysis/benchmark_report/schema_v0_2.py`.
"""

import re
from datetime import datetime, timedelta
from typing import Any

import yaml

from splitsecond.benchmark.report.rows import load_words
from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.log.statistics.summary import PERCENTILES, Summary

VERSION = "0.2"
LATENCIES = {
    "time_to_first_token": ("ttft_ms", "ms"),
    "time_per_output_token": ("tpot_ms", "ms/token"),
    "inter_token_latency": ("itl_ms", "ms/token"),
    "request_latency": ("e2e_ms", "ms"),
}
"""Our figure and the unit of each latency of the format."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._=-]+")


def llm_d_reports(run: Run) -> dict[str, str]:
    """Return the reports of all rows by file name."""
    return {
        f"{number}-{_NOT_IN_NAMES.sub('-', row.condition)}.yaml": yaml.safe_dump(
            _report(run, row, number), sort_keys=False, allow_unicode=True
        )
        for number, row in enumerate(run.conditions)
    }


def _report(run: Run, row: ConditionFindings, number: int) -> dict[str, Any]:
    return {
        "version": VERSION,
        "run": {"uid": f"{run.id}-{number}", "eid": run.id, "time": _time(run)},
        "scenario": {
            "load": {
                "metadata": {"schema_version": "0.0.1", "description": load_words(row)},
                "standardized": _load(run, row, number),
                "native": {"args": {"command": " ".join(run.asked.get("command", ()))}},
            }
        },
        "results": {
            "request_performance": {"aggregate": _performance(row)},
            "observability": {
                "splitsecond": {
                    "target": row.target,
                    "invalid": row.invalid,
                    "notes": row.notes,
                    "ci95": {
                        name: {p: list(bounds) for p, bounds in getattr(row, name).ci95.items()}
                        for name, _ in LATENCIES.values()
                    },
                }
            },
        },
    }


def _time(run: Run) -> dict[str, str]:
    if run.spread is None:
        return {"start": run.began}
    end = datetime.fromisoformat(run.began) + timedelta(seconds=run.spread.period_s)
    return {"start": run.began, "end": end.isoformat(), "duration": f"PT{run.spread.period_s:.3f}S"}


def _load(run: Run, row: ConditionFindings, number: int) -> dict[str, Any]:
    lengths = {
        name: {"distribution": "other", "value": max(tokens, 1.0)}
        for name, tokens in (
            ("input_seq_len", row.input_tokens),
            ("output_seq_len", row.output_tokens),
        )
        if tokens is not None
    }
    settings = run.asked.get("settings", {})
    return {
        "tool": settings.get("tool") or "splitsecond",
        "tool_version": run.version or "unknown",
        "source": "sampled" if settings.get("tool") or settings.get("prompts") else "random",
        "stage": number,
        **({"input_seq_len": {"distribution": "other", "value": 1.0}} | lengths),
        **({"concurrency": row.concurrency} if row.concurrency else {}),
        **({"rate_qps": row.rate} if row.rate else {}),
    }


def _performance(row: ConditionFindings) -> dict[str, Any]:
    latency = {
        name: statistics
        for name, (figure, unit) in LATENCIES.items()
        if (statistics := _statistics(FIGURES[figure].summary(row), unit))
    }
    requests: dict[str, Any] = {"total": row.requests, "failures": row.errors}
    for name, tokens in (("input_length", row.input_tokens), ("output_length", row.output_tokens)):
        if tokens is not None:
            requests[name] = {"units": "count", "mean": tokens}
    throughput = {
        name: {"units": unit, "mean": rate}
        for name, unit, rate in (
            ("output_token_rate", "tokens/s", row.output_tokens_per_s),
            ("request_rate", "queries/s", row.requests_per_s),
        )
        if rate is not None
    }
    return {"requests": requests, "latency": latency, "throughput": throughput}


def _statistics(summary: Summary, unit: str) -> dict[str, Any]:
    """Return the numbers of a figure; {} if its mean, which the format requires, is unknown."""
    if summary.mean is None:
        return {}
    numbers = {name: getattr(summary, name) for name in ("min", *PERCENTILES, "max")}
    return {"units": unit, "mean": summary.mean} | {
        k: v for k, v in numbers.items() if v is not None
    }
