"""What `fastest` and `hedge` cost against a policy that knows the targets: the tables of
docs/policies.md.

Calls arrive at random, in virtual time, at targets whose behaviour is known. `python -m
benchmarks.choosing` prints the tables in Markdown, in a few minutes; tests/policies checks the same
cases with fewer calls.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import product
from random import Random
from statistics import fmean, quantiles

from tests.policies.traffic import Sent, Speed, scattered, shares, steady, traffic

from splitsecond.testing.fake_service import Script

CALLS = 1000
SEEDS = range(4)
SETTLED_S = 20.0
"""Seconds from the start that are left out."""


class Queued:
    """A server with few `slots`: a call that finds all of them taken waits for the first that is
    free.

    A call has its first token after 0.25 s in a slot, and keeps the slot for 0.35 s more in the
    mean.
    """

    def __init__(self, slots: int, seed: int) -> None:
        self._free_at = [0.0] * slots
        self._chance = Random(seed)

    def __call__(self, at: float) -> Script:
        begins = max(at, heappop(self._free_at))
        rest = self._chance.expovariate(1 / 0.35)
        heappush(self._free_at, begins + 0.25 + rest)
        return Script(ttft=begins - at + 0.25, tokens=2, tps=1 / rest)


def bimodal(usual: float, slow: float, share: float, seed: int) -> Speed:
    """Return a target that needs `usual` seconds, but `slow` for this `share` of its calls."""
    chance = Random(seed)
    return lambda at: Script(ttft=slow if chance.random() < share else usual, tokens=3)


def waits(sent: Sequence[Sent]) -> list[float]:
    return [each.ttft for each in sent if each.at >= SETTLED_S]


def over_seeds(
    policy: str, targets: Callable[[int], dict[str, Speed]], rate: float
) -> list[list[Sent]]:
    """Return the calls of each seed to the targets with this seed."""
    return [
        traffic(
            policy,
            targets(seed),
            seconds=SETTLED_S + CALLS / rate,
            rate=rate,
            arrivals=Random(100 + seed),
        )
        for seed in SEEDS
    ]


def mean_ms(runs: Sequence[Sequence[Sent]]) -> float:
    return 1000 * fmean(fmean(waits(sent)) for sent in runs)


def share_of(target: str, runs: Sequence[list[Sent]]) -> float:
    return fmean(shares(sent, since=SETTLED_S).get(target, 0.0) for sent in runs)


def queued(slots: int) -> Callable[[int], dict[str, Speed]]:
    return lambda seed: {"a/x": Queued(slots, 2 * seed), "b/x": Queued(slots, 2 * seed + 1)}


def lognormal(*levels: float) -> Callable[[int], dict[str, Speed]]:
    return lambda seed: {
        f"{name}/x": scattered(steady(level), 10 * seed + place)
        for place, (name, level) in enumerate(zip("abcde", levels, strict=False))
    }


def slow_mode(slow: float, share: float) -> Callable[[int], dict[str, Speed]]:
    return lambda seed: {"a/x": bimodal(0.15, slow, share, seed), "b/x": steady(0.25)}


def late(share: float, usual: float = 0.3, slow: float = 3.0) -> Callable[[int], dict[str, Speed]]:
    """Return two equal targets whose calls are slow by chance."""
    return lambda seed: {
        "a/x": scattered(bimodal(usual, slow, share, seed), seed + 1),
        "b/x": scattered(bimodal(usual, slow, share, seed + 1000), seed + 2),
    }


def main() -> None:
    """Print the tables."""
    two = '("a/x", "b/x")'
    print(
        "| two servers | calls/s | `fastest`, mean ms | `weighted` (halves), mean ms "
        "|\n|---|---|---|---|"
    )
    for slots, rate in ((2, 5.0), (4, 10.0), (8, 20.0), (16, 40.0)):
        ours, halves = (
            mean_ms(over_seeds(policy + two, queued(slots), rate))
            for policy in ("fastest", "weighted")
        )
        print(f"| {slots} slots each | {rate:g} | {ours:.0f} | {halves:.0f} |", flush=True)
    print(
        "\n| targets | calls/s | at the best | mean ms | with `at=0.5` | of the best "
        "|\n|---|---|---|---|---|---|"
    )
    for name, targets, best, known, rate in (
        ("0.30, 0.20 s", lognormal(0.3, 0.2), "b/x", 204, 10),
        ("0.30, 0.20 s", lognormal(0.3, 0.2), "b/x", 204, 1),
        ("0.30, 0.20 s", lognormal(0.3, 0.2), "b/x", 204, 0.1),
        ("0.15 s, 2 s in 10%; 0.25 s", slow_mode(2, 0.1), "b/x", 250, 10),
        ("0.15 s, 2 s in 10%; 0.25 s", slow_mode(2, 0.1), "b/x", 250, 1),
        ("0.15 s, 1 s in 40%; 0.25 s", slow_mode(1, 0.4), "b/x", 250, 10),
        ("0.15 s, 1 s in 40%; 0.25 s", slow_mode(1, 0.4), "b/x", 250, 1),
        ("0.15 s, 1 s in 5%; 0.25 s", slow_mode(1, 0.05), "a/x", 192.5, 10),
    ):
        runs = over_seeds("fastest" + two, targets, rate)
        median = mean_ms(over_seeds('fastest("a/x", "b/x", at=0.5)', targets, rate))
        cells = f"{share_of(best, runs):.2f} | {mean_ms(runs):.0f} | {median:.0f} | {known}"
        print(f"| {name} | {rate} | {cells} |", flush=True)
    print(
        "\n| slow calls | extra_load | sent twice | mean ms | p95 | p99 "
        "|\n|---|---|---|---|---|---|"
    )
    for slow, extra in [*product((0.03, 0.07, 0.2), (0.05, 0.02)), (0.2, 0.2), (0.2, 0.25)]:
        runs = over_seeds(f'hedge("a/x", "b/x", extra_load={extra})', late(slow), 10)
        cuts = [quantiles(waits(sent), n=100) for sent in runs]
        p95, p99 = (1000 * fmean(each[at] for each in cuts) for at in (94, 98))
        twice = fmean(each.attempts > 1 for sent in runs for each in sent)
        print(
            f"| {slow:.0%} | {extra} | {twice:.1%} | {mean_ms(runs):.0f} | {p95:.0f} | {p99:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
