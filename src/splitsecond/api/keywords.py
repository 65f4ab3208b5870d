"""The keywords of `bench`, `capacity` and `watch`: the settings of runs, for type checkers.

A type checker cannot derive them from `benchmark.runs.settings`, which declares them. So their
names and types are here again, and a test compares them. Defaults and meanings are added to the
functions when they are imported (`with_keywords`).
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from textwrap import fill
from typing import Any, TypedDict, TypeVar

from splitsecond.benchmark.runs.settings import Arrivals, BenchOperation, RunSettings
from splitsecond.benchmark.workload.sessions import Answers
from splitsecond.core.catalog.price import Price
from splitsecond.core.option import Declared, flags_of, options_of

Function = TypeVar("Function", bound=Callable[..., Any])
UNITS = {"S": "seconds", "TIME": "seconds", "USD": "US dollars"}
"""Units of numbers, by the `metavar` of their option."""
FLAG = re.compile(r"--?[a-z][a-z-]*|[A-Z]{2,}")
"""A name of an option on the command line, or of its value."""


class RunKeywords(TypedDict, total=False):
    policy_file: Path | None
    config: Path | None
    headers: Mapping[str, str]
    metrics: Sequence[str]
    no_metrics: bool
    requests: int | None
    processes: int | None
    warmup: int | None
    on: str
    seed: int
    clock: str
    itl: str
    input_tokens: int | None
    output_tokens: int
    prompts: Path | None
    images: str
    ignore_eos: bool
    body: Mapping[str, Any]
    timeout: float
    prices: Mapping[str, Price]
    usd_per_kwh: float | None
    max_cost: float | None
    location: str


class SessionKeywords(RunKeywords, total=False):
    sessions: str | os.PathLike[str]
    longest_wait: float
    answers: Answers


class BenchKeywords(SessionKeywords, total=False):
    concurrency: int | Sequence[int] | None
    rate: float | Sequence[float] | None
    arrivals: Arrivals
    burstiness: float
    trace: Path | None
    time_scale: float
    rounds: int | None
    precision: str
    duration: float | None
    over: float | None
    quick: bool
    side_by_side: bool
    session_rate: float | Sequence[float] | None
    operation: BenchOperation
    batch: int
    schema: Path | None
    tools: Path | None
    check_file: Path | None
    cache_reuse: bool
    slo: str


class CapacityKeywords(SessionKeywords, total=False):
    slo: str
    share: float
    rate: bool
    first: float
    last: float
    over: float | None


class WatchKeywords(RunKeywords, total=False):
    every: str
    times: int | None
    concurrency: int | Sequence[int]
    fail_if: Sequence[str]


def meanings(settings: type[RunSettings]) -> Iterator[tuple[Declared, str, str]]:
    """Yield each keyword of the settings, its default in words, and what it means."""
    declared = options_of(settings)
    flags = {flag: each.field for each in declared.values() for flag in flags_of(each)}
    for each in declared.values():
        about = each.option
        with_names = partial(FLAG.sub, partial(_named, flags | {about.metavar: each.field}))
        words = with_names(about.default) if each.default in (None, "") else ""
        unit = UNITS.get(about.metavar, "") if each.type is not str else ""
        text = with_names((about.python or about.help).removesuffix(" Repeatable."))
        yield each, words or repr(each.default), f"{text} In {unit}." if unit else text


def _named(names: Mapping[str, str], match: re.Match[str]) -> str:
    return f"`{names[match[0]]}`" if match[0] in names else match[0]


def with_keywords(settings: type[RunSettings]) -> Callable[[Function], Function]:
    """Add the keywords of the settings to the signature and the docstring of a function, whose last
    parameter they are."""

    def decorate(function: Function) -> Function:
        own = signature(function)
        parameters = [*own.parameters.values()][:-1]
        lines = [cleandoc(function.__doc__ or ""), "", "Keywords:"]
        for each, default, text in meanings(settings):
            parameters.append(
                Parameter(
                    each.field, Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type
                )
            )
            line = f"{each.field} ({default}): {text}"
            lines.append(fill(line, 100, initial_indent="  ", subsequent_indent="    "))
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined] # what `inspect.signature` reads
        function.__doc__ = "\n".join(lines)
        return function

    return decorate
