"""What a simulated provider is like: one TOML file each, shipped in `profiles/` or a file of the user's own.

A profile is of one of two kinds. A `table` gives measured times per concurrency, for a provider known only from
outside; an `engine` gives the parameters of a continuous-batching server, whose times follow from its load. A file
says which by holding `[[table]]` rows or an `[engine]`.

Shipped profiles are named `provider-model`; an alias is a short name for one of them. A name that fits nothing gets a
`CallerFault` with the nearest names, a file that is wrong one with the path of what is wrong in it.
"""

import difflib
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.simulator.faults import PlannedFault
from splitsecond.wire.openai.server_times import TimesForm

TimingsForm = Literal["", "openai"] | TimesForm


class Quantiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure's middle and its slow tail: 95 % of requests were at least as good as `p95`."""

    p50: float
    p95: float


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured with `concurrency` requests in flight. `tps.p95` is the slow tail, so below its p50."""

    concurrency: int
    ttft_ms: Quantiles
    tps: Quantiles

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {self.concurrency}")
        if not 0 < self.ttft_ms.p50 <= self.ttft_ms.p95:
            raise ValueError(f"ttft_ms must have 0 < p50 <= p95, not {self.ttft_ms.p50} and {self.ttft_ms.p95}")
        if not 0 < self.tps.p95 <= self.tps.p50:
            raise ValueError(
                f"tps must have 0 < p95 <= p50 (p95 is the slow tail), not {self.tps.p95} and {self.tps.p50}"
            )


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A continuous-batching server.

    A step takes `step_base_ms`, `step_per_sequence_ms` for each sequence in the batch, and the time of the prompt
    tokens worked off in it (`prefill_tokens_per_s`, at most `prefill_chunk_tokens` in one step). `slots` sequences
    run at a time; `queue_limit` more may wait (None: any number); beyond that a request gets `full_status`.
    """

    slots: int
    prefill_tokens_per_s: float
    prefill_chunk_tokens: int
    step_base_ms: float
    step_per_sequence_ms: float
    queue_limit: int | None = None
    full_status: int = 429

    def __post_init__(self) -> None:
        for name in ("slots", "prefill_tokens_per_s", "prefill_chunk_tokens", "step_base_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.step_per_sequence_ms < 0:
            raise ValueError(f"step_per_sequence_ms must not be negative, but is {self.step_per_sequence_ms}")
        if self.queue_limit is not None and self.queue_limit < 0:
            raise ValueError(f"queue_limit must not be negative, but is {self.queue_limit}")
        if self.full_status not in (429, 503):
            raise ValueError(f"full_status must be 429 or 503, not {self.full_status}")


class PromptCacheSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider that remembers how prompts began: a table ``[prompt_cache]``, which may be empty.

    A beginning that has `from_tokens` or more is remembered, in whole blocks of `block_tokens`, from the first token of
    its answer on until nobody has sent it for `ttl_s`. In Anthropic's dialect only what the client marked is, up to the
    very mark. An answer to such a prompt says so in its usage, and comes sooner: an engine does not work off again what
    is cached; a table, measured without a cache, saves the share `saves` of the time to first token where all of the
    prompt is cached, and less in proportion. `saves` is a table's only, 0.8 where none is given.
    """

    from_tokens: int = 1024
    block_tokens: int = 128
    ttl_s: float = 300.0
    saves: float | None = None

    def __post_init__(self) -> None:
        for name in ("from_tokens", "block_tokens", "ttl_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.saves is not None and not 0 <= self.saves < 1:
            raise ValueError(f"saves must be from 0 to below 1, not {self.saves}")


class RateLimitSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider that limits what it is asked for: ``[rate_limits]``, with one of the two or both.

    It says in each answer how much is left, where its dialect has headers for that; beyond it a request gets a 429 that
    says how long to wait.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        if self.requests_per_minute is None and self.tokens_per_minute is None:
            raise ValueError("rate_limits need requests_per_minute, tokens_per_minute or both")
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One simulated provider. `source` and `measured` say where its numbers come from, `note` what was assumed.

    `output_tokens` is what a request gets that names no limit; `natural_tokens`, where given, is where an answer ends
    by itself although its limit is higher. `reasoning_tokens` of each answer, or all but its last token, are thoughts.
    `engine` is None for the `table` kind, `table` empty for the other. `prompt_cache` None: nothing is remembered, and
    nothing said of it; `rate_limits` None: there are none.

    `server_timings`: in whose form it says at the end of an answer where its own time went, "groq", "cerebras" or
    "llama.cpp", all of them in OpenAI's dialect; or "openai", with a header that says how long the head took.
    Ollama's dialect has durations whatever stands here.
    """

    name: str = ""
    title: str
    model: str
    aliases: tuple[str, ...] = ()
    source: str = ""
    measured: str = ""
    note: str = ""
    output_tokens: int = 256
    natural_tokens: int | None = None
    reasoning_tokens: int = 0
    table: tuple[Row, ...] = ()
    engine: EngineSpec | None = None
    prompt_cache: PromptCacheSpec | None = None
    rate_limits: RateLimitSpec | None = None
    server_timings: TimingsForm = ""
    faults: tuple[PlannedFault, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.table) == (self.engine is not None):
            raise ValueError("a profile has either [[table]] rows or an [engine], and not both")
        if self.engine is not None and self.prompt_cache is not None and self.prompt_cache.saves is not None:
            raise ValueError("what a prompt_cache saves is said of a table only; with an [engine] it follows")
        levels = [row.concurrency for row in self.table]
        if levels != sorted(set(levels)):
            raise ValueError(f"the rows of the table must have rising concurrency, not {levels}")
        if self.output_tokens < 1 or (self.natural_tokens is not None and self.natural_tokens < 1):
            raise ValueError("output_tokens and natural_tokens must be at least 1")
        if self.reasoning_tokens < 0:
            raise ValueError(f"reasoning_tokens must not be negative, but is {self.reasoning_tokens}")


def names() -> list[str]:
    """Every shipped profile, sorted, without the aliases."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def aliases() -> dict[str, str]:
    """The short names of shipped profiles, and what each stands for."""
    return {alias: name for name in names() for alias in _shipped(name).aliases}


def load(name_or_path: str) -> Profile:
    """The shipped profile of that name or alias, or the one in that `.toml` file.

    Raises `CallerFault`: the name is unknown, the file is not there, or something in it is wrong.
    """
    if name_or_path.endswith(".toml"):
        return _from_file(Path(name_or_path))
    known, short = names(), aliases()
    if name_or_path in known:
        return _shipped(name_or_path)
    if name_or_path in short:
        return _shipped(short[name_or_path])
    raise _unknown(name_or_path, [*known, *short])


def parse(text: str, *, name: str, where: str) -> Profile:
    """The profile that `text`, in TOML, says. `where` names it in messages. Raises `CallerFault`."""
    try:
        found = msgspec.convert(tomllib.loads(text), Profile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CallerFault(f"{where}: {error}", kind="bad_profile", hint="Compare it with a shipped profile.") from error
    return found if found.name else msgspec.structs.replace(found, name=name)


def _folder() -> Traversable:
    return resources.files(__package__) / "profiles"


def _shipped(name: str) -> Profile:
    return parse((_folder() / f"{name}.toml").read_text("utf-8"), name=name, where=f"profiles/{name}.toml")


def _from_file(path: Path) -> Profile:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CallerFault(f"cannot read the profile {path}: {why}", kind="unreadable_profile") from error
    return parse(text, name=path.stem, where=str(path))


def _unknown(name: str, known: list[str]) -> CallerFault:
    near = [other for other in known if name and name in other]
    near += [other for other in difflib.get_close_matches(name, known, n=5, cutoff=0.4) if other not in near]
    choice = f"Did you mean {', '.join(near[:5])}?" if near else "`splitsecond simulate --list` shows all."
    return CallerFault(
        f"unknown profile {name!r}",
        kind="unknown_profile",
        hint=f"{choice} A profile of your own is a path that ends in .toml.",
    )
