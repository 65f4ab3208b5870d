"""Logs of a split whose difference is known, with keys or sessions that differ from each other."""

import numpy as np

from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.store.request_columns import (
    CallColumns,
    LoggedAttempts,
    LoggedFault,
    RequestColumns,
)
from splitsecond.replay.arms import SplitComparison, compare_arms
from splitsecond.replay.history import FAILED
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.split import in_second, seed_of
from splitsecond.routing.targets.target_info import TargetInfo

TARGETS = ["a/m", "b/m"]
BEGIN_US = 1_764_000_000_000_000
TTFT_MS, REST_MS = 300, 700


def split_log(
    seed: int,
    *,
    keys: int = 60,
    calls: int = 3000,
    share: float = 0.5,
    slower: float = 1.0,
    differ: float = 0.6,
    failures: tuple[float, float] = (0.02, 0.02),
    route: str = "chat",
) -> RequestColumns:
    """Return a day of calls of `keys`, which have different levels of speed and numbers of calls
    (lognormal, `differ` for both). Times of the second arm are `slower` times those of the
    first."""
    random = np.random.default_rng(seed)
    clients = [f"{seed}-{number}" for number in range(keys)]
    level = random.lognormal(0, differ, keys)
    sizes = random.lognormal(0, differ, keys)
    client = random.choice(keys, calls, p=sizes / sizes.sum())
    seeds = seed_of(route, [["a/m"], ["b/m"]])
    arm_of = np.array([in_second(seeds, f"key {name}", share) for name in clients], np.int64)
    arm = arm_of[client]
    factor = level[client] * np.where(arm == 1, slower, 1.0)
    first_ns = (TTFT_MS * factor * random.lognormal(0, 0.4, calls) * NS_PER_MS).astype(np.int64)
    rest_ns = (REST_MS * factor * random.lognormal(0, 0.3, calls) * NS_PER_MS).astype(np.int64)
    failed = random.random(calls) < np.array(failures)[arm]
    attempts = {name: np.zeros(calls, np.int64) for name in LoggedAttempts.__struct_fields__}
    attempts |= {
        "call": np.arange(calls),
        "target": arm,
        "outcome": np.where(failed, FAILED, 0),
        "fault": np.where(failed, 0, UNKNOWN),
        "first_token_ns": np.where(failed, UNKNOWN, first_ns),
        "last_token_ns": np.where(failed, UNKNOWN, first_ns + rest_ns),
        "end_ns": np.where(failed, first_ns, first_ns + rest_ns),
        "input_tokens": np.full(calls, 500),
        "output_tokens": np.maximum(rest_ns // (10 * NS_PER_MS), 1),
        "status": np.where(failed, 500, 200),
    }
    of_calls = {name: np.full(calls, UNKNOWN) for name in CallColumns.__struct_fields__}
    of_calls |= {
        "came_us": BEGIN_US + np.arange(calls) * (24 * 3_600_000_000 // calls),
        "stream": np.ones(calls, np.int64),
        "outcome": attempts["outcome"],
        "client": client,
        "target": np.where(failed, UNKNOWN, arm),
        "first_token_ns": attempts["first_token_ns"],
        "end_ns": attempts["end_ns"],
        "input_tokens": attempts["input_tokens"],
        "output_tokens": attempts["output_tokens"],
        "choice": arm,
        "choice_ppm": np.round(np.where(arm == 1, share, 1 - share) * 1e6).astype(np.int64),
    }
    return RequestColumns(
        targets=TARGETS,
        clients=clients,
        faults=[LoggedFault("ProviderFault", "http_500", "head", 500)],
        calls=CallColumns(**of_calls),
        attempts=LoggedAttempts(**attempts),
    )


def info(name: str) -> TargetInfo:
    return TargetInfo(provider=name, price=Price(input_usd=1.0, output_usd=4.0))


def compared(
    logged: RequestColumns, *, share: float = 0.5, within: float = 0.05, route: str = "chat"
) -> SplitComparison:
    policy = parse(f'split("a/m", "b/m", share={share}, by="key")')
    return compare_arms(logged, policy, info, route=route, within=within)
