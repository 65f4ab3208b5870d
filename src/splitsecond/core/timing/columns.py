"""Attempts as columns: millions of them at a time, with the same metrics as `Observation`.

A log of a fortnight has too many attempts for an object each. This module imports numpy, so the
gateway must not import it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.timing.packed_attempt import (
    CLOSED_EARLY,
    FIELDS,
    LOSER,
    OUTCOMES,
    SOURCES,
    UNBILLED,
    UNKNOWN,
    WAIT_CLOSED,
    WAIT_ENDED,
    AttemptLabel,
    attempt_numbers,
    call_hash,
)

__all__ = [
    "OUTCOMES",
    "SOURCES",
    "UNKNOWN",
    "WAIT_CLOSED",
    "WAIT_ENDED",
    "AttemptColumns",
    "AttemptLabel",
    "source_places",
]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

US_PER_HOUR = 3_600_000_000
LAYOUT = np.dtype(
    [
        (name, {"q": "<i8", "Q": "<u8", "I": "<u4", "H": "<u2", "i": "<i4"}[f])
        for name, f in FIELDS.items()
    ]
)
"""The layout of `packed_attempt.PACKED` for numpy."""


class AttemptColumns(Struct, frozen=True, kw_only=True):
    """Columns with one place for each attempt; a count or a time that is not known is `UNKNOWN`.

    `labels`: the names of the attempts, each once; `label`: the place of each attempt's names among
    them. `came_us`: when its call came in (microseconds since 1970, UTC). `call`: hash of the
    call's id, 0 if it has one attempt. `attempts`: attempts of the call. `flags`: see
    `packed_attempt`. `waits`: `WAIT_ENDED` where `wait_ns` is the TTFT of a streamed response,
    `WAIT_CLOSED` where it is the time after which the attempt was closed, or timed out, before its
    first token, else 0. `took_ns`: from the arrival of the call to the end of the attempt.
    `decoded`: tokens after the first event, in `decode_ns`. `unbilled` and `closed_early`: see
    `Observation`.
    """

    labels: Sequence[AttemptLabel]
    label: Integers
    came_us: Integers
    call: Integers
    attempts: Integers
    flags: Integers
    wait_ns: Integers
    took_ns: Integers
    decode_ns: Integers
    decoded: Integers
    input_tokens: Integers
    output_tokens: Integers
    cached_tokens: Integers
    cache_write_tokens: Integers
    cache_write_1h_tokens: Integers

    @classmethod
    def of(
        cls, attempts: Iterable[tuple[datetime, Observation]], client: str = "", route: str = ""
    ) -> "AttemptColumns":
        rows = list(attempts)
        places: dict[AttemptLabel, int] = {}
        calls: dict[str, int] = {}
        for _, o in rows:
            calls[o.call] = calls.get(o.call, 0) + 1
        numbers = []
        for moment, o in rows:
            label = AttemptLabel(o.target, client, route, o.tier, o.fault.kind if o.fault else "")
            place = places.setdefault(label, len(places))
            came_us = round(moment.timestamp() * 1e6)
            numbers.append(
                _numbers(
                    o, came_us, place, call_hash(o.call) if calls[o.call] > 1 else 0, calls[o.call]
                )
            )
        columns = np.array(numbers, np.int64).reshape(len(rows), len(FIELDS)).T
        return cls(labels=list(places), **dict(zip(FIELDS, columns, strict=True)))

    def taken(self, at: Integers | Mask | slice) -> "AttemptColumns":
        columns = {
            name: getattr(self, name)[at] for name in self.__struct_fields__ if name != "labels"
        }
        return AttemptColumns(labels=self.labels, **columns)

    def compact(self) -> "AttemptColumns":
        used = np.flatnonzero(np.bincount(self.label, minlength=len(self.labels)))
        place = np.zeros(len(self.labels), np.int64)
        place[used] = np.arange(len(used))
        return replace(
            self, labels=[self.labels[each] for each in used.tolist()], label=place[self.label]
        )

    @classmethod
    def joined(cls, parts: "Sequence[AttemptColumns]") -> "AttemptColumns":
        before = np.cumsum([0, *(len(part.labels) for part in parts)])
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in cls.__struct_fields__
            if name not in ("labels", "label")
        }
        return cls(
            labels=[label for part in parts for label in part.labels],
            label=np.concatenate(
                [part.label + more for part, more in zip(parts, before, strict=False)]
            ),
            **columns,
        )

    @property
    def targets(self) -> list[str]:
        return [self.labels[place].target for place in self.label.tolist()]

    @property
    def hours(self) -> Integers:
        return self.came_us // US_PER_HOUR

    @property
    def outcomes(self) -> Integers:
        return self.flags & 3

    @property
    def sources(self) -> Integers:
        return source_places(self.flags)

    @property
    def waits(self) -> Integers:
        return self.flags >> 4 & 3

    @property
    def unbilled(self) -> Mask:
        return (self.flags & UNBILLED) > 0

    @property
    def closed_early(self) -> Mask:
        return (self.flags & CLOSED_EARLY) > 0

    @property
    def losers(self) -> Mask:
        return (self.flags & LOSER) > 0

    @property
    def total_tps(self) -> Floats:
        has_rate = (self.outcomes == 0) & (self.output_tokens > 0) & (self.took_ns > 0)
        return _ratio(self.output_tokens, self.took_ns, has_rate) * NS_PER_S

    @property
    def tps(self) -> Floats:
        return (
            _ratio(self.decoded, self.decode_ns, (self.decoded > 0) & (self.decode_ns > 0))
            * NS_PER_S
        )

    @property
    def wait_ms(self) -> Floats:
        """Time until the first token or until the attempt was closed, in ms, NaN where `waits` is
        0."""
        return np.where(self.waits != 0, self.wait_ns / NS_PER_MS, np.nan)


def source_places(flags: Integers) -> Integers:
    return flags >> 2 & 3 | flags >> 7 & 4


def _ratio(above: Integers, below: Integers, has_ratio: Mask) -> Floats:
    ratios = np.full(len(above), np.nan)
    np.divide(above, below, out=ratios, where=has_ratio)
    return ratios


def _numbers(o: Observation, came_us: int, label: int, call: int, attempts: int) -> tuple[int, ...]:
    start = o.start_ns
    sent, head, first_token, first_answer, last_token = (
        None if at is None else at - start
        for at in (o.sent_ns, o.head_ns, o.first_token_ns, o.first_answer_ns, o.last_token_ns)
    )
    return attempt_numbers(
        lambda *numbers: numbers,
        (came_us, label, call, attempts),
        (o.outcome, o.role, o.streamed, o.fault.type if o.fault else "", o.status,
        o.unstreamed_tokens),
        (sent, head, first_token, first_answer, last_token, o.end_ns - start, o.first_event_tokens),
        (
            o.input_tokens, o.cached_tokens, o.cache_write_tokens, o.cache_write_1h_tokens,
            o.output_tokens,
            o.reasoning_tokens, o.token_source,
        ),
    )  # fmt: skip
