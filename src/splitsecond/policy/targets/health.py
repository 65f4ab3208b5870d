"""Whether one target is well: a circuit breaker that comes back carefully.

    closed --failures--> open --time--> half-open: one probe --good--> ramp --time or answers--> closed
                          ^------------------- failure ------------------------'

What opens it: 5 failures in a row, or half of at least 10 in 30 seconds (a target that fails every second request
never fails five times in a row). A target that asks us to come later is left alone until then; one that does not say
when, for a second, then two, and so on. One that does not serve the model is left alone for long, unless it has just
served it: then that was about the request.

How long it stays open: 5 seconds, twice as long each time the probe fails, at most 5 minutes; give or take a fifth, so
that several gateways do not come back together. Then one request is let through, and no second one before it was good.
A first token is not enough: some targets begin every answer and end none. Its answer must have ended well, or have
brought tokens for 3 seconds, as a long one must not keep a target away that is well. Then a tenth of the traffic comes
back, and from the first answer that has ended well the rest of it, over as long as the target was open, at most 10
seconds, as a service that has just started is slow and the crowd would knock it over again.

A request that began before the opening says nothing of the time after it. One that began after it and was good does,
whether it was the probe or was let through because nothing else was left.

Times are passed in, so that this can be tested as a table.
"""

from random import Random
from typing import Literal

from splitsecond.clock import NS_PER_S

State = Literal["closed", "open", "ramp"]

IN_A_ROW = 5
"""Envoy's `consecutive_5xx`."""
LEAST_REQUESTS = 10
WORST_SHARE = 0.5
FIRST_OPEN_NS = 5 * NS_PER_S
LONGEST_OPEN_NS = 300 * NS_PER_S
FIRST_COOL_NS = NS_PER_S
LONGEST_COOL_NS = 60 * NS_PER_S
LONGEST_ASKED_NS = 3600 * NS_PER_S
"""Some ask us to wait until tomorrow. A probe each hour costs nothing, and finds out where that was wrong."""
JUST_SERVED_NS = 60 * NS_PER_S
LASTS_NS = 3 * NS_PER_S
"""So long a probe must have brought tokens where its answer has not ended."""
RAMP_NS = 10 * NS_PER_S
RAMP_ANSWERS = 20
LEAST_RAMP = 0.1
"""The share of its traffic that a target has when it comes back."""
_PERIOD_NS = 5 * NS_PER_S
_PERIODS = 6


class Health:
    """Of one target."""

    __slots__ = (
        "_bad", "_chance", "_cooled", "_good", "_good_ns", "_in_a_row", "_open_for_ns", "_opened", "_opened_ns",
        "_period", "_ramp_answers", "_ramp_ns", "_told", "probe", "reason", "state", "until_ns",
    )  # fmt: skip

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.state: State = "closed"
        self.until_ns = 0
        """When it may be probed; while it is open."""
        self.reason = ""
        self.probe = ""
        """The call that is the probe; "": none is under way."""
        self._told = False
        self._opened_ns = 0
        self._open_for_ns = 0
        self._opened = self._cooled = 0  # how often in a row
        self._ramp_ns: int | None = None
        """When the first answer since has ended well; None: none has."""
        self._ramp_answers = 0
        self._in_a_row = 0
        self._good_ns = -JUST_SERVED_NS
        self._period = 0
        self._good = [0] * _PERIODS
        self._bad = [0] * _PERIODS

    def __repr__(self) -> str:
        return f"<Health {self.state}{': ' + self.reason if self.reason else ''}>"

    # What happened. Of an attempt that has ended `released` is said first.

    def answered(self, now_ns: int, began_ns: int) -> None:
        """The answer to a request that began at `began_ns` has ended well."""
        if self.state == "open":
            self.lasted(now_ns, began_ns)
            if self.state == "open":
                return
        self._count(self._good, now_ns)
        self._in_a_row = 0
        self._good_ns = now_ns
        if self.state == "ramp" and began_ns >= self._opened_ns:
            if self._ramp_ns is None:
                self._ramp_ns = now_ns
            self._ramp_answers += 1
            if self._ramp_answers >= RAMP_ANSWERS:
                self._close()

    def lasted(self, now_ns: int, began_ns: int) -> None:
        """The answer to a request that began at `began_ns` has brought tokens for `LASTS_NS`, or has ended well."""
        if self.state == "open" and began_ns >= self._opened_ns and not self.told(now_ns):
            self.state, self.probe = "ramp", ""
            self._ramp_ns, self._ramp_answers = None, 0

    def failed(self, now_ns: int, began_ns: int, reason: str) -> None:
        """A request that began at `began_ns` failed as others would."""
        self._in_a_row += 1
        self._count(self._bad, now_ns)
        if self.state == "closed":
            if self._in_a_row >= IN_A_ROW:
                self._back_off(now_ns, f"{self._in_a_row} failures in a row, the last: {reason}")
            else:
                good, bad = sum(self._good), sum(self._bad)
                if good + bad >= LEAST_REQUESTS and bad >= WORST_SHARE * (good + bad):
                    self._back_off(now_ns, f"{bad} of {good + bad} requests failed lately, the last: {reason}")
        elif self.state == "ramp":
            if began_ns >= self._opened_ns:
                self._back_off(now_ns, f"failed again as it came back: {reason}")
        elif self._was_probe(now_ns, began_ns):
            self._back_off(now_ns, f"still failing: {reason}")

    def suspected(self, now_ns: int, began_ns: int, reason: str) -> None:
        """A request that began at `began_ns` is one of so many without a token that it must be down."""
        if self.state == "closed":
            self._back_off(now_ns, reason)
        else:
            self.failed(now_ns, began_ns, reason)

    def limited(self, now_ns: int, began_ns: int, wait_ns: int | None, reason: str) -> None:
        """The target asked us to come later: in `wait_ns`, where it said so."""
        fresh = self.state != "open" or began_ns >= self._opened_ns
        if wait_ns:
            until_ns = now_ns + min(wait_ns, LONGEST_ASKED_NS)
            if self.state != "open" or until_ns > self.until_ns or fresh:
                self._open(now_ns, until_ns, f"it asked us to wait: {reason}", told=True)
        elif fresh:
            for_ns = min(FIRST_COOL_NS << min(self._cooled, 10), LONGEST_COOL_NS)
            self._cooled += 1
            if self.state != "open" or now_ns + for_ns > self.until_ns:
                self._open(now_ns, now_ns + for_ns, reason)

    def unserved(self, now_ns: int, began_ns: int, reason: str) -> None:
        """The target does not serve its model to us; or it does, and this request asked for something else."""
        if self.state == "open" and not self._was_probe(now_ns, began_ns):
            return
        if now_ns - self._good_ns < JUST_SERVED_NS:
            if self.state == "open":
                self._back_off(now_ns, f"still failing: {reason}")
        else:
            self._open(now_ns, now_ns + self._spread(LONGEST_OPEN_NS), f"it does not serve this model: {reason}")

    def released(self, call: str) -> None:
        """An attempt for `call` has ended; if it was the probe, the next one may be."""
        if self.probe == call:
            self.probe = ""

    # What may be done.

    @property
    def troubled(self) -> bool:
        """Whether anything must be looked at before the target is asked."""
        return self.state != "closed"

    def told(self, now_ns: int) -> bool:
        """Whether the target itself said that we should not come yet."""
        return self._told and self.state == "open" and now_ns < self.until_ns

    def down(self, now_ns: int) -> bool:
        """Whether it should not be asked: it is open and not due, or its probe is under way."""
        return self.state == "open" and (now_ns < self.until_ns or bool(self.probe))

    def share(self, now_ns: int) -> float:
        """Of its traffic, how much it should have: less than all only where it comes back."""
        if self.state != "ramp":
            return 1.0
        if self._ramp_ns is None:
            return LEAST_RAMP
        ramp_ns = max(min(self._open_for_ns, RAMP_NS), 1)
        part = (now_ns - self._ramp_ns) / ramp_ns
        if part < 1:
            return max(part, LEAST_RAMP)
        self._close()
        return 1.0

    def _was_probe(self, now_ns: int, began_ns: int) -> bool:
        """Of a request that failed while the target was open: whether it was to find out if it still is."""
        return began_ns >= self._opened_ns and now_ns >= self.until_ns and not self.probe

    def _close(self) -> None:
        self.state, self.reason, self._told = "closed", "", False
        self._opened = self._cooled = 0
        self._bad = [0] * _PERIODS  # what led to the opening must not lead to the next

    def _back_off(self, now_ns: int, reason: str) -> None:
        for_ns = self._spread(min(FIRST_OPEN_NS << min(self._opened, 10), LONGEST_OPEN_NS))
        self._opened += 1
        self._open(now_ns, now_ns + for_ns, reason)

    def _open(self, now_ns: int, until_ns: int, reason: str, *, told: bool = False) -> None:
        self.state, self.until_ns, self.reason, self._told = "open", until_ns, reason, told
        self._opened_ns, self._open_for_ns = now_ns, until_ns - now_ns
        self._in_a_row = 0

    def _spread(self, ns: int) -> int:
        return round(ns * self._chance.uniform(0.8, 1.2))

    def _count(self, into: list[int], now_ns: int) -> None:
        """One more in the period that is running; those of half a minute ago are forgotten."""
        period = now_ns // _PERIOD_NS
        if period > self._period:
            for gone in range(max(self._period, period - _PERIODS) + 1, period + 1):
                self._good[gone % _PERIODS] = self._bad[gone % _PERIODS] = 0
            self._period = period
        into[period % _PERIODS] += 1
