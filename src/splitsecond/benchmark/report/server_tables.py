from collections.abc import Callable, Sequence

from splitsecond.benchmark.findings.causes import check_words, clocks_agree
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.row_fields import ServerView, TtftCheck
from splitsecond.core import wording
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import usd
from splitsecond.core.pages.figure_cells import MISSING, number, share
from splitsecond.core.wording import counted_as, level, listed

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


MIN_READINGS = 5
"""Fewer readings are no picture of a row."""


def sentences(run: Run) -> list[str]:
    """Return what readers of the tables must know: what was read, whether the clocks agree, and
    where there are too few readings."""
    viewed = [(c, c.server) for c in run.conditions if c.server is not None]
    targets = grouped((each for each in viewed if each[1].title), lambda each: each[1].title)
    lines = [
        f"{listed(list(dict.fromkeys(c.target for c, _ in own)))}: metrics of {title}."
        for title, own in targets.items()
    ]
    lines += _clock_sentences([(c, view.check) for c, view in viewed if view.check is not None])
    few = [
        f"{c.target} {level(c)} ({view.samples:,})"
        for c, view in viewed
        if view.samples < MIN_READINGS
    ]
    if few:
        lines.append(
            f"Fewer than {MIN_READINGS} readings while the load was up: {listed(few)}. Longer "
            "blocks (-n) give more."
        )
    return lines


def _clock_sentences(checks: Sequence[tuple[ConditionFindings, TtftCheck]]) -> list[str]:
    agree = [check for _, check in checks if clocks_agree(check)]
    lines = []
    if agree:
        apart_ms = max(abs(check.rest_ms) for check in agree)
        lines.append(
            "The server's mean TTFT + network is the mean TTFT measured here, to "
            f"{number(apart_ms)} ms, in {len(agree):,} of {counted_as(len(checks), 'row')}."
        )
    return lines + [
        f"{c.target} {level(c)}: {check_words(c)}" for c, check in checks if not clocks_agree(check)
    ]
