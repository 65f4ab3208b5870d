"""What servers and their GPUs told about themselves, as tables and sentences of a report."""

from collections.abc import Callable, Sequence

from splitsecond.benchmark.findings.causes import check_words
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.row_fields import ServerView
from splitsecond.core import wording
from splitsecond.core.money.cost import usd
from splitsecond.core.pages.figure_cells import MISSING, number, share
from splitsecond.core.wording import counted_as, level

Column = tuple[str, Callable[[ConditionFindings], str]]
BYTES_PER_GB = 1e9


def _of(
    format_value: Callable[[float | None], str], value: Callable[[ServerView], float | None]
) -> Callable[[ConditionFindings], str]:
    return lambda c: MISSING if c.server is None else format_value(value(c.server))


def _gigabytes(value: float | None) -> str:
    return MISSING if value is None else number(value / BYTES_PER_GB)


TABLES: Sequence[tuple[str, Sequence[Column]]] = (
    (
        "The server while the load was up",
        (
            ("readings", lambda c: MISSING if c.server is None else f"{c.server.samples:,}"),
            ("computed p50", _of(wording.number, lambda s: s.running)),
            ("computed max", _of(wording.number, lambda s: s.running_max)),
            ("waiting p50", _of(wording.number, lambda s: s.waiting)),
            ("waiting max", _of(wording.number, lambda s: s.waiting_max)),
            ("KV cache p50", _of(share, lambda s: s.kv_use)),
            ("KV cache max", _of(share, lambda s: s.kv_use_max)),
            ("preemptions", _of(wording.number, lambda s: s.preemptions)),
            ("prompt tokens from its cache", _of(share, lambda s: s.cached_share)),
            ("proposed tokens accepted", _of(share, lambda s: s.accepted_share)),
            ("software", lambda c: (c.server and c.server.title) or MISSING),
        ),
    ),
    (
        "The server's own mean times, ms",
        (
            ("TTFT", _of(number, lambda s: s.ttft_ms)),
            ("queue", _of(number, lambda s: s.queue_ms)),
            ("prefill", _of(number, lambda s: s.prefill_ms)),
            ("decode", _of(number, lambda s: s.decode_ms)),
            ("E2E", _of(number, lambda s: s.e2e_ms)),
            (
                "TTFT, measured here",
                _of(number, lambda s: s.check.measured_ms if s.check else None),
            ),
            ("network", _of(number, lambda s: s.check.network_ms if s.check else None)),
            ("rest", _of(number, lambda s: s.check.rest_ms if s.check else None)),
        ),
    ),
    (
        "GPUs and energy",
        (
            ("GPUs", _of(wording.number, lambda s: s.gpus)),
            ("busy", _of(share, lambda s: s.gpu_use)),
            ("memory, GB", _of(_gigabytes, lambda s: s.gpu_memory_bytes)),
            ("clock, MHz", _of(number, lambda s: s.clock_mhz)),
            ("slowed by the power cap", _of(share, lambda s: s.power_capped)),
            ("slowed by heat", _of(share, lambda s: s.heat_capped)),
            ("power, W", _of(number, lambda s: s.power_w)),
            ("idle before the run, W", _of(number, lambda s: s.idle_power_w)),
            ("J per output token", _of(number, lambda s: s.joules_per_token)),
            ("output tokens per kWh", _of(number, lambda s: s.tokens_per_kwh)),
            (
                "$ of electricity per million output tokens",
                _of(usd, lambda s: s.electricity_usd_per_million),
            ),
        ),
    ),
)


def sentences(run: Run) -> list[str]:
    """Return what readers of the tables must know: whether the clocks agree, and where there are
    too few readings."""
    found = [f"{c.target} {level(c)}: {words}" for c in run.conditions if (words := check_words(c))]
    few = [c for c in run.conditions if c.server is not None and c.server.samples < MIN_READINGS]
    found += [
        f"{c.target} {level(c)}: only "
        f"{counted_as(c.server.samples if c.server else 0, 'reading')} while the load was "
        "up. Longer blocks (-n) give more."
        for c in few
    ]
    return found


MIN_READINGS = 5
"""Fewer readings are no picture of a row."""
