"""Answers of targets, as the log knows them at each moment.

A call that was sent to a target answers with that attempt. For any other target its answer is drawn
from attempts of other calls there that are similar: with a prompt of about its length, streamed or
not, with the session in the target's cache or not, and near in time. The nearest attempt to a
moment close to the call's answers, so all calls of one slow minute meet the attempts of this
minute.

A race or a hedge closes its loser before its first token. Such a time is censored: the answer is
drawn from similar attempts that took longer.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitsecond.core.catalog.model_names import identify
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.timing.columns import US_PER_HOUR, Floats, Integers, Mask
from splitsecond.core.timing.packed_attempt import OUTCOMES, UNKNOWN
from splitsecond.log.statistics.prefill import fitted
from splitsecond.log.store.request_columns import LoggedAttempts, RequestColumns

MIN_SIMILAR = 20
"""Similar attempts that an answer must rest on."""
NEAR_US = US_PER_HOUR
"""Within so much time before and after it."""
JITTER_US = 60_000_000
"""An answer is that of the attempt nearest to a moment within so much time of the call's."""
EDGE_US = 5_000_000
"""Whether a target fails is decided by its attempt nearest to a moment within so much time of the
call's, an attempt of any kind: an outage begins and ends at a moment."""
LATE_NS = 20 * NS_PER_MS
"""An attempt that begins later after its call than this was made because another one was slow or
failed."""
OWN_NS = 10 * NS_PER_S
"""The call's own attempt answers if it is made within so much time of when it was made in the
log."""
MAX_SCALE = 4.0
"""Prompts of one class differ by this factor at most, and so do times that are scaled between
them."""
FIT = 5000
"""Attempts of a target that the dependence of times on lengths is fitted to."""
MIN_EXPECTED_S = 0.001
COMPARED = 32
"""Nearest attempts among which one that took longer is looked for."""
OK, FAILED, CANCELLED = (OUTCOMES.index(name) for name in ("ok", "failed", "cancelled"))
CACHE_AGES_NS = (300 * NS_PER_S, 3600 * NS_PER_S)
WARMTHS = 4
"""Classes of calls by when their session was at the target last: never, within 5 min, within an
hour, earlier."""
PROMPTS = 16
Expectation = tuple[float, float, float]
"""A time in seconds: fixed, for each new token of the prompt, and for each cached one (or token of
the answer)."""
_OF_THE_REQUEST = frozenset({400, 413, 422})


class Basis:
    """Why an answer can be trusted or not."""

    SIMILAR, FEW, LONGER, SLOWER, LOAD = range(5)


class CacheUse(NamedTuple):
    """What the prompt cache of a target may have of a session. `warmth`: the class of when it was
    there last, below `WARMTHS`. `prefix`: the tokens of its prompt then; 0: it never was there."""

    warmth: int
    prefix: int


NO_CACHE = CacheUse(0, 0)


class LoggedAnswer(NamedTuple):
    """An answer in virtual time, from the begin of the attempt. `wait_ns`: its first token, UNKNOWN
    if none came. `fault`: place of its fault, UNKNOWN for none. `basis`: see `Basis`. `sure_ns`:
    until then it surely has no token where the basis is `SLOWER`."""

    wait_ns: int
    end_ns: int
    fault: int
    input_tokens: int
    cached_tokens: int
    written_tokens: int
    hour_tokens: int
    output_tokens: int
    basis: int
    sure_ns: int = 0


class _Similar(NamedTuple):
    """Attempts that resemble each other, in the order of time."""

    at_us: "memoryview[int]"
    attempt: "memoryview[int]"


class _Views(NamedTuple):
    """Columns whose single values are read often: a view gives a number of Python's several times
    faster than an array."""

    came_us: "memoryview[int]"
    stream: "memoryview[int]"
    wanted_tokens: "memoryview[int]"
    answered: "memoryview[int]"
    input_tokens: "memoryview[int]"
    prompt: "memoryview[int]"
    of_request: "memoryview[bool]"
    chance: "memoryview[float]"
    first: "memoryview[int]"
    call: "memoryview[int]"
    target: "memoryview[int]"
    outcome: "memoryview[int]"
    fault: "memoryview[int]"
    cached: "memoryview[int]"
    written: "memoryview[int]"
    hour: "memoryview[int]"
    output: "memoryview[int]"
    begin_ns: "memoryview[int]"
    wait_ns: "memoryview[int]"
    end_ns: "memoryview[int]"
    closed: "memoryview[bool]"
    failed: "memoryview[bool]"
    warmth: "memoryview[int]"
    prefix: "memoryview[int]"
    expected_s: "memoryview[float]"
    residual: "memoryview[float]"


class History:
    """The calls and attempts of a log.

    `asked`: the targets that it knows. `own`: calls answer with their own attempts; otherwise all
    answers are drawn from other calls, which tries the drawing itself.
    """

    def __init__(self, logged: RequestColumns, *, own: bool = True) -> None:
        self.logged = logged
        calls, attempts = logged.calls, logged.attempts
        self._own = own
        count = len(calls.came_us)
        self._first = np.searchsorted(attempts.call, np.arange(count + 1))
        self._chances = np.random.default_rng(0).random(count)
        self.models = [identify(name).model for name in logged.targets]
        self.begin_ns = _begins(attempts)
        has_token = attempts.first_token_ns != UNKNOWN
        self._wait_ns = np.where(has_token, attempts.first_token_ns - self.begin_ns, UNKNOWN)
        self._end_ns = np.maximum(attempts.end_ns - self.begin_ns, 0)
        self._closed = ~has_token & (attempts.outcome == CANCELLED)
        self.input_tokens = prompt_tokens(logged)
        self._warmth, self._prefix = self._caches()
        self._of_request = self._refused_requests()
        self._prompt = prompt_class(self.input_tokens)
        prompt = self._prompt[attempts.call]
        stream = calls.stream[attempts.call]
        self._lengths = self._lengths_of_attempts(stream)
        self._expectation = self._expectations(stream)
        self._expected_s = self._expected_times(stream)
        waited_ns = np.where(has_token, self._wait_ns, self._end_ns)
        self._residual = waited_ns / NS_PER_S / self._expected_s
        usable = ~self._of_request[attempts.call]
        begun_us = calls.came_us[attempts.call] + self.begin_ns // 1000
        first = self.begin_ns - self._earliest()[attempts.call] <= LATE_NS
        kind = ((attempts.target * 2 + stream) * WARMTHS + self._warmth) * PROMPTS + prompt
        self._failed = ~has_token & (attempts.outcome == FAILED)
        answers = usable & ~self._failed
        self._of_kind = [_grouped(kind, begun_us, each) for each in (answers & first, answers)]
        self._of_target = [
            _grouped(attempts.target, begun_us, each) for each in (usable & first, usable)
        ]
        self.asked = [
            name for number, name in enumerate(logged.targets) if number in self._of_target[True]
        ]
        self._views = self._made_views()
        self._longest = [
            int(prompt[attempts.target == target].max(initial=0))
            for target in range(len(logged.targets))
        ]

    def answer(
        self,
        call: int,
        target: int,
        number: int,
        at_us: int,
        *,
        late: bool,
        cache: CacheUse = NO_CACHE,
    ) -> LoggedAnswer:
        """Return the answer of `target` to its `number`-th attempt (from 0) of `call`, which begins
        at `at_us`.

        `late`: the attempt was made because another one of the call is slow or has failed.
        """
        v, own = self._views, UNKNOWN
        if self._own or v.of_request[call]:
            own = self._own_attempt(call, target, number, at_us, cache)
        if own != UNKNOWN and not v.closed[own]:
            return self._as_logged(call, own)
        prompt = v.prompt[call]
        kind = ((target * 2 + v.stream[call]) * WARMTHS + cache.warmth) * PROMPTS + prompt
        similar = self._of_kind[late].get(kind)
        basis = Basis.SIMILAR
        if similar is None or not _are_near(similar, at_us):
            basis = Basis.LONGER if prompt > self._longest[target] else Basis.FEW
        everything = self._of_target[late].get(target) or self._of_target[True][target]
        chance = (v.chance[call] + target * 0.6180339887 + number * 0.7548776662) % 1.0
        attempt = self._nearest(everything, at_us + round((2 * chance - 1) * EDGE_US), call)
        if own != UNKNOWN or not v.failed[attempt]:
            attempt = self._drawn(similar or everything, at_us, chance, call, own)
        sure_ns = UNKNOWN if own == UNKNOWN else v.end_ns[own]
        return self._transferred(call, target, attempt, sure_ns, basis, cache.prefix)

    def _own_attempt(self, call: int, target: int, number: int, at_us: int, cache: CacheUse) -> int:
        v = self._views
        begin, end = v.first[call], v.first[call + 1]
        if v.of_request[call]:
            return begin
        for attempt in range(begin, end):
            if v.target[attempt] == target:
                if number:
                    number -= 1
                    continue
                begun_us = v.came_us[call] + v.begin_ns[attempt] // 1000
                same = (v.warmth[attempt], v.prefix[attempt]) == cache
                return attempt if same and abs(at_us - begun_us) * 1000 <= OWN_NS else UNKNOWN
        return UNKNOWN

    def _drawn(self, similar: _Similar, at_us: int, chance: float, call: int, closed: int) -> int:
        """Return the attempt that answers; one that was closed itself if none near in time took
        longer.

        `closed`: the call's own attempt, which was closed before its first token; UNKNOWN: there is
        none. An attempt that was closed itself is replaced by any that took longer than it was
        waited for, and so on: this draws from the Kaplan-Meier estimate. Times are compared as
        multiples of what is expected for the lengths, because a race closes its loser early for a
        short prompt.
        """
        residual, is_closed = self._views.residual, self._views.closed
        attempt = self._nearest(similar, at_us + round((2 * chance - 1) * JITTER_US), call)
        place = bisect_left(similar.at_us, at_us)
        limits = [each for each in (closed, attempt) if each != UNKNOWN and is_closed[each]]
        low = max(min(place - COMPARED // 2, len(similar.attempt) - COMPARED), 0)
        near = similar.attempt[low : low + COMPARED]
        while limits:
            longest = max(limits, key=residual.__getitem__)
            longer = [each for each in near if residual[each] > residual[longest]]
            if not longer:
                return longest
            chance = chance * 997 % 1.0
            attempt = longer[int(chance * len(longer))]
            limits = [attempt] if is_closed[attempt] else []
        return attempt

    def _nearest(self, among: _Similar, moment_us: int, call: int) -> int:
        """Return the attempt nearest to a moment; without own attempts, of another call."""
        place = _nearest(among.at_us, moment_us)
        if not self._own and self._views.call[among.attempt[place]] == call:
            place += 1 if place + 1 < len(among.at_us) else -1
        return among.attempt[place]

    def _as_logged(self, call: int, attempt: int) -> LoggedAnswer:
        v = self._views
        return LoggedAnswer(
            v.wait_ns[attempt], v.end_ns[attempt], v.fault[attempt], v.input_tokens[call],
            max(v.cached[attempt], 0), max(v.written[attempt], 0), max(v.hour[attempt], 0),
            max(v.output[attempt], 0), Basis.SIMILAR,
        )  # fmt: skip

    def _transferred(
        self, call: int, target: int, other: int, sure_ns: int, basis: int, prefix: int
    ) -> LoggedAnswer:
        """Return the answer to the attempt `other` as one to `call`, whose lengths differ a
        little."""
        v = self._views
        prompt, others_prompt = v.input_tokens[call], v.input_tokens[v.call[other]]
        share = prompt / max(others_prompt, 1)
        written, hour = (
            min(round(max(each[other], 0) * share), prompt) for each in (v.written, v.hour)
        )
        if prefix and (others_prefix := v.prefix[other]):
            share = prefix / others_prefix
        cached = min(round(max(v.cached[other], 0) * share), prompt)
        output, others_output = v.wanted_tokens[call], max(v.output[other], 0)
        answered = v.answered[call]
        if output <= 0 or (answered != UNKNOWN and self.models[answered] != self.models[target]):
            output = others_output
        expectation = self._expectation[target, v.stream[call]]
        now_s = _expected(expectation, prompt - cached, cached if v.stream[call] else output)
        scale = min(max(now_s / v.expected_s[other], 1 / MAX_SCALE), MAX_SCALE)
        wait_ns, end_ns = v.wait_ns[other], v.end_ns[other]
        if v.closed[other]:
            wait_ns = end_ns = max(round(end_ns * scale), sure_ns) + 1
            return LoggedAnswer(
                wait_ns, end_ns, UNKNOWN, prompt, 0, 0, 0, output, Basis.SLOWER, wait_ns
            )
        if wait_ns == UNKNOWN:
            return LoggedAnswer(UNKNOWN, end_ns, v.fault[other], prompt, 0, 0, 0, 0, basis)
        decode_ns = end_ns - wait_ns
        if v.outcome[other] != FAILED and output > 1 and others_output > 1:
            decode_ns = round(decode_ns * (output - 1) / (others_output - 1))
        wait_ns = max(round(wait_ns * scale), sure_ns + 1)
        fault = v.fault[other] if v.outcome[other] == FAILED else UNKNOWN
        return LoggedAnswer(
            wait_ns, wait_ns + decode_ns, fault, prompt, cached, written, hour, output, basis
        )

    def _made_views(self) -> _Views:
        calls, a = self.logged.calls, self.logged.attempts
        columns = (
            calls.came_us, calls.stream, calls.output_tokens, calls.target, self.input_tokens,
            self._prompt, self._of_request, self._chances, self._first, a.call, a.target,
            a.outcome, a.fault, a.cached_tokens, a.cache_write_tokens, a.cache_write_1h_tokens,
            a.output_tokens, self.begin_ns, self._wait_ns, self._end_ns, self._closed,
            self._failed, self._warmth, self._prefix, self._expected_s, self._residual,
        )  # fmt: skip
        views: list[Any] = [each.data for each in columns]
        return _Views(*views)

    def _lengths_of_attempts(self, stream: Integers) -> Floats:
        """Return, for each attempt, what its time to the first token depends on: new tokens of the
        prompt, and cached ones; of a call that is not streamed, tokens of the answer in their
        place.

        A closed attempt has no counts. It read as much from the cache as others of its target and
        age do on average.
        """
        a, calls = self.logged.attempts, self.logged.calls
        prompt = self.input_tokens[a.call]
        answered = self._wait_ns != UNKNOWN
        kind = a.target * WARMTHS + self._warmth
        base = np.where(self._prefix > 0, self._prefix, prompt)
        tokens, read = (
            np.bincount(kind[answered], each[answered]) for each in (base, a.cached_tokens.clip(0))
        )
        shares = np.zeros(int(kind.max(initial=0)) + 1)
        np.divide(read, tokens, out=shares[: len(read)], where=tokens > 0)
        cached = np.where(answered, a.cached_tokens.clip(0), base * shares[kind])
        output = np.where(a.output_tokens > 0, a.output_tokens, calls.output_tokens[a.call]).clip(0)
        return np.stack([np.maximum(prompt - cached, 0), np.where(stream == 1, cached, output)])

    def _expected_times(self, stream: Integers) -> Floats:
        target, (new, other) = self.logged.attempts.target, self._lengths
        expected_s = np.ones(len(target))
        for (which, streamed), (fixed, by_new, by_other) in self._expectation.items():
            here = (target == which) & (stream == streamed)
            expected_s[here] = fixed + by_new * new[here] + by_other * other[here]
        return expected_s.clip(MIN_EXPECTED_S)

    def _expectations(self, stream: Integers) -> dict[tuple[int, int], Expectation]:
        """Return how times depend on lengths, for each target and for calls that are streamed or
        not."""
        a = self.logged.attempts
        expectations: dict[tuple[int, int], Expectation] = {}
        for target in range(len(self.logged.targets)):
            for streamed in (0, 1):
                which = np.flatnonzero(
                    (a.target == target) & (stream == streamed) & (self._wait_ns > 0)
                )
                which = which[:: max(len(which) // FIT, 1)]
                (new, other), seconds = self._lengths[:, which], self._wait_ns[which] / NS_PER_S
                model = fitted(new, other, seconds)
                numbers = (1.0, 0.0, 0.0)
                if model is not None:
                    numbers = max(model.fixed, 0.0), max(model.new, 0.0), max(model.reused, 0.0)
                elif len(which) > MIN_SIMILAR:
                    numbers = _line(new, seconds)
                expectations[target, streamed] = numbers
        return expectations

    def _earliest(self) -> Integers:
        earliest_ns = np.zeros(len(self._first) - 1, np.int64)
        some = np.flatnonzero(np.diff(self._first))
        if len(some):
            earliest_ns[some] = np.minimum.reduceat(self.begin_ns, self._first[some])
        return earliest_ns

    def _caches(self) -> tuple[Integers, Integers]:
        """Return what the cache of its target may have had of each attempt's session: see
        `CacheUse`."""
        calls, attempts = self.logged.calls, self.logged.attempts
        warm, prefix = np.zeros((2, len(attempts.call)), np.int64)
        last: dict[tuple[int, int, int], tuple[int, int]] = {}
        for attempt in np.flatnonzero(calls.session[attempts.call] != UNKNOWN).tolist():
            call = int(attempts.call[attempt])
            key = int(calls.session[call]), int(calls.agent[call]), int(attempts.target[attempt])
            now_ns = int(calls.came_us[call]) * 1000 + int(self.begin_ns[attempt])
            warm[attempt], prefix[attempt] = cache_use(last.get(key), now_ns)
            if self._wait_ns[attempt] != UNKNOWN:
                last[key] = now_ns, int(self.input_tokens[call])
        return warm, prefix

    def _refused_requests(self) -> Mask:
        """Return which calls failed because of what they asked for, so that no other target
        helps."""
        faults = self.logged.faults
        refused = [each.type == "CallerFault" or each.status in _OF_THE_REQUEST for each in faults]
        attempts = self.logged.attempts
        is_refused: Mask = np.zeros(len(self.logged.calls.came_us), bool)
        is_refused[attempts.call[np.array([*refused, False], bool)[attempts.fault]]] = True
        is_refused &= self.logged.calls.outcome == FAILED
        return is_refused


def cache_use(last: tuple[int, int] | None, now_ns: int) -> CacheUse:
    """Return the cache use of a session. `last`: when it was at the target last, and the tokens of
    its prompt then."""
    return (
        NO_CACHE
        if last is None
        else CacheUse(1 + bisect_left(CACHE_AGES_NS, now_ns - last[0]), last[1])
    )


def prompt_class(tokens: Integers) -> Integers:
    """Return the class of prompts by their length; the longest of a class is `MAX_SCALE` times the
    shortest."""
    return np.asarray(np.log2(np.maximum(tokens, 1)) / np.log2(MAX_SCALE), np.int64).clip(
        0, PROMPTS - 1
    )


def _begins(attempts: LoggedAttempts) -> Integers:
    """Return when each attempt began, from the arrival of its call: before it connected. One that
    was not sent began when the attempt before it ended."""
    setup = attempts.dns_ns + attempts.tcp_ns + attempts.tls_ns
    before = np.zeros(len(setup), np.int64)
    same = attempts.call[1:] == attempts.call[:-1]
    before[1:][same] = attempts.end_ns[:-1][same]
    unsent = np.minimum(before, attempts.end_ns)
    return np.where(attempts.sent_ns == UNKNOWN, unsent, np.maximum(attempts.sent_ns - setup, 0))


def prompt_tokens(logged: RequestColumns) -> Integers:
    """Return the input tokens of each call; the median of all where they are not known."""
    calls, attempts = logged.calls, logged.attempts
    tokens = calls.input_tokens.copy()
    has_tokens = attempts.input_tokens > 0
    largest = np.zeros(len(tokens), np.int64)
    np.maximum.at(largest, attempts.call[has_tokens], attempts.input_tokens[has_tokens])
    tokens = np.where(tokens > 0, tokens, largest)
    return np.where(
        tokens > 0, tokens, int(np.median(tokens[tokens > 0])) if (tokens > 0).any() else 1
    )


def _expected(expectation: Expectation, new: int, other: int) -> float:
    return max(expectation[0] + expectation[1] * new + expectation[2] * other, MIN_EXPECTED_S)


def _line(new: Floats, seconds: Floats) -> Expectation:
    """Return fixed time and time for each new token from the medians of shorter and of longer
    prompts."""
    middle = np.median(new)
    short, long = new <= middle, new > middle
    if not long.any():
        return 1.0, 0.0, 0.0
    x = np.array([new[short].mean(), new[long].mean()])
    y = np.array([np.median(seconds[short]), np.median(seconds[long])])
    slope = max(float((y[1] - y[0]) / (x[1] - x[0])), 0.0)
    return max(float(y[0] - slope * x[0]), float(y[0]) / MAX_SCALE), slope, 0.0


def _grouped(kind: Integers, at_us: Integers, usable: Mask) -> dict[int, _Similar]:
    some = np.flatnonzero(usable)
    some = some[np.lexsort((at_us[some], kind[some]))]
    names, starts = np.unique(kind[some], return_index=True)
    ends = [*starts[1:].tolist(), len(some)]
    times = np.ascontiguousarray(at_us[some])
    return {
        name: _Similar(times[start:end].data, some[start:end].data)
        for name, start, end in zip(names.tolist(), starts.tolist(), ends, strict=True)
    }


def _nearest(at_us: Sequence[int], moment_us: int) -> int:
    place = bisect_left(at_us, moment_us)
    if place == len(at_us):
        return place - 1
    return place - 1 if place and moment_us - at_us[place - 1] < at_us[place] - moment_us else place


def _are_near(similar: _Similar, at_us: int) -> bool:
    times = similar.at_us
    if len(times) < MIN_SIMILAR:
        return False
    place = bisect_left(times, at_us)
    low = min(max(place - MIN_SIMILAR // 2, 0), len(times) - MIN_SIMILAR)
    return at_us - times[low] <= NEAR_US and times[low + MIN_SIMILAR - 1] - at_us <= NEAR_US
