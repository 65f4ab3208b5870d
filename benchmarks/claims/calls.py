"""Calls to simulated providers with a steady speed, for experiments about claims."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

import splitsecond as ss
from splitsecond.core import clock

TOKENS = 64
PROFILES = Path(__file__).parents[2] / "src/splitsecond/simulator/profiles"


def profile(
    folder: Path,
    name: str,
    *,
    ttft_ms: float,
    tps: float,
    natural_tokens: int = TOKENS,
    more: str = "",
) -> str:
    """Write a profile of a provider with a steady speed and return its target."""
    path = _path(folder, name)
    path.write_text(
        f'title = "{name}"\nmodel = "{name}"\nsource = "benchmarks/claims"\nmeasured = "2026-11"\n'
        f"natural_tokens = {natural_tokens}\noutput_tokens = "
        f"{2 * natural_tokens}\n{more}\n[[table]]\nconcurrency = 1\n"
        f"ttft_ms = {{ p50 = {ttft_ms}, p95 = {ttft_ms * 1.4} }}\ntps = {{ p50 = {tps}, p95 = "
        f"{tps / 1.1} }}\n"
    )
    return f"sim/{path}"


def published(folder: Path, name: str) -> str:
    """Return a target with the speed of a shipped profile."""
    path = _path(folder, name)
    path.write_text((PROFILES / f"{name}.toml").read_text())
    return f"sim/{path}"


def _path(folder: Path, name: str) -> Path:
    """Return the file of a profile. Its name, from which the simulator draws, is another one in
    each run."""
    return folder / f"{name}-{folder.name}.toml"


class Timed(Struct, frozen=True, kw_only=True):
    """Times of several calls in seconds, and the tokens of all their attempts."""

    elapsed_s: float
    e2e_s: list[float]
    ttft_s: list[float]
    tps: list[float]
    tokens: int
    prompts: int
    wasted_tokens: int

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.elapsed_s

    def e2e(self, percentile: float) -> float:
        return float(np.percentile(self.e2e_s, percentile))

    def ttft(self, percentile: float) -> float:
        return float(np.percentile(self.ttft_s, percentile))


async def calls(
    policy: str,
    prompts: Sequence[str],
    *,
    parallel: int = 1,
    max_tokens: int | None = TOKENS,
    unmeasured: int = 1,
) -> Timed:
    """Send each prompt through `policy`, `parallel` at a time, after some unmeasured ones that open
    the connections."""
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    async with ss.connect(policy) as connection:
        await asyncio.gather(
            *(connection.chat("Hello", **limit) for _ in range(max(parallel, unmeasured)))
        )
        slots = asyncio.Semaphore(parallel)

        async def one(prompt: str) -> ss.ChatReply:
            async with slots:
                return await connection.chat(prompt, **limit)

        start_ns = clock.now_ns()
        replies = await asyncio.gather(*map(one, prompts))
        elapsed_s = (clock.now_ns() - start_ns) / clock.NS_PER_S
    attempts = [attempt for reply in replies for attempt in reply.attempts or [reply.observation]]
    tokens = sum(reply.observation.output_tokens or 0 for reply in replies)
    received = sum(len(attempt.token_at) for attempt in attempts)
    return Timed(
        elapsed_s=elapsed_s,
        e2e_s=[(reply.observation.e2e_ms or 0) / 1000 for reply in replies],
        ttft_s=[(reply.observation.ttft_ms or 0) / 1000 for reply in replies],
        tps=[reply.observation.tps or 0 for reply in replies],
        tokens=tokens,
        prompts=len(attempts),
        wasted_tokens=max(0, received - tokens),
    )
