"""Reports of the workers of a fleet about targets: openings of circuit breakers, rate limits,
histograms of speed.

A worker reports only what it has measured itself, so nothing that was received is passed on. Times
are ages in seconds, because clocks of machines differ.

Speeds travel as histograms, because these can be added. Bucket i contains the times from
gamma^(i-1) to gamma^i microseconds, where gamma = (1 + e) / (1 - e). So the value in its middle is
at most e = 5% away from each of its times (DDSketch: Masson, Rim, Lee 2019).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.events import RateLimits
from splitsecond.routing.targets.samples import Weighted

MAX_TARGETS = 256
LONGEST_NAME = 300
"""Characters of a target's name. Clients may name targets, so longer ones are left out."""
MAX = 1e6
"""The greatest age, reset, rate or number of tokens. Providers may report more."""
MAX_COUNT = 1 << 53
MAX_BYTES = 256 << 10
"""The longest report of a gateway."""
LONGEST_RESET_S = 60.0
"""How long a rate limit counts as used up at most, because another worker reports it."""
_BUCKETS = 256
_ERROR = 0.05
_LOG_GAMMA = math.log((1 + _ERROR) / (1 - _ERROR))
_NS_PER_US = 1000
_MIDDLES_NS = [
    (1 - _ERROR) * _NS_PER_US * math.exp(place * _LOG_GAMMA) for place in range(_BUCKETS)
]

Age = Annotated[float, Meta(ge=0, le=MAX)]
Weight = Annotated[float, Meta(gt=0, le=MAX)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Buckets = Annotated[
    dict[Annotated[int, Meta(ge=0, lt=_BUCKETS)], Weight], Meta(max_length=_BUCKETS)
]


class CensoredHistogram(Struct, frozen=True, omit_defaults=True):
    """Weights of times by bucket: of requests that ended, and of those that were closed while they
    waited."""

    ended: Buckets = {}
    censored: Buckets = {}


class Speed(Struct, frozen=True, omit_defaults=True):
    """Speed of streamed answers. `tokens`: their mean length; `answers`: the weight of the answers
    that it was computed from."""

    ttft: CensoredHistogram = CensoredHistogram()
    tpot: CensoredHistogram = CensoredHistogram()
    tokens: Age = 0.0
    answers: Age = 0.0


class Opening(Struct, frozen=True, omit_defaults=True):
    """A circuit breaker that is open because of failures, since `age_s`, for another `left_s`.

    `client`: the only client that it concerns; "": all.
    """

    age_s: Age
    left_s: Age
    reason: Annotated[str, Meta(max_length=300)] = ""
    client: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""


class Limits(Struct, frozen=True, omit_defaults=True):
    """The provider's latest report on the rate limits of a key. `reset_s`: from that report on.
    `per_s`: requests per second that are sent with the key."""

    age_s: Age
    requests_left: Count | None = None
    tokens_left: Count | None = None
    requests_reset_s: Age | None = None
    tokens_reset_s: Age | None = None
    per_s: Age = 0.0

    def rate_limits(self) -> RateLimits:
        return RateLimits(
            requests_left=self.requests_left,
            tokens_left=self.tokens_left,
            requests_reset_ns=_bounded_ns(self.requests_reset_s),
            tokens_reset_ns=_bounded_ns(self.tokens_reset_s),
        )


class TargetReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Knowledge of one or several workers about a target.

    `good_s`: age of the request whose answer was the last to end well. `limits`: by the fingerprint
    of the key. `wants`: a worker has calls for the target and its breaker is open; `due`: it may be
    probed as far as the breaker is concerned; `probing`: a probe is in flight.
    """

    opening: Opening | None = None
    good_s: Age | None = None
    limits: Annotated[dict[Annotated[str, Meta(max_length=64)], Limits], Meta(max_length=16)] = {}
    speed: Speed | None = None
    wants: bool = False
    due: bool = False
    probing: bool = False


Targets = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)], TargetReport],
    Meta(max_length=MAX_TARGETS),
]
_DECODER = msgspec.json.Decoder(Targets)


class InvalidReport(ValueError):
    """A report of a gateway that does not have the form given here. Nothing of it is used."""


def decode_targets(text: str) -> dict[str, TargetReport]:
    """Return the report of another gateway. Raises `InvalidReport`."""
    if len(text) > MAX_BYTES:
        raise InvalidReport(f"it has {len(text):,} characters; the maximum is {MAX_BYTES:,}")
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidReport(" ".join(str(error).split())[:200]) from None


def encode_targets(targets: Mapping[str, TargetReport]) -> str:
    """Return a report as JSON of `MAX_BYTES` at most: the speeds are left out if they do not
    fit."""
    text = msgspec.json.encode(targets).decode()
    if len(text) > MAX_BYTES:
        text = msgspec.json.encode(
            {name: replace(each, speed=None) for name, each in targets.items()}
        ).decode()
    return text if len(text) <= MAX_BYTES else "{}"


def merged(reports: Iterable[tuple[float, TargetReport]]) -> TargetReport:
    """Return the reports of several workers about one target as one.

    The latest opening, good answer and rate limit count; rates and histograms are added.
    """
    aged = [_aged(report, since_s) for since_s, report in reports]
    speeds = [each.speed for each in aged if each.speed is not None]
    return TargetReport(
        opening=min(
            (each.opening for each in aged if each.opening),
            key=lambda opening: opening.age_s,
            default=None,
        ),
        good_s=min((each.good_s for each in aged if each.good_s is not None), default=None),
        limits=_merged_limits(each.limits for each in aged),
        speed=_added(speeds) if speeds else None,
        wants=any(each.wants for each in aged),
        due=any(each.due for each in aged),
        probing=any(each.probing for each in aged),
    )


def _merged_limits(reports: Iterable[Mapping[str, Limits]]) -> dict[str, Limits]:
    merged_limits: dict[str, Limits] = {}
    for limits in reports:
        for account, report in limits.items():
            before = merged_limits.get(account, report)
            latest = report if report.age_s < before.age_s else before
            rate = report.per_s + (before.per_s if account in merged_limits else 0.0)
            merged_limits[account] = replace(latest, per_s=bounded(rate))
    return merged_limits


def merged_targets(
    reports: Sequence[tuple[float, Mapping[str, TargetReport]]],
) -> dict[str, TargetReport]:
    names = dict.fromkeys(name for _, targets in reports for name in targets)
    return {
        name: merged([(since_s, targets[name]) for since_s, targets in reports if name in targets])
        for name in names
    }


def histogram(samples: Iterable[Weighted]) -> CensoredHistogram:
    return _collected((_bucket(ns), censored, weight) for ns, censored, weight in samples)


def samples_of(times: CensoredHistogram) -> list[Weighted]:
    return [(_MIDDLES_NS[place], censored, weight) for place, censored, weight in _weights(times)]


def _bucket(ns: float) -> int:
    return min(math.ceil(math.log(max(ns / _NS_PER_US, 1.0)) / _LOG_GAMMA), _BUCKETS - 1)


def _weights(times: CensoredHistogram) -> Iterator[tuple[int, bool, float]]:
    for buckets, censored in ((times.ended, False), (times.censored, True)):
        for place, weight in buckets.items():
            yield place, censored, weight


def _collected(weights: Iterable[tuple[int, bool, float]]) -> CensoredHistogram:
    sums: tuple[dict[int, float], dict[int, float]] = {}, {}
    for place, censored, weight in weights:
        sums[censored][place] = sums[censored].get(place, 0.0) + weight
    return CensoredHistogram(*map(_rounded, sums))


def _aged(report: TargetReport, since_s: float) -> TargetReport:
    opening = report.opening
    if opening is not None:
        left_s = max(opening.left_s - since_s, 0.0)
        opening = replace(opening, age_s=bounded(opening.age_s + since_s), left_s=left_s)
    return replace(
        report,
        opening=opening,
        good_s=None if report.good_s is None else bounded(report.good_s + since_s),
        limits={
            name: replace(each, age_s=bounded(each.age_s + since_s))
            for name, each in report.limits.items()
        },
    )


def _added(speeds: Sequence[Speed]) -> Speed:
    answers = sum(each.answers for each in speeds)
    return Speed(
        ttft=_collected(chain.from_iterable(_weights(each.ttft) for each in speeds)),
        tpot=_collected(chain.from_iterable(_weights(each.tpot) for each in speeds)),
        tokens=sum(each.tokens * each.answers for each in speeds) / answers if answers else 0.0,
        answers=answers,
    )


def _rounded(buckets: Mapping[int, float]) -> dict[int, float]:
    return {
        place: min(rounded, MAX)
        for place, weight in buckets.items()
        if (rounded := round(weight, 3)) > 0
    }


def bounded(value: float) -> float:
    return round(min(max(value, 0.0), MAX), 3)


def _bounded_ns(reset_s: float | None) -> int | None:
    return None if reset_s is None else round(min(reset_s, LONGEST_RESET_S) * NS_PER_S)
