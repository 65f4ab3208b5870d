"""How each policy is written: the one list of what can stand in an expression.

A new policy is a file and an entry here.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from splitsecond.policy.answers.acceptance import acceptance
from splitsecond.policy.budget import MOST_SAVED
from splitsecond.policy.by_complexity import LEVELS, by_complexity
from splitsecond.policy.by_task import by_task
from splitsecond.policy.cache import cache
from splitsecond.policy.cap import cap
from splitsecond.policy.cascade import cascade
from splitsecond.policy.cheapest import cheapest
from splitsecond.policy.deadline import deadline
from splitsecond.policy.fallback import SECOND_TRIES, fallback
from splitsecond.policy.fastest import fastest
from splitsecond.policy.hedge import EXTRA_LOAD as HEDGED
from splitsecond.policy.hedge import hedge
from splitsecond.policy.limit import limit
from splitsecond.policy.near import inside, near
from splitsecond.policy.pipeline import early_start, pipeline
from splitsecond.policy.race import race
from splitsecond.policy.resume import resume, way
from splitsecond.policy.retry import EXTRA_LOAD as RETRIED
from splitsecond.policy.retry import retry
from splitsecond.policy.settings import (
    count,
    duration,
    figure,
    flag,
    length,
    memory,
    quantile,
    region,
    share,
    shares,
    spending,
    use,
)
from splitsecond.policy.sticky import sticky
from splitsecond.policy.weighted import weighted
from splitsecond.service import Service

Reader = Callable[[str, object], object]


class Form(Struct, frozen=True, kw_only=True):
    """How a policy is written: what makes it, how many branches, which settings, and which of those it must have.

    `least` and `most` count the branches without a name. `named`: the branches that may be given by name; None: any
    name that is no setting's. `needs`: one of these settings or named branches at least.
    `alternatives`: any of its branches may answer any call, so that one which is down can be left out. `reaches`: which
    targets those are, of the branches with given names of targets; None: all. `steps_in`: only its first branch
    may, and any of the others where that has not been enough. `backed`: what its first branch does not answer the
    second does, so that the first can be left out while it is down.
    `live`: `make` gets ``standing=``, the `Standing` of all targets, and ``names=``, for each branch (those that are
    given by name last) the names of the targets in it. `trims`: `make` gets ``without_logprobs=``, if `build` was given
    one.
    `extra`: it sends extra requests, after this share of its calls (or its ``extra_load``), and this many more; `make`
    gets ``budget=``, which all of an expression draw on. `tells`: `make` gets ``teller=``, as `build` was given it.
    """

    make: Callable[..., Service]
    example: str
    least: int
    most: int | None = None
    named: tuple[str, ...] | None = ()
    settings: Mapping[str, Reader] = {}
    needs: tuple[str, ...] = ()
    alternatives: bool = False
    reaches: Callable[..., list[str]] | None = None
    live: bool = False
    trims: bool = False
    extra: tuple[float, int] | None = None
    tells: bool = False
    steps_in: bool = False
    backed: bool = False


POLICIES: Mapping[str, Form] = {
    "race": Form(
        alternatives=True,
        live=True,
        make=race,
        example='race("a/x", "b/x")',
        least=2,
        settings={"spend": spending},
    ),
    "hedge": Form(
        alternatives=True,
        live=True,
        extra=(HEDGED, 0),
        make=hedge,
        example='hedge("a/x", "b/x", extra_load=0.05)',
        least=2,
        most=2,
        settings={"extra_load": share},
    ),
    "fallback": Form(
        alternatives=True,
        live=True,
        tells=True,
        extra=(SECOND_TRIES, MOST_SAVED),
        make=fallback,
        example='fallback("a/x", "b/x", ttft="2s")',
        least=2,
        settings={"ttft": duration, "stall": duration, "resume": way},
    ),
    "resume": Form(
        steps_in=True,
        live=True,
        tells=True,
        make=resume,
        example='resume("a/x", "b/x", how="replay", stall="10s")',
        least=1,
        settings={"how": way, "stall": duration},
    ),
    "deadline": Form(
        make=deadline,
        example='deadline("a/x", total="10s", ttft="2s")',
        least=1,
        most=1,
        settings={"total": duration, "ttft": duration},
        needs=("total", "ttft"),
    ),
    "retry": Form(
        extra=(RETRIED, MOST_SAVED),
        make=retry,
        example='retry("a/x", times=2, extra_load=0.1)',
        least=1,
        most=1,
        settings={"times": count, "extra_load": share},
    ),
    "limit": Form(
        make=limit,
        example='limit("a/x", concurrency=8, queue=0)',
        least=1,
        most=1,
        settings={"concurrency": count, "queue": length},
        needs=("concurrency",),
    ),
    "fastest": Form(
        alternatives=True,
        live=True,
        make=fastest,
        example='fastest("a/x", "b/x", by="total", at=0.5)',
        least=2,
        settings={"by": figure, "at": quantile},
    ),
    "cheapest": Form(
        alternatives=True,
        live=True,
        make=cheapest,
        example='cheapest("a/x", "b/x", within="voice")',
        least=2,
        settings={"within": use, "ttft": duration},
    ),
    "weighted": Form(
        alternatives=True,
        live=True,
        make=weighted,
        example='weighted("a/x", "b/x", weights="3,1")',
        least=2,
        settings={"weights": shares},
    ),
    "sticky": Form(
        alternatives=True,
        live=True,
        make=sticky,
        example='sticky("a/x", "b/x", ttl="10m")',
        least=2,
        settings={"ttl": duration},
    ),
    "near": Form(
        alternatives=True,
        reaches=inside,
        live=True,
        make=near,
        example='near("a/x", "b/x", region="eu")',
        least=1,
        settings={"region": region},
        needs=("region",),
    ),
    # here the policies that look into requests and answers begin
    "cascade": Form(
        backed=True,
        live=True,
        trims=True,
        make=cascade,
        example='cascade("a/small", "a/large", accept="json", hold="5s")',
        least=2,
        most=2,
        named=("judge",),
        settings={"accept": acceptance, "hold": duration},
    ),
    "pipeline": Form(
        backed=True,
        make=pipeline,
        example='pipeline("a/fast", "a/slow", early="300ms")',
        least=2,
        most=2,
        settings={"early": early_start},
    ),
    "by_complexity": Form(
        make=by_complexity,
        example='by_complexity(simple="a/small", complex="a/large")',
        least=0,
        most=0,
        named=LEVELS,
        needs=LEVELS,
    ),
    "by_task": Form(
        make=by_task,
        example='by_task(code="a/x", default="b/x")',
        least=0,
        most=0,
        named=None,
    ),
    "cap": Form(
        make=cap,
        example='cap("a/x", max_tokens=500)',
        least=1,
        most=1,
        settings={"max_tokens": count},
        needs=("max_tokens",),
    ),
    "cache": Form(
        make=cache,
        example='cache("a/x", ttl="10m", size="64MB", sampled=True)',
        least=1,
        most=1,
        settings={"ttl": duration, "size": memory, "sampled": flag},
    ),
}
