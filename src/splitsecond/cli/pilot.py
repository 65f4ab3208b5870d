"""`bench URL` without options: a pilot decides lengths and loads, and any server gives an answer
within two minutes."""

import asyncio
from typing import Any, TypeVar

from msgspec import Struct

from splitsecond.api.connection import Connection
from splitsecond.benchmark.runs.option_forms import HEADERS
from splitsecond.benchmark.runs.settings import Server
from splitsecond.benchmark.runs.targets import with_model
from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.wording import number

Options = TypeVar("Options", bound=Any)
DURATION_S = 80
"""Seconds of measuring; a round that has begun ends later."""
RESPONSE_S = 1.5
"""Longest response of a request alone: a round then takes about ten seconds."""
OUTPUT_TOKENS = (512, 256, 128, 64, 32, 16)
INPUT_TOKENS, SHORT_INPUT_TOKENS = 512, 128
PILOT_TOKENS, PILOT_WORDS, AT_ONCE, TIMEOUT_S = 16, 400, 8, 30.0
CROWDED = 3
"""Times as long as alone, from which on several requests at once are queued, and fewer are sent."""
DECIDED = (
    "concurrency", "requests", "rate", "trace", "rounds", "precision", "duration", "over", "quick",
    "input_tokens",
    "output_tokens", "workload", "workloads", "prompts", "sessions", "cache", "policy", "use",
    "warmup", "on", "operation", "batch", "schema", "tools", "check_file", "reasoning_effort",
)  # fmt: skip
"""Options that say how to measure. With one of them there is no pilot."""


class Pilot(Struct, frozen=True, kw_only=True):
    """Time to the first token, and of each further one, of a request alone; and its time among
    `AT_ONCE` ÷ alone."""

    ttft_s: float
    token_s: float
    crowding: float


def needs_pilot(options: Any) -> bool:
    """Return whether one server is to be measured, and no option says how."""
    urls = [*(options.base_url or []), *(each for each in options.named_targets if "://" in each)]
    single = len(urls) == 1 and all("://" in each for each in options.named_targets)
    return single and not any(
        value for name in DECIDED if (value := getattr(options, name)) not in ("", "fresh", "chat")
    )


def piloted(options: Options, server: Server) -> tuple[Options, str]:
    """Return the options with what a pilot decides, and that in words; unchanged and "" if the
    pilot fails."""
    headers = HEADERS.read(options.header or [], "--header")
    try:
        pilot = asyncio.run(_pilot(with_model(server, headers), headers))
    except Fault:
        return options, ""  # the run meets the same fault and reports it
    return (options, "") if pilot is None else decided(options, pilot)


def decided(options: Options, pilot: Pilot) -> tuple[Options, str]:
    """Return the options with lengths, loads and a duration for a server of this speed, and them in
    words."""
    tokens = next(
        (each for each in OUTPUT_TOKENS if pilot.ttft_s + each * pilot.token_s <= RESPONSE_S),
        OUTPUT_TOKENS[-1],
    )
    prompt = INPUT_TOKENS if pilot.ttft_s <= RESPONSE_S else SHORT_INPUT_TOKENS
    loads = "1,8" if pilot.crowding < CROWDED else "1,2"
    speed = f", {number(1 / pilot.token_s)} tokens/s" if pilot.token_s else ""
    words = (
        f"A pilot measured TTFT {number(1000 * pilot.ttft_s)} ms{speed}. So this run sends prompts "
        f"of {prompt} tokens for responses of {tokens} tokens, {loads.replace(',', ' and ')} at a "
        f"time, for about {DURATION_S} s. For the method of published benchmarks: -n 50 "
        "--output-tokens 512."
    )
    changes = {
        "concurrency": loads,
        "output_tokens": tokens,
        "input_tokens": str(prompt),
        "duration": f"{DURATION_S}s",
    }
    return options.replaced(**changes), words


async def _pilot(server: Server, headers: dict[str, str]) -> Pilot | None:
    async with Connection(server, headers=headers) as connection:

        async def send(number: int) -> Any:
            prompt = f"{number}: count to a thousand, in words. " + "one " * PILOT_WORDS
            reply = await connection.chat(prompt, timeout=TIMEOUT_S, max_tokens=PILOT_TOKENS)
            return reply.observation

        await send(0)  # opens the connection, and lets the server load its model
        alone = await send(1)
        if alone.ttft_ms is None or not alone.e2e_ms:
            return None
        begun_ns = clock.now_ns()
        await asyncio.gather(*(send(2 + at) for at in range(AT_ONCE)))
        together_s = (clock.now_ns() - begun_ns) / clock.NS_PER_S
    later = max(len(alone.token_at) - 1, 1)
    return Pilot(
        ttft_s=alone.ttft_ms / 1000,
        token_s=(alone.e2e_ms - alone.ttft_ms) / 1000 / later,
        crowding=1000 * together_s / alone.e2e_ms,
    )
