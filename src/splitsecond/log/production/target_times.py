from collections.abc import Iterable

import numpy as np

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.timing.columns import WAIT_ENDED, AttemptColumns, Floats
from splitsecond.log.production.sessions import TargetTimes
from splitsecond.log.statistics.prefill import MAD, fitted

MAX_TURNS = 5_000
"""Latest requests of a target that are fitted."""


def target_times(attempts: Iterable[AttemptColumns]) -> dict[str, TargetTimes]:
    """Return the times of each target with enough streamed requests whose tokens were counted."""
    parts: dict[str, list[Floats]] = {}
    for columns in attempts:
        usable = (columns.waits == WAIT_ENDED) & (columns.wait_ns > 0) & (columns.input_tokens > 0)
        usable &= (columns.decoded > 0) & (columns.decode_ns > 0)
        names = [label.target for label in columns.labels]
        rows = np.column_stack(
            (
                columns.input_tokens - columns.cached_tokens,
                columns.cached_tokens,
                columns.wait_ns / NS_PER_S,
                columns.decode_ns / NS_PER_S / np.maximum(columns.decoded, 1),
            )
        )
        for name in set(names):
            of_target = np.array([each == name for each in names], bool)[columns.label] & usable
            if of_target.any():
                parts.setdefault(name, []).append(rows[of_target])
    by_target: dict[str, TargetTimes] = {}
    for name, blocks in parts.items():
        times = _times(np.concatenate(blocks)[-MAX_TURNS:])
        if times is not None:
            by_target[name] = times
    return by_target


def _times(rows: Floats) -> TargetTimes | None:
    new, reused, ttft_s, token_s = rows.T
    model = fitted(new, reused, ttft_s)
    if model is None:
        return None
    usual_s = float(np.median(token_s))
    scatter = MAD * float(np.median(np.abs(np.log(token_s / usual_s))))
    return TargetTimes(
        turns=len(rows),
        fixed_s=model.fixed,
        new_s=model.new,
        reused_s=model.reused,
        scale=model.scale,
        token_s=usual_s,
        token_scale=scatter,
    )
