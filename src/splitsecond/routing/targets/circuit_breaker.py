"""Circuit breaker of one target, with a careful return.

    closed --failures--> open --time, then one good probe--> half_open --time or answers--> closed
                          ^-------------------- failure ---------------'

What opens it: 5 failures in a row, or half of at least 10 requests within 30 seconds (a target that
fails every second request never fails five times in a row). A target that asks us to wait is left
alone until then. If it gives no time, the breaker stays open for a second, then two, and so on. A
target that does not serve the model is left alone for minutes, unless it has just served it: then
the refusal was about the request.

How long it stays open: 5 seconds, twice as long each time the probe fails, at most 5 minutes, or 15
seconds if the probe failed within a second, because such a probe delays its call by next to
nothing; plus or minus a fifth, so that several gateways do not return together. If another target
at the same host has come back, the probe is due at once. Then one request, the probe, is let
through, and no second one until the probe has succeeded. A first token is not enough, because some
targets begin every answer and end none: the answer must have ended well, or have brought tokens for
3 seconds (a long answer must not keep a healthy target closed off).

Half open: a tenth of the traffic returns at once. The rest returns from the first answer that has
ended well, over as long as the breaker was open, at most 10 seconds: a service that has just
started is slow, and the full load would overload it again.

Which clients it concerns: the failures of one client may be caused by its requests (a prompt that
crashes the server, a size or a feature that the account may not use). So, with keys, the breaker is
open for the client whose requests have failed, and for all clients once another client's requests
have failed too, with no answer in between. The target is asked for the others as if it were closed.
A failure before a request is sent (no connection) concerns all. Without keys all clients are one.

A request that began before the breaker opened tells nothing about the time after it. A request that
began later and succeeded does, whether it was the probe or was let through because no other target
was left.

In a fleet a probe needs a turn, so that only one is in flight in the whole fleet; a probe that has
waited for its turn for a minute goes without one.

The current time is an argument of each method, so tests are tables.
"""

from collections import Counter, deque
from random import Random
from typing import Literal

from splitsecond.core.clock import NS_PER_S

State = Literal["closed", "open", "half_open"]

IN_A_ROW = 5
"""Envoy's `consecutive_5xx`."""
MIN_REQUESTS = 10
WORST_SHARE = 0.5
RECENT = 50
"""Attempts by which a target with a closed breaker is called degraded, and the least number of
them."""
MIN_RECENT = 5
DEGRADED_SHARE = 0.1
DEGRADED_NS = 300 * NS_PER_S
"""How long after its latest failure a target can be called degraded."""
FIRST_OPEN_NS = 5 * NS_PER_S
LONGEST_OPEN_NS = 300 * NS_PER_S
QUICK_NS = NS_PER_S
"""A probe that fails within this time costs next to nothing."""
LONGEST_QUICK_NS = 15 * NS_PER_S
FIRST_COOL_NS = NS_PER_S
LONGEST_COOL_NS = 60 * NS_PER_S
LONGEST_ASKED_NS = 3600 * NS_PER_S
"""Some providers ask us to wait until tomorrow. A probe each hour costs nothing and shows whether
that was wrong."""
JUST_SERVED_NS = 60 * NS_PER_S
SEVERAL_NS = 60 * NS_PER_S
"""The age of the failures that show for which clients the target fails."""
MIN_OF_OTHERS = 2
"""Failures of other clients, with no answer in between, that open it for all. One in a hundred
fails by chance."""
OWN_EVIDENCE_NS = 10 * NS_PER_S
"""A good answer to this worker outweighs the failures of other workers for this long."""
RECEIVED_OPEN_NS = 30 * NS_PER_S
"""How long the breaker stays open at most after the latest failure that other workers report."""
DISTRUST_NS = 300 * NS_PER_S
"""How long the reports of others are ignored after an own request has shown the opposite."""
MIN_TURN_NS = 3 * NS_PER_S
"""A breaker that is open for a shorter time needs no turn: the fleet could not grant one in
time."""
TURN_PATIENCE_NS = 60 * NS_PER_S
"""How long a probe that is due waits for its turn."""
PROBE_PROGRESS_NS = 3 * NS_PER_S
"""A probe whose answer has not ended must have brought tokens for this long."""
RAMP_NS = 10 * NS_PER_S
RAMP_ANSWERS = 20
MIN_RAMP = 0.1
"""The share of its traffic that a target gets when its breaker becomes half open."""
_PERIOD_NS = 5 * NS_PER_S
_PERIODS = 6


class CircuitBreaker:
    """Circuit breaker of one target. Call `release_probe` before another method when an attempt has
    ended."""

    __slots__ = (
        "_backed_off",
        "_bad",
        "_consecutive_failures",
        "_distrust_until_ns",
        "_failures",
        "_good",
        "_good_ns",
        "_open_for_ns",
        "_period",
        "_ramp_answers",
        "_ramp_ns",
        "_random",
        "_recent",
        "_times_cooled",
        "_times_opened",
        "_wait_requested",
        "client",
        "good_began_ns",
        "open_until_ns",
        "opened_ns",
        "probe_attempt",
        "reason",
        "received",
        "state",
        "turn_until_ns",
    )  # fmt: skip

    def __init__(self, random: Random) -> None:
        self._random = random
        self.state: State = "closed"
        self.open_until_ns = 0
        """While it is open: when a probe is allowed."""
        self.reason = ""
        self.client = ""
        """The only client that it concerns unless it is closed; "": it concerns all."""
        self.probe_attempt = ""
        """The key of the attempt that is the probe, "" if no probe is in flight."""
        self.opened_ns = 0
        self.good_began_ns: int | None = None
        """When the request began whose answer was the last to end well; None: there was none."""
        self.received = False
        """Whether its state is what other workers report, and not yet confirmed by a request of
        this one."""
        self.turn_until_ns: int | None = None
        """Before which time a probe may begin; None: no turn is needed."""
        self._distrust_until_ns = 0
        self._wait_requested = False
        self._backed_off = False
        self._open_for_ns = 0
        self._times_opened = self._times_cooled = 0  # consecutive times
        self._ramp_ns: int | None = None
        """When the first answer since the return ended well; None: not yet."""
        self._ramp_answers = 0
        self._consecutive_failures = 0
        self._good_ns = -JUST_SERVED_NS
        self._recent: deque[bool] = deque(maxlen=RECENT)  # whether each failed
        # the time of each, and its client
        self._failures: deque[tuple[int, str]] = deque(maxlen=RECENT)
        self._period = 0
        self._good = [0] * _PERIODS
        self._bad = [0] * _PERIODS

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.state}{': ' + self.reason if self.reason else ''}>"

    def concerns(self, client: str | None) -> bool:
        return not self.client or client is None or client == self.client

    def record_success(self, now_ns: int, began_ns: int, client: str = "") -> None:
        self.good_began_ns = began_ns
        concerned = not self.client or client == self.client
        if self.state == "open" and concerned:
            self.record_progress(now_ns, began_ns)
            if self.state == "open":
                if not self.received:
                    return
                self.distrust_reports(now_ns)  # the request began before the report
                self._close()
        if concerned:
            self.received = False
        self._count(self._good, now_ns)
        self._recent.append(False)
        self._consecutive_failures = 0
        self._good_ns = now_ns
        if self.state == "half_open" and began_ns >= self.opened_ns and concerned:
            if self._ramp_ns is None:
                self._ramp_ns = now_ns
            self._ramp_answers += 1
            if self._ramp_answers >= RAMP_ANSWERS:
                self._close()

    def record_progress(self, now_ns: int, began_ns: int) -> None:
        if self.state == "open" and began_ns >= self.opened_ns and not self.must_wait(now_ns):
            if self.received:
                self.distrust_reports(now_ns)
            self._return()

    def record_failure(self, now_ns: int, began_ns: int, reason: str, client: str = "") -> None:
        self._consecutive_failures += 1
        self._count(self._bad, now_ns)
        self._recent.append(True)
        self._failures.append((now_ns, client))
        if self.state != "closed" and not self.concerns(client):
            if self._fails_without(self.client, now_ns):
                self._back_off(now_ns, began_ns, f"fails for several clients, the last: {reason}")
        elif self.state == "closed":
            if self._consecutive_failures >= IN_A_ROW:
                words = f"{self._consecutive_failures} failures in a row, the last: {reason}"
                self._back_off(now_ns, began_ns, words, self._suspect(now_ns))
            else:
                good, bad = sum(self._good), sum(self._bad)
                if good + bad >= MIN_REQUESTS and bad >= WORST_SHARE * (good + bad):
                    words = f"{bad} of {good + bad} requests failed lately, the last: {reason}"
                    self._back_off(now_ns, began_ns, words, self._suspect(now_ns))
        elif self.state == "half_open":
            if began_ns >= self.opened_ns:
                words = f"failed again while returning: {reason}"
                self._back_off(now_ns, began_ns, words, self._suspect(now_ns))
        elif self._was_probe(now_ns, began_ns):
            self._back_off(now_ns, began_ns, f"still failing: {reason}", self._suspect(now_ns))

    def record_silence(self, now_ns: int, began_ns: int, reason: str, client: str = "") -> None:
        if self.state == "closed":
            self._back_off(now_ns, began_ns, reason, client)
        elif self.concerns(client):
            self.record_failure(now_ns, began_ns, reason, client)
        else:
            self._back_off(now_ns, began_ns, reason)

    def record_rate_limit(
        self, now_ns: int, began_ns: int, wait_ns: int | None, reason: str, client: str = ""
    ) -> None:
        fresh = self.state != "open" or began_ns >= self.opened_ns or not self.concerns(client)
        if wait_ns:
            until_ns = now_ns + min(wait_ns, LONGEST_ASKED_NS)
            if self.state != "open" or until_ns > self.open_until_ns or fresh:
                words = f"it asked us to wait: {reason}"
                self._open(
                    now_ns, until_ns, words, self._also_met_by(client, now_ns), wait_requested=True
                )
        elif fresh:
            for_ns = min(FIRST_COOL_NS << min(self._times_cooled, 10), LONGEST_COOL_NS)
            self._times_cooled += 1
            if (
                self.state != "open"
                or now_ns + for_ns > self.open_until_ns
                or not self.concerns(client)
            ):
                self._open(now_ns, now_ns + for_ns, reason, self._also_met_by(client, now_ns))

    def record_not_served(
        self,
        now_ns: int,
        began_ns: int,
        reason: str,
        client: str = "",
        *,
        may_be_request: bool = True,
    ) -> None:
        if self.state == "open" and self.concerns(client) and not self._was_probe(now_ns, began_ns):
            return
        if may_be_request and now_ns - self._good_ns < JUST_SERVED_NS:
            if self.state == "open" and self.concerns(client):
                self._back_off(now_ns, began_ns, f"still failing: {reason}", self.client)
        else:
            until_ns = now_ns + self._jitter(LONGEST_OPEN_NS)
            words = f"it does not serve this model: {reason}"
            self._open(now_ns, until_ns, words, self._also_met_by(client, now_ns))

    def release_probe(self, attempt: str) -> None:
        if self.probe_attempt == attempt:
            self.probe_attempt = ""

    def must_wait(self, now_ns: int, client: str | None = None) -> bool:
        return (
            self._wait_requested
            and self.state == "open"
            and now_ns < self.open_until_ns
            and self.concerns(client)
        )

    def is_down(self, now_ns: int, client: str | None = None) -> bool:
        if self.state != "open" or not self.concerns(client):
            return False
        return (
            now_ns < self.open_until_ns or bool(self.probe_attempt) or self.waits_for_turn(now_ns)
        )

    def traffic_share(self, now_ns: int) -> float:
        if self.state != "half_open":
            return 1.0
        if self._ramp_ns is None:
            return MIN_RAMP
        ramp_ns = max(min(self._open_for_ns, RAMP_NS), 1)
        part = (now_ns - self._ramp_ns) / ramp_ns
        if part < 1:
            return max(part, MIN_RAMP)
        self._close()
        return 1.0

    def degradation(self, now_ns: int) -> str:
        failed, attempts = sum(self._recent), len(self._recent)
        if attempts < MIN_RECENT or failed < DEGRADED_SHARE * attempts:
            return ""
        if now_ns - self._failures[-1][0] >= DEGRADED_NS:
            return ""
        return f"{failed / attempts:.0%} of the last {attempts} attempts failed"

    @property
    def is_failing(self) -> bool:
        return self.state == "open" and self._backed_off

    def needs_turn(self) -> bool:
        return self.state == "open" and (self.received or self._open_for_ns >= MIN_TURN_NS)

    def waits_for_turn(self, now_ns: int) -> bool:
        turn_ns = self.turn_until_ns
        if turn_ns is None or now_ns < turn_ns or not self.needs_turn():
            return False
        return now_ns - self.open_until_ns < TURN_PATIENCE_NS

    def receive_opening(
        self, now_ns: int, opened_ns: int, until_ns: int, reason: str, client: str = ""
    ) -> None:
        if now_ns < self._distrust_until_ns or until_ns <= now_ns:
            return
        if self.state == "open" and self.concerns(client):
            # a later probe, which failed
            if not self._wait_requested and opened_ns > self.opened_ns:
                most_ns = min(now_ns + RECEIVED_OPEN_NS, self.opened_ns + LONGEST_OPEN_NS)
                self.open_until_ns = max(self.open_until_ns, min(until_ns, most_ns))
        elif (
            self.state == "closed" or not self.concerns(client)
        ) and now_ns - self._good_ns >= OWN_EVIDENCE_NS:
            words = f"another worker reports: {reason}"
            self._open(
                now_ns,
                min(until_ns, now_ns + RECEIVED_OPEN_NS),
                words,
                self._also_met_by(client, now_ns),
            )
            self.received = self._backed_off = True

    def receive_recovery(self, now_ns: int, began_ns: int) -> None:
        if now_ns < self._distrust_until_ns or not self.is_failing or began_ns <= self.opened_ns:
            return
        if self.probe_attempt:
            return  # its outcome is better evidence
        self._return()
        self.received = True

    def distrust_reports(self, now_ns: int) -> None:
        """Ignore the reports of other workers for a while, because a request of this worker has
        shown the opposite, or they may be about the server that the target was before."""
        self.received = False
        self._distrust_until_ns = now_ns + DISTRUST_NS

    def _return(self) -> None:
        self.state, self.probe_attempt = "half_open", ""
        self._ramp_ns, self._ramp_answers = None, 0

    def _was_probe(self, now_ns: int, began_ns: int) -> bool:
        return (
            began_ns >= self.opened_ns and now_ns >= self.open_until_ns and not self.probe_attempt
        )

    def _also_met_by(self, client: str, now_ns: int) -> str:
        others = self.state == "open" and now_ns < self.open_until_ns and self.client != client
        return "" if others else client

    def _suspect(self, now_ns: int) -> str:
        fresh = Counter(client for at_ns, client in self._failures if now_ns - at_ns < SEVERAL_NS)
        client = fresh.most_common(1)[0][0]
        return "" if self._fails_without(client, now_ns) else client

    def _fails_without(self, client: str, now_ns: int) -> bool:
        since_ns = max(self._good_ns, now_ns - SEVERAL_NS)
        return (
            sum(at_ns > since_ns and other != client for at_ns, other in self._failures)
            >= MIN_OF_OTHERS
        )

    def _close(self) -> None:
        self.state, self.reason, self._wait_requested, self.received = "closed", "", False, False
        self.client = ""
        self._times_opened = self._times_cooled = 0
        self._bad = [0] * _PERIODS  # the failures that opened it must not open it again
        self._recent.clear()

    def bring_forward(self, now_ns: int) -> None:
        if self._backed_off and self.state == "open":
            self.open_until_ns = min(self.open_until_ns, now_ns)

    def _back_off(self, now_ns: int, began_ns: int, reason: str, client: str = "") -> None:
        longest_ns = LONGEST_QUICK_NS if now_ns - began_ns < QUICK_NS else LONGEST_OPEN_NS
        if self.received and self.state == "half_open":
            self.distrust_reports(now_ns)
        if self.client != client:  # how often it has opened for others tells nothing
            self._times_opened = 0
        for_ns = self._jitter(min(FIRST_OPEN_NS << min(self._times_opened, 10), longest_ns))
        self._times_opened += 1
        self._open(now_ns, now_ns + for_ns, reason, client)
        self._backed_off = True

    def _open(
        self, now_ns: int, until_ns: int, reason: str, client: str, *, wait_requested: bool = False
    ) -> None:
        self.state, self.open_until_ns, self.reason, self.client = "open", until_ns, reason, client
        self._wait_requested, self._backed_off, self.received = wait_requested, False, False
        self.opened_ns, self._open_for_ns = now_ns, until_ns - now_ns
        self._consecutive_failures = 0

    def _jitter(self, ns: int) -> int:
        return round(ns * self._random.uniform(0.8, 1.2))

    def _count(self, into: list[int], now_ns: int) -> None:
        period = now_ns // _PERIOD_NS
        if period > self._period:
            for expired in range(max(self._period, period - _PERIODS) + 1, period + 1):
                self._good[expired % _PERIODS] = self._bad[expired % _PERIODS] = 0
            self._period = period
        into[period % _PERIODS] += 1
