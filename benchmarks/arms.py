"""How often equal arms of a split are taken for different, and whether intervals contain the truth:
`python -m benchmarks.arms` (some minutes).

Keys differ in speed and in their numbers of calls (lognormal), and a hash deals them to the arms.
An alarm is a comparison of equal arms in which any figure is better or worse; at most 5% may be.
"""

import argparse

from tests.replay.splits import compared, split_log

WORLDS: dict[str, dict[str, float]] = {
    "60 keys": {"keys": 60},
    "30 keys": {"keys": 30},
    "200 keys, a tenth in the second arm": {"keys": 200, "share": 0.1},
    "60 keys that differ much": {"keys": 60, "differ": 1.0},
    "3,000 keys": {"keys": 3000, "differ": 0.3},
}
SLOWER = 1.3
TIMES = ("ttft_p50_ms", "ttft_p95_ms", "total_p50_ms", "total_p95_ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=int, default=100)
    logs = parser.parse_args().logs
    for name, world in WORLDS.items():
        tested = alarms = inside = intervals = 0
        share = world.get("share", 0.5)
        for seed in range(logs):
            equal = compared(split_log(seed, calls=2000, **world), share=share)  # type: ignore[arg-type] # counts are whole
            slower = split_log(seed, calls=2000, slower=SLOWER, **world)  # type: ignore[arg-type]
            tested += not equal.refused
            alarms += any(each.verdict in ("better", "worse") for each in equal.figures)
            for each in compared(slower, share=share).figures:
                if each.name in TIMES and each.ci95 is not None:
                    low, high = each.ci95
                    intervals += 1
                    inside += low <= SLOWER - 1 <= high
        print(
            f"{name}: {alarms} alarms in {tested} comparisons of equal arms; "
            f"{inside / max(intervals, 1):.1%} of {intervals} intervals contain the truth",
            flush=True,
        )


if __name__ == "__main__":
    main()
