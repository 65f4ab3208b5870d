"""Profiles of simulated providers: one TOML file each, shipped in `profiles/` or written by the
user.

There are two kinds of profiles. A file with `[[table]]` rows has measured times per concurrency,
for a provider whose inside is unknown. A file with an `[engine]` has the parameters of a
continuous-batching server, whose times follow from its load.

Shipped profiles are named `provider-model`; an alias is a short name of one.
"""

import difflib
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from splitsecond.core.errors import CallerFault, content_faults, file_faults
from splitsecond.core.validation import converted
from splitsecond.core.wire.api_format import TimesForm
from splitsecond.simulator.content.faults import InjectedFault
from splitsecond.simulator.content.replies import ReplyRule, load_rules

TimingsForm = Literal["", "openai"] | TimesForm
_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
_NotNegative = Annotated[int, msgspec.Meta(ge=0)]
_Above0 = Annotated[float, msgspec.Meta(gt=0)]


MAX_PREFIXES = 1_000_000
"""Maximum number of prefixes in all prompt caches of a provider, which take about 200 bytes
each."""
ANY_MODEL = "*"
_HINT = "Compare it with a shipped profile."


class Quantiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The median of a figure and its slow tail: 95% of the requests were at least as good as
    `p95`."""

    p50: float
    p95: float


class TableRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The times measured with `concurrency` requests in flight. `tps.p95` is the slow tail, so it
    is below the p50."""

    concurrency: _AtLeastOne
    ttft_ms: Quantiles
    tps: Quantiles

    def __post_init__(self) -> None:
        if not 0 < self.ttft_ms.p50 <= self.ttft_ms.p95:
            raise ValueError(
                f"ttft_ms must have 0 < p50 <= p95, not {self.ttft_ms.p50} and {self.ttft_ms.p95}"
            )
        if not 0 < self.tps.p95 <= self.tps.p50:
            raise ValueError(
                f"tps must have 0 < p95 <= p50 (p95 is the slow tail), not {self.tps.p95} and "
                f"{self.tps.p50}"
            )


class GpuSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The GPU of an engine: it draws `idle_w` without requests and `full_w` with all slots in use,
    and in between in proportion. Beyond `limit_w` (None: no limit) it draws no more, and steps take
    longer in the same proportion.
    """

    idle_w: _Above0
    full_w: _Above0
    limit_w: _Above0 | None = None

    def __post_init__(self) -> None:
        if (
            not self.idle_w
            <= (self.full_w if self.limit_w is None else self.limit_w)
            <= self.full_w
        ):
            raise ValueError("a gpu needs idle_w <= limit_w <= full_w")


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A continuous-batching server.

    A step takes `step_base_ms`, `step_per_sequence_ms` for each sequence in the batch, and the time
    of the prompt tokens processed in it (`prefill_tokens_per_s`, at most `prefill_chunk_tokens` in
    one step). `slots` sequences run at a time and `queue_limit` more can wait (None: any number);
    further requests get `full_status`.

    Running requests hold their prompt and answer in a KV cache of `kv_cache_tokens` (None: without
    limit): a prompt waits until it fits, and when answers fill the cache, the request that began
    last is preempted. `/metrics` tells what the engine does, in the names of vLLM, and what its
    `gpu` does, in those of DCGM exporter.
    """

    slots: _AtLeastOne
    prefill_tokens_per_s: _Above0
    prefill_chunk_tokens: _AtLeastOne
    step_base_ms: _Above0
    step_per_sequence_ms: Annotated[float, msgspec.Meta(ge=0)]
    kv_cache_tokens: _AtLeastOne | None = None
    gpu: GpuSpec | None = None
    queue_limit: _NotNegative | None = None
    full_status: Literal[429, 503] = 429


class PromptCacheSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prompt cache of a provider: a table ``[prompt_cache]``, which may be empty.

    Prefixes of at least `from_tokens` are stored, in whole blocks of `block_tokens`, from the first
    token of the response until they were not sent for `ttl_s`. In Anthropic's format only the parts
    that the client marks are stored, exactly up to the mark. The usage of a response reports cached
    tokens, and its first token comes earlier: an engine does not process them again; a table,
    measured without a cache, saves the share `saves` of TTFT for a fully cached prompt, and
    proportionally less for a part. `saves` is for tables only; the default is 0.8.

    If a cache holds more than `capacity_tokens`, it drops the least recently used ones. None:
    100,000 blocks or marked prefixes. `cached_tokens_per_s`: how fast the cached tokens of a prompt
    are loaded; None: at once.
    """

    from_tokens: _AtLeastOne = 1024
    block_tokens: _AtLeastOne = 128
    ttl_s: _Above0 = 300.0
    saves: float | None = None
    capacity_tokens: _AtLeastOne | None = None
    cached_tokens_per_s: _Above0 | None = None

    def __post_init__(self) -> None:
        if self.saves is not None and not 0 <= self.saves < 1:
            raise ValueError(f"saves must be from 0 to below 1, not {self.saves}")


class ReplicasSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replicas behind the address of a provider: a table ``[replicas]``.

    Each of the `count` replicas has its own prompt cache, and its own engine if the profile has
    one. A request goes to one of them by `routing`: at random, by the session that its headers
    name, or by the prefix of its prompt.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=256)]
    routing: Literal["random", "session", "prefix"] = "random"


class RateLimitSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rate limits of a provider: a table ``[rate_limits]``, with one of the two or both.

    Each response reports the remaining amounts, if its API format has headers for them. A request
    beyond a limit gets a 429 with the time to wait.
    """

    requests_per_minute: _AtLeastOne | None = None
    tokens_per_minute: _AtLeastOne | None = None

    def __post_init__(self) -> None:
        if self.requests_per_minute is None and self.tokens_per_minute is None:
            raise ValueError("rate_limits need requests_per_minute, tokens_per_minute or both")


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One simulated provider. `source` and `measured` give the origin of its numbers, `note` the
    assumptions.

    A request without a limit gets `output_tokens`. `natural_tokens`, if given, is the length at
    which a response ends by itself below its limit. The first `reasoning_tokens` of each response,
    at most all but its last token, are reasoning. `engine` is None for a table, and `table` is
    empty for an engine. Without `prompt_cache` nothing is cached or reported; without `rate_limits`
    there are no limits; without `replicas` there is one.

    With `prefill_tokens_per_s`, which is for tables only, each prompt token that is not cached adds
    to the TTFT of the table, which is then that of an empty prompt.

    `server_timings` is the form in which the end of a response reports the provider's own timings,
    in OpenAI's format: "groq", "cerebras" or "llama.cpp"; "openai" is a header with the time to the
    response headers. Ollama's format always has durations.

    `usage`: whether a stream in OpenAI's format ends with the token counts only if the request asks
    for them, or always (as at Mistral, which rejects that field).

    `model` is "*" for a provider that serves every name. With `keys`, requests need one of these
    API keys. `replies` are the rules for the contents of responses, and those in the JSONL file
    `replies_file`, relative to the profile, follow them. With `strict`, a request that no rule fits
    gets 404. `role_chunk`: whether the first chunk of a stream in OpenAI's format, which has the
    role and no text, comes with the first token, as engines send it, or "early", with the headers.
    `embedding_dimensions` is the length of an embedding if the request gives none. `effort_tokens`:
    reasoning tokens by the effort that a request asks for, where it is not `reasoning_tokens`.
    `invalid_share` of requests get structured output and tool calls that are cut off, so that they
    are no JSON.
    """

    name: str = ""
    title: str
    model: str
    aliases: tuple[str, ...] = ()
    source: str = ""
    measured: str = ""
    note: str = ""
    output_tokens: _AtLeastOne = 256
    natural_tokens: _AtLeastOne | None = None
    reasoning_tokens: _NotNegative = 0
    effort_tokens: dict[str, _NotNegative] = {}
    table: tuple[TableRow, ...] = ()
    engine: EngineSpec | None = None
    prefill_tokens_per_s: _Above0 | None = None
    prompt_cache: PromptCacheSpec | None = None
    replicas: ReplicasSpec | None = None
    rate_limits: RateLimitSpec | None = None
    server_timings: TimingsForm = ""
    usage: Literal["requested", "always"] = "requested"
    faults: tuple[InjectedFault, ...] = ()
    keys: tuple[str, ...] = ()
    replies: tuple[ReplyRule, ...] = ()
    replies_file: str = ""
    strict: bool = False
    role_chunk: Literal["with_token", "early"] = "with_token"
    embedding_dimensions: Annotated[int, msgspec.Meta(ge=1, le=16_384)] = 1536
    invalid_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        if bool(self.table) == (self.engine is not None):
            raise ValueError("a profile has either [[table]] rows or an [engine], and not both")
        saves = None if self.prompt_cache is None else self.prompt_cache.saves
        if self.engine is not None and saves is not None:
            raise ValueError(
                "prompt_cache.saves is for tables only; an [engine] computes its savings"
            )
        if self.engine is not None and self.prefill_tokens_per_s is not None:
            raise ValueError(
                "prefill_tokens_per_s beside a table is for tables only; an [engine] has its own"
            )
        if self.prefill_tokens_per_s is not None and saves is not None:
            raise ValueError("give either prefill_tokens_per_s or prompt_cache.saves, and not both")
        self._check_replicas()
        levels = [row.concurrency for row in self.table]
        if levels != sorted(set(levels)):
            raise ValueError(
                f"the rows of the table must have increasing concurrency, not {levels}"
            )

    def _check_replicas(self) -> None:
        cache, count = self.prompt_cache, self.replicas.count if self.replicas is not None else 1
        if cache is None and self.replicas is not None and self.replicas.routing == "prefix":
            raise ValueError('replicas.routing = "prefix" needs a [prompt_cache]')
        if (
            cache is not None
            and (cache.capacity_tokens or 0) * count > MAX_PREFIXES * cache.block_tokens
        ):
            raise ValueError(
                f"the capacity of all replicas is more than {MAX_PREFIXES:,} "
                f"blocks; take longer blocks"
            )


def names() -> list[str]:
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in _folder().iterdir()
        if entry.name.endswith(".toml")
    )


def aliases() -> dict[str, str]:
    return {alias: name for name in names() for alias in _shipped(name).aliases}


def load(name_or_path: str) -> Profile:
    """Load the shipped profile with this name or alias, or the profile in this `.toml` file.

    Raises `CallerFault` for an unknown name, and for a missing or invalid file.
    """
    if name_or_path.endswith(".toml"):
        return _from_file(Path(name_or_path))
    shipped, short = names(), aliases()
    if name_or_path in shipped:
        return _shipped(name_or_path)
    if name_or_path in short:
        return _shipped(short[name_or_path])
    raise _unknown(name_or_path, [*shipped, *short])


def parse(text: str, *, name: str, where: str) -> Profile:
    with content_faults(where, kind="bad_profile", hint=_HINT):
        fields = tomllib.loads(text)
    profile = converted("", fields, Profile, lambda *parts: _bad(where, *_placed(*parts)))
    return profile if profile.name else msgspec.structs.replace(profile, name=name)


def _placed(place: str, message: str, hint: str) -> tuple[str, str]:
    return f"{place}: {message}" if place else message, hint


def _bad(where: str, message: str, hint: str = "") -> CallerFault:
    return CallerFault(f"{where}: {message}", kind="bad_profile", hint=hint or _HINT)


def _folder() -> Traversable:
    return resources.files(__package__) / "profiles"


def _shipped(name: str) -> Profile:
    return parse(
        (_folder() / f"{name}.toml").read_text("utf-8"), name=name, where=f"profiles/{name}.toml"
    )


def _from_file(path: Path) -> Profile:
    with file_faults(f"cannot read the profile {path}", kind="unreadable_profile"):
        text = path.read_text("utf-8")
    profile = parse(text, name=path.stem, where=str(path))
    return (
        with_replies(profile, path.parent / profile.replies_file)
        if profile.replies_file
        else profile
    )


def with_replies(profile: Profile, path: Path) -> Profile:
    return msgspec.structs.replace(profile, replies=(*profile.replies, *load_rules(path)))


def _unknown(name: str, possible: list[str]) -> CallerFault:
    near = [other for other in possible if name and name in other]
    near += [
        other
        for other in difflib.get_close_matches(name, possible, n=5, cutoff=0.4)
        if other not in near
    ]
    choice = (
        f"Did you mean {', '.join(near[:5])}?"
        if near
        else "`splitsecond simulate --list` shows all."
    )
    return CallerFault(
        f"unknown profile {name!r}",
        kind="unknown_profile",
        hint=f"{choice} For your own profile give a path that ends in .toml.",
    )
