"""How often a right policy is refused over its own small log: `python -m
benchmarks.what_if_identity` (some minutes).

Times have long tails (a lognormal of 0.6) and calls fail at random. The policy is that of the log,
so each refusal is wrong: at most 5% may be.
"""

import argparse
from collections import Counter

import numpy as np

from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.store.request_columns import (
    CallColumns,
    LoggedAttempts,
    LoggedFault,
    RequestColumns,
)
from splitsecond.replay.answer import Comparison
from splitsecond.replay.history import FAILED
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_info import TargetInfo

TODAY = 'weighted("a/m", "b/m")'
FAILURES = 0.02


def log(calls: int, seed: int) -> RequestColumns:
    """Return a log of three hours, by turns at two targets."""
    random = np.random.default_rng(seed)
    target = np.arange(calls) % 2
    first_ns = np.array([300, 400])[target] * random.lognormal(0, 0.6, calls) * NS_PER_MS
    first_ns = first_ns.astype(np.int64)
    last_ns = first_ns + (390 * NS_PER_MS * random.lognormal(0, 0.3, calls)).astype(np.int64)
    failed = random.random(calls) < FAILURES
    columns = {name: np.zeros(calls, np.int64) for name in LoggedAttempts.__struct_fields__}
    columns |= {
        "call": np.arange(calls),
        "target": target,
        "outcome": np.where(failed, FAILED, 0),
        "fault": np.where(failed, 0, UNKNOWN),
        "first_token_ns": np.where(failed, UNKNOWN, first_ns),
        "last_token_ns": np.where(failed, UNKNOWN, last_ns),
        "end_ns": np.where(failed, first_ns, last_ns),
        "input_tokens": np.full(calls, 500),
        "output_tokens": np.full(calls, 40),
        "status": np.where(failed, 500, 200),
    }
    of_calls = {name: np.full(calls, UNKNOWN) for name in CallColumns.__struct_fields__}
    of_calls |= {
        "came_us": 1_700_000_000_000_000 + np.arange(calls) * (3 * 3_600_000_000 // calls),
        "stream": np.ones(calls, np.int64),
        "outcome": columns["outcome"],
        "client": np.zeros(calls, np.int64),
        "target": np.where(failed, UNKNOWN, target),
        "first_token_ns": columns["first_token_ns"],
        "end_ns": columns["end_ns"],
        "input_tokens": columns["input_tokens"],
        "output_tokens": columns["output_tokens"],
    }
    return RequestColumns(
        targets=["a/m", "b/m"],
        clients=[""],
        faults=[LoggedFault("ProviderFault", "http_500", "head", 500)],
        calls=CallColumns(**of_calls),
        attempts=LoggedAttempts(**columns),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=int, default=100)
    parser.add_argument("--calls", type=int, nargs="+", default=[300, 1000])
    options = parser.parse_args()
    for calls in options.calls:
        refused, figures = 0, Counter[str]()
        for seed in range(options.logs):
            found = Comparison(log(calls, seed), lambda name: TargetInfo(provider=name))
            identity = found.identity(parse(TODAY))
            refused += not identity.agrees
            figures.update(identity.differs)
        print(f"{calls:,} calls: {refused} of {options.logs} refused {dict(figures)}", flush=True)


if __name__ == "__main__":
    main()
