"""What a simulated provider does wrong when asked to: by its profile, or by one request's header.

A profile lists faults with how often each strikes (`share = 0.05`, or `every = 20`: the 20th, 40th, … request); a
request asks for one with ``x-splitsecond-fault: stall; after=5; seconds=2``. Striking is decided by counting, not by
chance, so a run can be repeated: a share is spread evenly by the golden-ratio sequence.

This file decides only; `app` and `answer` act.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from splitsecond.errors import CallerFault

HEADER = "x-splitsecond-fault"

FaultKind = Literal[
    "http",
    "refused",
    "reset",
    "slow_head",
    "slow_first_token",
    "stall",
    "cut",
    "malformed",
    "no_done",
    "error_event",
    "buffered",
    "wrong_usage",
]
"""In the order in which a request would meet them:

`http`              answers with `status` (and Retry-After, if `retry_after` is given); "429" is short for status=429
`refused`           the connection is reset as soon as it is made. By profile it counts connections, not requests; by
                    header, where the request had to be read to know, it is the same as `reset`. The port stays open,
                    so a client sees a reset, not ECONNREFUSED
`reset`             the connection is reset when the request was read, before any of the answer
`slow_head`         the status line, and all that follows, comes `seconds` later
`slow_first_token`  the head comes at once, the first token and all that follows `seconds` later
`stall`             after `after` tokens nothing comes for `seconds`
`cut`               after `after` tokens the connection is closed, in the middle of the body
`malformed`         after `after` tokens an event comes whose data is not JSON; the rest is as usual
`no_done`           the stream ends without its end mark, and without what its dialect says with that
`error_event`       after `after` tokens an error comes in the stream, and ends it
`buffered`          everything is held back, and written at once when the last token is due
`wrong_usage`       the reported output tokens are `factor` times the true ones
"""

_USES: Mapping[str, frozenset[str]] = {
    "http": frozenset({"status", "retry_after"}),
    "slow_head": frozenset({"seconds"}),
    "slow_first_token": frozenset({"seconds"}),
    "stall": frozenset({"after", "seconds"}),
    "cut": frozenset({"after"}),
    "malformed": frozenset({"after"}),
    "error_event": frozenset({"after"}),
    "wrong_usage": frozenset({"factor"}),
}
_GOLDEN = 0.6180339887498949


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault, and how often it strikes. A setting that its kind does not use is refused."""

    kind: FaultKind
    status: int | None = None
    retry_after: int | None = None
    after: int | None = None
    seconds: float | None = None
    factor: float | None = None
    share: float | None = None
    every: int | None = None

    def __post_init__(self) -> None:
        if self.kind == "http" and not 400 <= (self.status or 0) <= 599:
            raise ValueError(f"fault http needs a status from 400 to 599, not {self.status}")
        for name in ("status", "retry_after", "after", "seconds", "factor"):
            value = getattr(self, name)
            if value is not None and name not in _USES.get(self.kind, ()):
                raise ValueError(f"fault {self.kind} has no {name}")
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, but is {value}")
        if self.share is not None and self.every is not None:
            raise ValueError("a fault has a share or an every, not both")
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {self.share}")
        if self.every is not None and self.every < 1:
            raise ValueError(f"every must be at least 1, not {self.every}")

    def strikes(self, count: int) -> bool:
        """Whether it strikes the `count`-th request (from 1). Without share and every it strikes each."""
        if self.every is not None:
            return count % self.every == 0
        return self.share is None or (count * _GOLDEN) % 1.0 < self.share


def first_striking(faults: tuple[PlannedFault, ...], count: int) -> PlannedFault | None:
    """The first of `faults` that strikes the `count`-th request."""
    return next((fault for fault in faults if fault.strikes(count)), None)


def from_header(value: str) -> PlannedFault:
    """The fault that a request asks for: ``kind; name=value; …``. Raises `CallerFault` for what it cannot mean."""
    kind, *settings = (part.strip() for part in value.split(";"))
    asked: dict[str, str] = {"kind": kind}
    if kind.isdigit():
        asked = {"kind": "http", "status": kind}
    for setting in settings:
        name, equals, number = setting.partition("=")
        if not equals or name.strip() in ("kind", "share", "every"):
            raise CallerFault(
                f"{HEADER}: {setting!r} is not a setting of one request's fault",
                kind="bad_fault",
                hint=f"For example {HEADER}: stall; after=5; seconds=2",
            )
        asked[name.strip()] = number.strip()
    try:
        return msgspec.convert(asked, PlannedFault, strict=False)
    except msgspec.ValidationError as error:
        raise CallerFault(
            f"{HEADER}: {value!r}: {error}", kind="bad_fault", hint=f"Kinds: {', '.join(get_args(FaultKind))}."
        ) from error
