"""The settings of runs, which are its options: each is declared once, as a field.

The command line, plan files, the documentation of the Python API and the reference are derived from
the fields and their annotations (`core.option.Option`). Type checkers read `api.keywords`, which
has the names and types again; a test compares them.
"""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args
from urllib.parse import urlsplit

import msgspec

from splitsecond.benchmark.findings.precision import parse_precision
from splitsecond.benchmark.load.arrivals import PATTERNS
from splitsecond.benchmark.load.plan import PlannedLoad
from splitsecond.benchmark.load.sweep import NamedWorkload, check_prompt_length, check_workloads
from splitsecond.benchmark.runs.option_forms import (
    HEADERS,
    JSON,
    NUMBERS,
    SECONDS,
    SHARE,
    TEXT,
    WHOLE_NUMBERS,
    interval,
)
from splitsecond.benchmark.workload.images import parse_images
from splitsecond.benchmark.workload.sessions import ANSWERS, LONGEST_TOOL_TIME_S, Answers
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import ArrivalClock
from splitsecond.core.option import (
    Form,
    in_python,
    of_cost,
    of_limits,
    of_load,
    of_requests,
    of_results,
    of_targets,
)
from splitsecond.core.timing.uses import USE_NAMES
from splitsecond.core.transport.packets import packet_clock_refusal
from splitsecond.core.validation import one_of, wrong

INPUT_TOKENS = {"fresh": 512, "reuse": 4608}
"""Default length of the prompts. To be cached, prompts that begin alike must be longer than
`CACHED_BY_ALL` without the part that differs."""
CACHED_BY_MOST = 1024
"""OpenAI, Gemini 2.5 Flash and most models of Anthropic cache common prefixes from this many tokens
on."""
CACHED_BY_ALL = 4096
"""All models that document a minimum cache from this many tokens on: it is that of Claude Haiku 4.5
and Opus 4.5 (Anthropic's guide "Prompt caching", 2026)."""
CONCURRENCY = (1, 8, 32)
OUTPUT_TOKENS = 512
BESIDE_SESSIONS = "no sessions with it, because sessions say what their requests contain"
BESIDE_A_TRACE = "no trace with it, because a trace is a load of its own and is sent once"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is not in the catalogue.

    `model` may be "" in a run if the server lists exactly one. `name` is its name in results, by
    default ``host/model``. `api_key_env` names the environment variable with its key; "" sends
    none. `api_format` is its API format: "openai", "anthropic", "responses", "gemini", "ollama",
    "cohere" or "replicate".
    """

    base_url: str
    model: str = ""
    name: str = ""
    api_key_env: str = ""
    api_format: str = "openai"


EXACT = "exact"
BenchOperation = Literal["chat", "embeddings", "rerank"]
Arrivals = Literal["constant", "poisson", "gamma", "trace"]
T = TypeVar("T")


def _read_cache(text: str, option: str) -> bool:
    return one_of(option, text, tuple(INPUT_TOKENS)) == "reuse"


CACHE = Form(_read_cache, lambda reuse: "reuse" if reuse else "fresh")
_requests = partial(of_load, "N", flags=("-n", "--requests"))
_output_tokens = partial(of_requests, "N", "Length of the responses in tokens.")
_concurrency = partial(of_load, "N,N", flags=("-c", "--concurrency"), form=WHOLE_NUMBERS)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a benchmark, a watch and a capacity search share.

    `targets` are names such as "groq/llama-3.3-70b-versatile" or "sim/groq"; `policies` are
    expressions such as ``race("a/x", "b/x")``, each measured like a target.
    """

    targets: Sequence[str] = ()
    policies: Sequence[str] = ()
    servers: Sequence[Server] = ()
    policy_file: Annotated[
        Path | None,
        of_targets("FILE", "A Python file with policies of your own.", flags=("--policies",)),
    ] = None
    config: Annotated[
        Path | None,
        of_targets("FILE", "A gateway's configuration, whose providers targets may name."),
    ] = None
    headers: Annotated[
        Mapping[str, str],
        of_targets("'NAME: VALUE'", "HTTP header of every request.", name="header", form=HEADERS),
    ] = {}
    metrics: Annotated[
        Sequence[str],
        of_targets(
            "[TARGET=]URL",
            "A further page of metrics to read during the run, of a server or of GPUs. Repeatable.",
        ),
    ] = ()
    no_metrics: Annotated[
        bool, of_targets("", "Do not look for the metrics of servers and GPUs, and read none.")
    ] = False
    requests: Annotated[
        int | None, _requests("Measured requests per row.", "50, or the whole trace")
    ] = None
    processes: Annotated[
        int | None,
        of_load(
            "N",
            "Maximum client processes per row; with --on, nodes.",
            "number of cores; all nodes",
        ),
    ] = None
    warmup: Annotated[
        int | None, of_load("N", "Warm-up requests before each block.", "the concurrency")
    ] = None
    on: Annotated[
        str,
        of_load(
            "CLUSTER",
            "Send the requests from the nodes of a Ray cluster: ray://HOST:PORT, or ray for "
            "this machine's own.",
        ),
    ] = ""
    seed: Annotated[int, of_load("N", "Seed of arrivals, order and prompts.")] = 0
    clock: Annotated[
        str,
        of_load(
            "CLOCK",
            "What arrival times are taken from: packets, kernel or process.",
            "packets where allowed",
        ),
    ] = ""
    itl: Annotated[
        str,
        of_load(
            "exact",
            "Read every token promptly, also without the packet clock: ITL at 100 streams "
            "and more.",
        ),
    ] = ""
    input_tokens: Annotated[
        int | None,
        of_requests("N", "Length of the prompts in tokens, by the server's count.", "512"),
    ] = None
    output_tokens: Annotated[int, _output_tokens("512; a single URL: what a pilot finds")] = (
        OUTPUT_TOKENS
    )
    prompts: Annotated[
        Path | None,
        of_requests(
            "FILE",
            "Prompts from a file: JSON lines with messages or a prompt, ShareGPT, or plain text.",
        ),
    ] = None
    images: Annotated[
        str,
        of_requests(
            "WxH[,N][,jpeg]",
            "Add N synthetic images of this size to each request, such as 1024x1024,2 or "
            "1024x1024,jpeg. Default: PNG.",
        ),
    ] = ""
    ignore_eos: Annotated[
        bool, of_requests("", "Request full-length responses (vLLM, llama.cpp).")
    ] = False
    body: Annotated[
        Mapping[str, Any], of_requests("JSON", "Further fields of every request.", form=JSON)
    ] = {}
    timeout: Annotated[float, of_requests("S", "Longest wait for the first token.")] = 120.0
    prices: Annotated[
        Mapping[str, Price],
        in_python(
            'A `Price` by target, if unknown or different for you; `""` is the price of all '
            "other targets."
        ),
    ] = {}
    usd_per_kwh: Annotated[
        float | None,
        of_cost("USD", "Price of electricity, for the energy of GPUs that are read."),
    ] = None
    max_cost: Annotated[
        float | None, of_cost("USD", "Stop before this cost and keep the results so far.")
    ] = None
    location: Annotated[
        str,
        of_results(
            "PLACE", "Where this machine stands, for the report.", "what the machine reports"
        ),
    ] = ""

    @property
    def arrival_clock(self) -> ArrivalClock:
        return cast(ArrivalClock, self.clock or "packets")

    def check(self) -> None:
        """Raise `CallerFault` for a number that makes no sense, and for a clock that is not
        available."""
        at_least_one(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            timeout=self.timeout,
            requests=self.requests,
            processes=self.processes,
        )
        check_prompt_length(self.input_tokens)
        if self.images:
            parse_images(self.images)
            if self.prompts is not None:
                raise wrong(
                    "images",
                    self.images,
                    "no file of prompts with it; its messages may contain images",
                )
        if self.clock:
            one_of("clock", self.clock, get_args(ArrivalClock))
        if self.itl:
            one_of("itl", self.itl, (EXACT,))
        if self.on:
            check_cluster(self.on)
        elif self.clock == "packets" and (refusal := packet_clock_refusal()):
            raise CallerFault(
                f"clock: the packet clock is not available: {refusal}",
                kind="no_packet_clock",
                param="clock",
                hint="`splitsecond doctor` says how to allow it.",
            )
        if self.metrics and self.no_metrics:
            raise wrong("metrics", self.metrics[0], "either it or no_metrics")
        if self.usd_per_kwh is not None and not 0 <= self.usd_per_kwh < 1e3:
            raise wrong(
                "usd_per_kwh", self.usd_per_kwh, "US dollars per kilowatt-hour, such as 0.15"
            )
        if self.max_cost is not None and not self.max_cost >= 0:
            raise wrong("max_cost", self.max_cost, "US dollars, 0 or more")


class SessionSettings(RunSettings, frozen=True, kw_only=True):
    """The settings of runs that can send sessions. Then requests are turns of sessions, and a load
    is a number of sessions at a time, or a rate of new sessions."""

    sessions: Annotated[
        str | os.PathLike[str],
        of_requests(
            "WHAT",
            "Send sessions; the load is then their number at a time. WHAT is agent, chat, or a "
            "file: WEKA, MLPerf, TraceLab, OpenTelemetry spans, messages, or ours.",
        ),
    ] = ""
    longest_wait: Annotated[
        float,
        of_requests(
            "TIME", "With --sessions: longest tool time before a turn.", "10s", form=SECONDS
        ),
    ] = LONGEST_TOOL_TIME_S
    answers: Annotated[
        Answers,
        of_requests(
            "server|recorded",
            "With --sessions: a turn contains the answer that the server gave, or filler of "
            "the recorded length.",
        ),
    ] = "server"

    def check(self) -> None:
        super().check()
        one_of("answers", self.answers, ANSWERS)
        if not 0 <= self.longest_wait < 1e6:
            raise wrong("longest_wait", self.longest_wait, "seconds, 0 or more")
        if not self.sessions and (
            self.longest_wait != LONGEST_TOOL_TIME_S or self.answers != "server"
        ):
            raise wrong("sessions", "", "sessions with longest_wait and answers")
        beside = (
            ("prompts", self.prompts),
            ("warmup", self.warmup),
            ("input_tokens", self.input_tokens),
            ("images", self.images or None),
        )
        for name, value in beside:
            if self.sessions and value is not None:
                raise wrong(name, value, BESIDE_SESSIONS)


class BenchSettings(SessionSettings, frozen=True, kw_only=True):
    """The settings of a benchmark: each target under each of `loads`.

    Each row has `requests` measured requests (None: 50, or more in many rounds). Rounds that a
    `precision` adds to those of `over` follow at the same distance. A run of several targets has by
    default the `over` that its findings need (`planning.default_over_s`). `workloads`: each is
    measured at every target, at its own rate if it has one.
    """

    concurrency: Annotated[
        int | Sequence[int] | None,
        _concurrency("Requests in flight (closed loop).", "1,8,32"),
    ] = None
    rate: Annotated[
        float | Sequence[float] | None,
        of_load("R,R", "Requests per second (open loop).", form=NUMBERS),
    ] = None
    arrivals: Annotated[
        Arrivals, of_load("KIND", "With --rate: constant, poisson or gamma; or trace.")
    ] = "poisson"
    burstiness: Annotated[
        float, of_load("X", "Shape of gamma arrivals: below 1 in bursts, 1 is Poisson.")
    ] = 1.0
    trace: Annotated[
        Path | None,
        of_load(
            "FILE",
            "Arrival times from a file, with its lengths of prompts and answers: Mooncake, "
            "Azure, BurstGPT, or seconds, one per line.",
        ),
    ] = None
    time_scale: Annotated[
        float,
        of_load("X", "Factor of the times of --trace: 0.5 sends it in half the time."),
    ] = 1.0
    rounds: Annotated[
        int | None,
        of_load("N", "Rounds per row; each round has requests of all rows.", "6 to 8"),
    ] = None
    precision: Annotated[
        str,
        of_load(
            "SHARE",
            "Instead of -n: more rounds until the intervals of TTFT p50 and TPS p50 are ±SHARE, "
            "such as 5%; for other figures as in ttft_ms.p95=5%.",
        ),
    ] = ""
    duration: Annotated[
        float | None,
        of_load(
            "TIME",
            "Instead of -n, or as limit of --precision: rounds for 60s, 10m or 2h; of a trace its "
            "beginning.",
            form=SECONDS,
            python="Instead of -n, or as limit of --precision: rounds for so long; of a trace its "
            "beginning.",
        ),
    ] = None
    over: Annotated[
        float | None,
        of_load(
            "TIME",
            "Spread the rounds evenly over 15m or 2h, with pauses: what holds then, holds for "
            "other minutes too.",
            "12m30s with several targets",
            form=SECONDS,
            python="Spread the rounds evenly over so long, with pauses: over 900 s or more, "
            "findings hold for other minutes too.",
        ),
    ] = None
    quick: Annotated[
        bool,
        of_load(
            "",
            "No pauses between the rounds: a first look that holds for the seconds of the run "
            "only.",
        ),
    ] = False
    side_by_side: Annotated[bool, of_load("", "Measure different hosts at the same time.")] = False
    session_rate: Annotated[
        float | Sequence[float] | None,
        of_load("R,R", "With --sessions: new sessions per second.", form=NUMBERS),
    ] = None
    workloads: Sequence[NamedWorkload] = ()
    input_tokens: Annotated[
        int | None,
        of_requests(
            "N,N",
            "Length of the prompts in tokens, by the server's count; several, such as 512,8k,50k, "
            "are compared.",
            "512; 4608 with --cache reuse",
            form=TEXT,
            python="Length of the prompts in tokens, by the server's count.",
        ),
    ] = None
    operation: Annotated[
        BenchOperation,
        of_requests(
            "NAME",
            "What requests ask for: chat, embeddings or rerank. The last two have --batch inputs "
            "of --input-tokens each.",
        ),
    ] = "chat"
    batch: Annotated[
        int,
        of_requests(
            "N,N",
            "With --operation: texts to embed, or documents to rank, in a request; several are "
            "compared.",
            "1",
            form=TEXT,
            python="With --operation: texts to embed, or documents to rank, in a request.",
        ),
    ] = 1
    schema: Annotated[
        Path | None,
        of_requests(
            "FILE",
            "Ask for structured output of this JSON schema, and report the share of answers that "
            "fit it.",
        ),
    ] = None
    tools: Annotated[
        Path | None,
        of_requests(
            "FILE",
            "Require a call of one of these tools (a list in OpenAI's form), and report the "
            "share of right calls.",
        ),
    ] = None
    check_file: Annotated[
        Path | None,
        of_requests(
            "FILE",
            'Ask these questions, JSON lines with "question" and "answer", and report the share '
            "of answers that have the expected words.",
            flags=("--check",),
        ),
    ] = None
    cache_reuse: Annotated[
        bool,
        of_requests(
            "fresh|reuse",
            "fresh: every prompt begins differently. reuse: also measure rows whose prompts begin "
            "alike, and what the provider's prompt cache saves.",
            name="cache",
            form=CACHE,
            python="Also measure rows whose prompts begin alike, and what the provider's prompt "
            "cache saves.",
        ),
    ] = False
    slo: Annotated[
        str,
        of_results("LIMITS", f"Limits for goodput: ttft=300ms,tpot=20ms, or one of {USE_NAMES}."),
    ] = ""

    @property
    def loads(self) -> list[PlannedLoad]:
        """The loads: closed loops, unless there is only a rate; none for a trace."""
        levels = several(self.concurrency)
        rates = several(self.rate if self.session_rate is None else self.session_rate)
        if not (levels or rates or self.trace):
            levels = [*CONCURRENCY]
        return closed_loops(levels) + [
            PlannedLoad(rate=each, pattern=pattern, burstiness=self.burstiness)
            for pattern in PATTERNS
            if pattern == self.arrivals
            for each in rates
        ]

    def check(self) -> None:
        super().check()
        self._check_load()
        self._check_trace()
        self._check_rounds()
        self._check_operation()
        self._check_answers()
        check_workloads(self.workloads)
        names = [each.name for each in self.workloads]
        if names:
            for name, value in (
                ("cache", "reuse" if self.cache_reuse else ""),
                ("policy", self.policies),
                ("prompts", self.prompts),
            ):
                if value:
                    raise wrong("workload", names[0], f"no {name} with it")
        if self.sessions:
            _refuse(BESIDE_SESSIONS, cache=self.cache_reuse, trace=self.trace, workload=names)
        if self.trace:
            _refuse(BESIDE_A_TRACE, precision=self.precision, workload=names, over=self.over)

    def _check_rounds(self) -> None:
        at_least_one(rounds=self.rounds, duration=self.duration, over=self.over)
        if self.over is not None:
            if self.duration is not None and not self.precision:
                raise wrong("over", self.over, "no duration with it, whose rounds leave no pause")
            if self.quick:
                raise wrong("over", self.over, "either it or quick")
            if self.rounds == 1:
                raise wrong("over", self.over, "two rounds or more with it")
        if self.requests is not None:
            _refuse(
                "either it or a number of requests",
                precision=self.precision,
                duration=self.duration,
            )
        if self.precision:
            parse_precision(self.precision)

    def _check_load(self) -> None:
        one_of("arrivals", self.arrivals, get_args(Arrivals))
        if not (math.isfinite(self.burstiness) and self.burstiness > 0):
            raise wrong("burstiness", self.burstiness, "a number above 0")
        if self.session_rate is not None and not self.sessions:
            raise wrong("session_rate", _text(self.session_rate), "`sessions` with it")
        if self.rate is not None and self.sessions:
            expected = "`session_rate`, which is the rate of new sessions"
            raise wrong("rate", _text(self.rate), expected)
        if self.rate is not None and (self.trace or self.arrivals == "trace"):
            raise wrong("rate", _text(self.rate), "either a rate or a trace")

    def _check_trace(self) -> None:
        if self.trace and self.concurrency is not None:
            raise wrong("concurrency", _text(self.concurrency), "either it or a trace")
        if self.arrivals == "trace" and not self.trace:
            raise wrong("arrivals", self.arrivals, "`trace` with it")
        if not (math.isfinite(self.time_scale) and self.time_scale > 0):
            raise wrong("time_scale", self.time_scale, "a number above 0")
        if self.time_scale != 1 and not self.trace:
            raise wrong("time_scale", self.time_scale, "a trace with it")

    def _check_answers(self) -> None:
        if self.schema or self.tools or self.check_file:
            _refuse(
                "no schema, tools or check with it",
                sessions=self.sessions,
                operation=self.operation if self.operation != "chat" else "",
            )
        if self.check_file and (self.prompts or self.workloads or self.trace or self.images):
            raise wrong("check", str(self.check_file), "no other prompts with it")
        if self.schema and self.tools:
            raise wrong("schema", str(self.schema), "either it or tools")

    def _check_operation(self) -> None:
        one_of("operation", self.operation, get_args(BenchOperation))
        at_least_one(batch=self.batch)
        if self.operation == "chat":
            if self.batch != 1 or any(each.batch for each in self.workloads):
                raise wrong("batch", self.batch, "an operation with it: embeddings or rerank")
            return
        check_prompt_length(self.input_tokens or INPUT_TOKENS["fresh"], self.batch)
        for name, value in (
            ("sessions", self.sessions),
            ("cache", "reuse" if self.cache_reuse else ""),
            ("prompts", self.prompts),
            ("images", self.images),
            ("trace", self.trace),
            ("slo", self.slo),
            ("ignore_eos", self.ignore_eos),
            ("output_tokens", self.output_tokens if self.output_tokens != OUTPUT_TOKENS else None),
            ("precision", "" if "=" in self.precision else self.precision),
        ):
            if value:
                expected = f"no {name} with the operation {self.operation}"
                hint = "; name figures: latency_ms.p50=5%" if name == "precision" else ""
                raise wrong(name, value, f"{expected}{hint}")


class WatchSettings(RunSettings, frozen=True, kw_only=True):
    every: Annotated[str, of_load("TIME", "Time from one round to the next: 30m, 3h, 1d.")] = "1h"
    times: Annotated[int | None, of_load("N", "End after this many rounds.", "never")] = None
    concurrency: Annotated[
        int | Sequence[int],
        _concurrency("Requests in flight."),
    ] = 1
    requests: Annotated[int | None, _requests("Measured requests per row.")] = 20
    output_tokens: Annotated[int, _output_tokens()] = 128
    fail_if: Annotated[
        Sequence[str],
        of_limits(
            "EXPRESSION",
            "Exit 1 if it holds for a row of a round, as in 'ttft_ms.p95 > +20%'. Repeatable.",
            python="Gates such as 'ttft_ms.p95 > +20%', whose breaches each round lists.",
        ),
    ] = ()

    @property
    def loads(self) -> list[PlannedLoad]:
        return closed_loops(several(self.concurrency))

    @property
    def every_ns(self) -> int:
        return interval(self.every, "every")


class CapacitySettings(SessionSettings, frozen=True, kw_only=True):
    """The settings of a capacity search: the highest load at which `share` of the requests meet
    `slo`. The load is a concurrency from `first` to `last`, or with `rate` a number of requests a
    second."""

    slo: Annotated[
        str,
        of_limits("LIMITS", f"Such as ttft=300ms,tpot=20ms,e2e=5s,tps=50, or one of {USE_NAMES}."),
    ] = "voice"
    share: Annotated[
        float, of_limits("SHARE", "Share of the requests that must meet them.", form=SHARE)
    ] = 0.95
    rate: Annotated[
        bool,
        of_load("", "Search by requests per second instead of concurrency.", name="by_rate"),
    ] = False
    first: Annotated[float, of_load("N", "The lowest load.", flags=("--from",))] = 1
    last: Annotated[float, of_load("N", "The highest load.", flags=("--to",))] = 256
    requests: Annotated[
        int | None,
        _requests("Requests of a round of a step.", "as many as the load needs"),
    ] = None
    over: Annotated[
        float | None,
        of_load(
            "TIME",
            "Spread the rounds that confirm the result evenly over 15m or 2h, with pauses.",
            form=SECONDS,
            python="Spread the rounds that confirm the result evenly over so long, with pauses.",
        ),
    ] = None
    output_tokens: Annotated[int, _output_tokens()] = 128

    def check(self) -> None:
        super().check()
        at_least_one(over=self.over)
        if self.sessions and self.rate:
            raise wrong(
                "by_rate",
                self.rate,
                "no sessions with it: the load is a number of sessions at a time",
            )
        for name, value in (("from", self.first), ("to", self.last)):
            if not (math.isfinite(value) and value > 0) or (
                not self.rate and value != round(value)
            ):
                raise wrong(
                    name,
                    value,
                    "requests a second, above 0" if self.rate else "a whole number from 1",
                )
        if self.last < self.first:
            raise wrong("to", self.last, f"{self.first:g} or more, the lowest load")
        if not 0.5 <= self.share <= 0.999:
            raise wrong("share", self.share, "a share such as 95%, from 50% to 99.9%")


def _refuse(expected: str, **beside: object) -> None:
    """Raise `CallerFault` for the first setting that has a value."""
    for name, value in beside.items():
        if value:
            raise wrong(name, value, expected)


def several(value: T | Sequence[T] | None) -> list[T]:
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) else [value]


def _text(numbers: float | Sequence[float]) -> str:
    return ",".join(f"{each:g}" for each in several(numbers))


def closed_loops(levels: Sequence[int]) -> list[PlannedLoad]:
    return [PlannedLoad(concurrency=level) for level in levels]


def at_least_one(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not (math.isfinite(value) and value >= 1):
            raise wrong(name, value, "1 or more")


def too_short_to_cache(settings: RunSettings) -> str:
    """Return a warning if prompts of this length may not be cached; "" if they are, or come from a
    file."""
    length = settings.input_tokens or INPUT_TOKENS["reuse"]
    if length > CACHED_BY_ALL or settings.prompts is not None:
        return ""
    return (
        f"Prompts of {length:,} tokens may be too short for a prompt cache: many providers cache "
        f"from {CACHED_BY_MOST:,} tokens on, some models from {CACHED_BY_ALL:,}. The default is "
        f"{INPUT_TOKENS['reuse']:,} tokens."
    )


def check_cluster(on: str) -> None:
    """Raise `CallerFault` for an address that no Ray cluster can have."""
    if on in ("ray", "ray:auto"):
        return
    with suppress(ValueError):  # an impossible port
        parts = urlsplit(on)
        if (
            parts.scheme == "ray"
            and parts.hostname
            and parts.port
            and not (parts.path or parts.query)
        ):
            return
    raise wrong("on", on, "ray://HOST:10001, or ray for the cluster that this machine is part of")
