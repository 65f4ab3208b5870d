"""Records for the log, and what of them is to come back."""

from typing import Any

import msgspec

from splitsecond import clock
from splitsecond.store.served import Served
from splitsecond.timing.observation import Observation

MOMENTS = ("sent_ns", "head_ns", "first_token_ns", "first_answer_ns", "last_token_ns", "end_ns")
LOST: dict[str, Any] = {"first_event_ns": None, "token_at": [], "token_lengths": [], "start_ns": 0}
"""What the log does not keep of an attempt, and where its moments begin."""


def answered(number: int, *, target: str = "groq/fast", ago_s: float = 0, **changes: Any) -> Served:
    """A call that came in `ago_s` ago and was answered with 20 tokens: the first after 0.2 s, the last after 0.5 s."""
    start_ns = clock.now_ns() - round(ago_s * 1e9)
    after = [start_ns + ms * clock.NS_PER_MS for ms in (1, 199, 200, 500, 501)]
    call = f"req-{number}"
    attempt = Observation(
        id=f"{call}.1", call=call, target=target, role="winner", start_ns=start_ns, sent_ns=after[0],
        head_ns=after[1], first_event_ns=after[2], first_token_ns=after[2], first_answer_ns=after[2],
        last_token_ns=after[3], end_ns=after[4], token_at=[after[2], after[3]], token_lengths=[10, 30], status=200,
        finish_reason="stop", input_tokens=100, cached_tokens=40, output_tokens=20, token_source="usage",
    )  # fmt: skip
    record = Served(
        call=call, start_ns=start_ns, first_token_ns=after[2], end_ns=after[4], route="fast", client="team",
        stream=True, status=200, target=target, attempts=(attempt,),
    )  # fmt: skip
    return msgspec.structs.replace(record, **changes)


def kept(served: Served) -> Served:
    """`served` as it is to come back: moments count from its arrival, and the single tokens are gone."""
    start = served.start_ns
    return msgspec.structs.replace(
        served,
        start_ns=0,
        end_ns=served.end_ns - start,
        first_token_ns=None if served.first_token_ns is None else served.first_token_ns - start,
        attempts=tuple(_kept(o, start) for o in served.attempts),
    )


def _kept(o: Observation, start: int) -> Observation:
    moments = {name: None if at is None else at - start for name in MOMENTS for at in [getattr(o, name)]}
    counted = [] if o.first_token_ns is None else [o.first_event_tokens]
    return msgspec.structs.replace(o, **LOST, **moments, tokens_so_far=counted)
