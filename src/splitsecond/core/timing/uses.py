"""Uses of a response: the limit that each one sets, and the figure that ranks targets for it.

The limits on TTFT are those of Crazyrouter's "AI Inference Speed Benchmark 2026" (April 2026), the
ranking figures those of General Compute's "LLM Token Generation Speed" (June 2025): TTFT for
conversations, the TPS of one request for completion, both together for agents, throughput per
dollar for batches. The limits of agents and of long texts are our own: no document states one.
"""

from math import inf
from typing import Literal

from msgspec import Struct

AGENT_STEPS, AGENT_STEP_TOKENS = 10, 200
"""An agent's sequence of model calls, and the output tokens of each."""

Criterion = Literal["ttft_ms", "tps", "agent_ms", "tokens_per_usd"]


class Use(Struct, frozen=True, kw_only=True):
    """Requirements of one use of responses.

    `limit` names a limit of requests (`benchmark.rows.slo`) and its value: at most that many
    ms, for "tps" at least that many tokens/s; None: nobody waits. A target meets it if this
    `percentile` of its requests does. `good_ms`: stricter limit below which the use is served well.
    `by`: the figure that ranks the targets that meet the limit. `alone`: the user waits for one
    request at a time, so that the lightest load decides; otherwise many users wait at once, and the
    heaviest load decides.
    """

    limit: tuple[str, float] | None
    percentile: Literal["p50", "p95"] = "p95"
    good_ms: float | None = None
    by: Criterion = "ttft_ms"
    alone: bool = False

    @property
    def limits(self) -> dict[str, float]:
        return {self.limit[0]: self.limit[1]} if self.limit else {}

    @property
    def ttft_ms(self) -> float:
        return self.limits.get("ttft", inf)


USES: dict[str, Use] = {
    "edge": Use(limit=("ttft", 100.0)),
    "translation": Use(limit=("ttft", 200.0)),
    "voice": Use(limit=("ttft", 300.0)),
    "completion": Use(limit=("ttft", 500.0), by="tps", alone=True),
    "chat": Use(limit=("ttft", 3000.0), good_ms=1000.0),
    "agent": Use(limit=("agent", 30_000.0), percentile="p50", by="agent_ms"),
    "long-form": Use(limit=("tps", 50.0), by="tps"),
    "batch": Use(limit=None, by="tokens_per_usd"),
}
"""Uses by name, the most impatient first."""
*_BEFORE, _LAST = USES
USE_NAMES = f"{', '.join(_BEFORE)} or {_LAST}"

FIRST_TOKEN_USES = tuple(
    name for name, use in USES.items() if use.limit is None or use.limit[0] == "ttft"
)
"""Uses that a limit on TTFT decides, or none."""
