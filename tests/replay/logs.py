"""Logs whose policy and speeds are known."""

from random import Random
from typing import Any

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.log import Log

TARGETS = ("a/m", "b/m")
TTFT_MS = {"a/m": 300, "b/m": 400}
TOKENS = 40
TPOT_MS = 10


def alternating(
    count: int, *, hours: float = 3.0, seed: int = 1, fails_at: str = ""
) -> list[CallRecord]:
    """Return calls of `weighted("a/m", "b/m")` to the route chat, the latest now. Times scatter by
    a tenth."""
    random = Random(seed)
    found = []
    for number in range(count):
        ago_s = hours * 3600 * (count - number) / count
        target = TARGETS[number % 2]
        found.append(
            record(number, target, ago_s, random.gauss(1.0, 0.1), failed=target == fails_at)
        )
    return found


def record(
    number: int, target: str, ago_s: float, factor: float = 1.0, *, failed: bool = False
) -> CallRecord:
    """Return a streamed call of `TOKENS` tokens that `target` answered, or refused with status
    500."""
    start_ns = clock.now_ns() - round(ago_s * NS_PER_S)
    first_ns = start_ns + round(TTFT_MS[target] * factor * NS_PER_MS)
    end_ns = first_ns + (TOKENS - 1) * TPOT_MS * NS_PER_MS
    call = f"call-{number}"
    answered: dict[str, Any] = {
        "head_ns": first_ns, "first_event_ns": first_ns, "first_token_ns": first_ns,
        "first_answer_ns": first_ns,
        "last_token_ns": end_ns, "input_tokens": 500, "output_tokens": TOKENS,
        "token_source": "usage",
    }  # fmt: skip
    fault = FaultRecord(
        type="ProviderFault", kind="http_500", phase="head", message="down", status=500
    )
    attempt = Observation(
        id=f"{call}"
        f".1", call=call, target=target, role="winner", start_ns=start_ns, reused=True,
        sent_ns=start_ns,
        outcome="failed" if failed else "ok", fault=fault if failed else None, status=500 if failed
        else 200,
        end_ns=end_ns, **({} if failed else answered),
    )  # fmt: skip
    return CallRecord(
        call=call, start_ns=start_ns, first_token_ns=None if failed else first_ns, end_ns=end_ns,
        route="chat",
        stream=True, status=500 if failed else 200, target="" if failed else target,
        outcome="failed" if failed else "ok", fault="http_500" if failed else "",
        wall_us=clock.wall_offset_us(),
        attempts=(attempt,),
    )  # fmt: skip


def write(url: str, records: list[CallRecord]) -> None:
    with Log.open(url) as log:
        for each in records:
            log.put(each)
