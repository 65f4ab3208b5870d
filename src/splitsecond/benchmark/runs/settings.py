"""The settings of runs, each declared once, with its default: the command line makes them from
options, the public API from arguments."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

import msgspec

from splitsecond.benchmark.findings.precision import parse_precision
from splitsecond.benchmark.load.plan import PlannedLoad
from splitsecond.benchmark.load.sweep import NamedWorkload, check_workloads
from splitsecond.benchmark.workload.images import parse_images
from splitsecond.benchmark.workload.sessions import ANSWERS, LONGEST_TOOL_TIME_S, Answers
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import ArrivalClock
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


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a benchmark, a watch and a capacity search share.

    `targets` are names such as "groq/llama-3.3-70b-versatile" or "sim/groq"; `policies` are
    expressions such as ``race("a/x", "b/x")``, each measured like a target; `policy_file` is a
    Python file with those of the user. `config` is a gateway's configuration, whose providers come
    before those of the catalogue. `warmup` requests begin each block (None: as many as the
    concurrency). `seed` decides arrivals, order and prompts. `prompts` is a file of prompts,
    instead of synthetic ones of `input_tokens`. `images`: synthetic images of each request, as
    ``1024x1024,2`` or ``1024x1024,jpeg``. `body` has further fields of every request. `timeout` is
    the longest wait for a first token, in seconds. `processes` is the most client processes per row
    (None: the number of processors). `clock` is what arrival times are taken from: "packets" (needs
    CAP_NET_RAW), "kernel" or "process" ("": packets where allowed, else the kernel). `itl` "exact":
    every token is read promptly where the packet clock is not available, which costs processor
    time. `prices` maps targets to prices, "" to that of all other targets. `max_cost`: the run
    stops before it costs more, in US dollars (None: no limit). `location`: where the measuring
    machine stands ("": what it knows). `on`: the Ray cluster whose nodes send the requests,
    "ray://HOST:10001", or "ray" for the one that this machine is part of ("": this machine sends
    them); `processes` is then the most nodes. `metrics`: addresses of further pages with metrics of
    servers or GPUs, each "[TARGET=]URL"; with `no_metrics` none is looked for, and none is read.
    `usd_per_kwh`: price of electricity.
    """

    targets: Sequence[str] = ()
    policies: Sequence[str] = ()
    policy_file: Path | None = None
    servers: Sequence[Server] = ()
    config: Path | None = None
    headers: Mapping[str, str] = {}
    requests: int | None = None
    warmup: int | None = None
    seed: int = 0
    input_tokens: int | None = None
    output_tokens: int = 512
    prompts: Path | None = None
    images: str = ""
    ignore_eos: bool = False
    body: Mapping[str, Any] = {}
    timeout: float = 120.0
    processes: int | None = None
    clock: str = ""
    itl: str = ""
    prices: Mapping[str, Price] = {}
    max_cost: float | None = None
    location: str = ""
    on: str = ""
    metrics: Sequence[str] = ()
    no_metrics: bool = False
    usd_per_kwh: float | None = None

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
    """The settings of runs that can send sessions.

    `sessions`: requests are turns of sessions: "agent", "chat", or a file (`session_files`). Then a
    load is a number of sessions at a time, or a rate of new sessions. Tool time is at most
    `longest_wait` seconds. `answers`: each turn contains the answer that the "server" gave, or
    filler of the "recorded" length.
    """

    sessions: str = ""
    longest_wait: float = LONGEST_TOOL_TIME_S
    answers: Answers = "server"

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
                raise _beside_sessions(name, value)


def _beside_sessions(name: str, value: object) -> CallerFault:
    return wrong(
        name, value, "no sessions with it, because sessions say what their requests contain"
    )


class BenchSettings(SessionSettings, frozen=True, kw_only=True):
    """The settings of a benchmark: each target under each of `loads`.

    Each row has `requests` measured requests (None: 50, or more in many rounds) in `rounds` (None:
    6 to 8). Or rounds follow until each row has a `precision`, "5%" or "ttft_ms.p95=5%,tps.p50=3%",
    or until `duration` seconds have passed. With `over`, rounds begin at even distances, the first
    planned one at once, the last `over` seconds later; those that a precision adds follow at the
    same distance. A run of several targets has by default the `over` that its findings need
    (`planning.default_over_s`); with `quick` its rounds follow each other at once. With
    `side_by_side`, different hosts are measured at the same time. With `cache_reuse` each row has a
    second one whose prompts begin alike. `slo`: limits such as "ttft=300ms", or "voice". `trace` is
    a file of arrivals; its times are multiplied by `time_scale`. `workloads`: each is measured at
    every target, at its own rate if it has one. `operation` "embeddings" or "rerank": each request
    has `batch` texts to embed or documents to rank, of `input_tokens` each. `schema`: a file with
    the JSON schema, `tools` one with the tools, that answers must fit; `check_file`: questions with
    their answers, JSON lines.
    """

    loads: Sequence[PlannedLoad] = tuple(PlannedLoad(concurrency=level) for level in CONCURRENCY)
    rounds: int | None = None
    precision: str = ""
    duration: float | None = None
    over: float | None = None
    quick: bool = False
    side_by_side: bool = False
    cache_reuse: bool = False
    slo: str = ""
    workloads: Sequence[NamedWorkload] = ()
    trace: Path | None = None
    time_scale: float = 1.0
    operation: BenchOperation = "chat"
    batch: int = 1
    schema: Path | None = None
    tools: Path | None = None
    check_file: Path | None = None

    def check(self) -> None:
        super().check()
        self._check_operation()
        self._check_answers()
        if not (math.isfinite(self.time_scale) and self.time_scale > 0):
            raise wrong("time_scale", self.time_scale, "a number above 0")
        if self.time_scale != 1 and self.trace is None:
            raise wrong("time_scale", self.time_scale, "a trace with it")
        beside_a_trace: tuple[tuple[str, object], ...] = (
            ("concurrency", [load.label for load in self.loads]),
            ("precision", self.precision),
            ("workload", [each.name for each in self.workloads]),
            ("over", self.over),
        )
        for what, given in beside_a_trace:
            if self.trace is not None and given:
                raise wrong(
                    what,
                    given,
                    "no trace with it, because a trace is a load of its own and is sent once",
                )
        check_workloads(self.workloads)
        for name, value in (
            ("cache", self.cache_reuse),
            ("policy", self.policies),
            ("prompts", self.prompts),
        ):
            if self.workloads and value:
                raise wrong("workload", self.workloads[0].name, f"no {name} with it")
        beside_sessions = (
            ("cache", self.cache_reuse),
            ("trace", self.trace),
            ("workload", [each.name for each in self.workloads]),
        )
        for name, value in beside_sessions:
            if self.sessions and value:
                raise _beside_sessions(name, value)
        at_least_one(rounds=self.rounds, duration=self.duration, over=self.over)
        if self.over is not None and self.duration is not None and not self.precision:
            raise wrong("over", self.over, "no duration with it, whose rounds leave no pause")
        if self.over is not None and self.quick:
            raise wrong("over", self.over, "either it or quick")
        if self.over is not None and self.rounds == 1:
            raise wrong("over", self.over, "two rounds or more with it")
        for name in ("precision", "duration"):
            if self.requests is not None and getattr(self, name):
                raise wrong(name, getattr(self, name), "either it or a number of requests")
        if self.precision:
            parse_precision(self.precision)

    def _check_answers(self) -> None:
        wanted = self.schema or self.tools or self.check_file
        for name, value in (
            ("sessions", self.sessions),
            ("operation", self.operation if self.operation != "chat" else ""),
        ):
            if wanted and value:
                raise wrong(name, value, "no schema, tools or check with it")
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
        beside: tuple[tuple[str, object], ...] = (
            ("sessions", self.sessions),
            ("cache", self.cache_reuse),
            ("prompts", self.prompts),
            ("images", self.images),
            ("trace", self.trace),
            ("slo", self.slo),
            ("ignore_eos", self.ignore_eos),
            ("precision", "" if "=" in self.precision else self.precision),
        )
        for name, value in beside:
            if value:
                expected = f"no {name} with the operation {self.operation}"
                hint = "; name figures: latency_ms.p50=5%" if name == "precision" else ""
                raise wrong(name, value, f"{expected}{hint}")


class WatchSettings(RunSettings, frozen=True, kw_only=True):
    requests: int | None = 20
    output_tokens: int = 128
    loads: Sequence[PlannedLoad] = (PlannedLoad(concurrency=1),)
    every_ns: int
    folder: Path


class CapacitySettings(SessionSettings, frozen=True, kw_only=True):
    """The settings of a capacity search: the highest load at which `share` of the requests meet
    `slo`.

    The load is a concurrency from `first` to `last`, or with `rate` a number of requests a second.
    A step sends `requests` before it is judged (None: as many as can decide it). With `over`, the
    rounds that confirm the result begin at even distances over so many seconds.
    """

    output_tokens: int = 128
    slo: str = "voice"
    share: float = 0.95
    rate: bool = False
    first: float = 1
    last: float = 256
    over: float | None = None

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
        f"Prompts of {length:,} tokens may be too short for a prompt "
        f"cache: many providers cache from "
        f"{CACHED_BY_MOST:,} tokens on, some models from {CACHED_BY_ALL:,}. The default is "
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
