"""Injected faults of a simulated provider, chosen by its profile or by the header of one request.

A profile lists faults with their frequency (`share = 0.05`; `every = 20`: the 20th, 40th, …
request; `first = 2`: the first two). A request chooses one with ``x-splitsecond-fault: stall;
after=5; seconds=2``; with ``first=2`` it strikes the first two requests with this header. Requests
are chosen by counting, not at random, so a run can be repeated: the golden-ratio sequence spreads a
share evenly.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from splitsecond.core.errors import CallerFault

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
"""The kinds of faults, in the order in which a request can meet them:

`http`              the response has `status` (and Retry-After, if `retry_after` is given); "429"
                    means status=429
`refused`           the connection is reset as soon as it is made. In a profile it counts
                    connections, not requests. In a header, which must be read first, it is the
                    same as `reset`. The port stays open, so a client sees a reset, not
                    ECONNREFUSED
`reset`             the connection is reset after the request was read, before the response
`slow_head`         the status line and everything after it is `seconds` late
`slow_first_token`  the headers come at once, the first token and everything after it is `seconds`
                    late
`stall`             after `after` tokens nothing is sent for `seconds`
`cut`               after `after` tokens the connection is closed, in the middle of the body
`malformed`         after `after` tokens an event is sent whose data is not JSON; the rest is
                    normal
`no_done`           the stream ends without its end marker and the fields that come with it
`error_event`       after `after` tokens an error is sent in the stream and ends it
`buffered`          everything is kept and written at once when the last token is due
`wrong_usage`       the reported output tokens are `factor` times the true number
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


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault and its frequency. A setting that its kind does not use is an error."""

    kind: FaultKind
    status: int | None = None
    retry_after: int | None = None
    after: int | None = None
    seconds: float | None = None
    factor: float | None = None
    share: float | None = None
    every: int | None = None
    first: int | None = None

    def __post_init__(self) -> None:
        if self.kind == "http" and not 400 <= (self.status or 0) <= 599:
            raise ValueError(f"fault http needs a status from 400 to 599, not {self.status}")
        for name in ("status", "retry_after", "after", "seconds", "factor"):
            value = getattr(self, name)
            if value is not None and name not in _USES.get(self.kind, ()):
                raise ValueError(f"fault {self.kind} has no setting {name}")
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        self._check_frequency()

    def _check_frequency(self) -> None:
        if sum(value is not None for value in (self.share, self.every, self.first)) > 1:
            raise ValueError("a fault has one of share, every and first")
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {self.share}")
        for name, number in (("every", self.every), ("first", self.first)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")

    def strikes(self, count: int) -> bool:
        if self.first is not None:
            return count <= self.first
        if self.every is not None:
            return count % self.every == 0
        return self.share is None or (count * _GOLDEN) % 1.0 < self.share


def first_striking(faults: tuple[InjectedFault, ...], count: int) -> InjectedFault | None:
    return next((fault for fault in faults if fault.strikes(count)), None)


def from_header(value: str) -> InjectedFault:
    """Parse the header of a request: ``kind; name=value; …``. Raises `CallerFault` if it is
    invalid."""
    kind, *settings = (part.strip() for part in value.split(";"))
    fields: dict[str, str] = {"kind": kind}
    if kind.isdigit():
        fields = {"kind": "http", "status": kind}
    for setting in settings:
        name, equals, number = setting.partition("=")
        if not equals or name.strip() in ("kind", "share", "every"):
            raise CallerFault(
                f"{HEADER}: {setting!r} is not a setting of a request's fault",
                kind="bad_fault",
                hint=f"For example {HEADER}: stall; after=5; seconds=2",
            )
        fields[name.strip()] = number.strip()
    try:
        return msgspec.convert(fields, InjectedFault, strict=False)
    except msgspec.ValidationError as error:
        raise CallerFault(
            f"{HEADER}: {value!r}: {error}",
            kind="bad_fault",
            hint=f"Kinds: {', '.join(get_args(FaultKind))}.",
        ) from error
