"""The published tables again, typed from the article, so that the profiles are checked against
something.

General Compute, LLM Token Generation Speed: How Providers Compare in 2025, June 2025.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """One row: TTFT in ms and tokens per second, p50 and p95 (of tokens per second: the slow
    tail)."""

    profile: str
    concurrency: int
    ttft_p50: float
    tps_p50: float
    ttft_p95: float
    tps_p95: float


PUBLISHED = [
    Published("generalcompute", 1, 180, 310, 220, 295),
    Published("groq", 1, 230, 215, 290, 200),
    Published("fireworks", 1, 410, 110, 580, 95),
    Published("together", 1, 480, 85, 720, 75),
    Published("replicate", 1, 620, 65, 1100, 55),
    Published("generalcompute", 8, 210, 285, 310, 255),
    Published("groq", 8, 290, 180, 820, 145),
    Published("fireworks", 8, 520, 95, 960, 78),
    Published("together", 8, 610, 70, 1350, 55),
    Published("replicate", 8, 890, 48, 2200, 35),
    Published("generalcompute", 32, 280, 245, 450, 210),
    Published("groq", 32, 610, 140, 2400, 105),
    Published("fireworks", 32, 780, 72, 1800, 55),
    Published("together", 32, 950, 52, 2900, 38),
    Published("replicate", 32, 1400, 30, 4100, 22),
]
