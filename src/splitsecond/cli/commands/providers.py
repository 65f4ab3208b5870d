import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct
from rich import box
from rich.table import Table
from rich.text import Text

from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.options import Json
from splitsecond.core.catalog.provider import Provider, fill_base_url, names, provider
from splitsecond.core.catalog.speed_tier import SpeedTier
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.wire.api_format import USAGE_WORDS, Quirks


def providers(
    name: Annotated[
        str, typer.Argument(metavar="[PROVIDER]", help="Show everything about this provider.")
    ] = "",
    json: Json = "",
) -> None:
    """List providers: API format, variable of the key, regions.

    \b
    splitsecond providers
    splitsecond providers groq

    Keys are never shown, only the names of the variables that hold them.
    """
    check_json(json)
    entries = [entry_of(provider(each), os.environ) for each in ([name] if name else names())]
    write_json([each.fields for each in entries], json)
    if json != "-" and name:
        show_one(entries[0])
    elif json != "-":
        show(entries)


_SAYS: Mapping[bool | str | None, str] = {
    True: "yes",
    False: "no",
    None: "unknown",
    "plain": "yes",
    "prefix": 'yes, marked with "prefix": true',
    "partial": 'yes, marked with "partial": true',
}
_QUIRKS: Mapping[str, tuple[str, Mapping[Any, str]]] = {
    "usage": ("token counts", USAGE_WORDS),
    "reasoning_field": (
        "reasoning",
        {
            "reasoning": "in the field reasoning",
            "reasoning_content": "in the field reasoning_content",
            "content": "in the visible text",
        },
    ),
    "rate_limits": (
        "rate limits",
        {
            "x-ratelimit": "in headers x-ratelimit-...",
            "anthropic-ratelimit": "in headers anthropic-ratelimit-...",
            "none": "not in headers",
        },
    ),
    "max_tokens_field": ("limit on output", {}),
    "stream_options": ("stream_options", {False: "refused"}),
    "done_marker": ("end of a stream", {False: "without [DONE]"}),
    "takes_thoughts": ("earlier reasoning", {True: "accepted, as reasoning_content"}),
    "takes": ("rarely supported fields", {}),
    "drop_tools": ("tools left out", {}),
    "default_max_tokens": ("limit on output by default", {}),
    "thought_signatures": ("signature of reasoning", {True: "required before tool calls"}),
    "session_field": ("field of the session", {}),
    "session_header": ("header of the session", {}),
    "extra_fields": ("fields of every chat", {}),
    "betas": ("beta features", {}),
    "stream_whole": ("responses that are not streamed", {False: "requested whole"}),
    "stream_hosts": ("hosts of streams", {}),
    "threads": ("conversations", {True: "kept, continued by thread"}),
    "on_vertex": ("messages", {True: "in the form of Vertex AI"}),
}
_SHORT: Mapping[bool | str | None, str] = {True: "yes", False: "no", None: "", "plain": "yes"}
_COUNTS = {"own_chunk": "own chunk", "last_chunk": "last chunk", "every_chunk": "every chunk"}
WIDE = 115
"""Least width in columns for the differences between providers."""
WIDEST = 190


_SHOWN = (
    "name", "title", "api_format", "base_url", "auth", "default_model", "quirks", "billed_by_hour",
    "closing_stops_billing", "prefill", "tiers", "error_in_200", "distances", "hardware", "notes",
    "source", "checked",
)  # fmt: skip
"""Fields of a provider that `--json` shows as they are."""


class ProviderEntry(Struct, frozen=True):
    """A provider, and whether it can be called from here. `key`: the variable that holds its key,
    "" if none is set.

    `why_not`: the reason why it cannot be called now: its key is missing, or its address is not
    complete.
    """

    provider: Provider
    key: str
    why_not: str

    @property
    def ready(self) -> bool:
        return not self.why_not

    @property
    def fields(self) -> dict[str, Any]:
        regions = {name: region.base_url for name, region in sorted(self.provider.regions.items())}
        return {name: getattr(self.provider, name) for name in _SHOWN} | {
            "regions": list(regions),
            "region_urls": regions,
            "key_names": self.provider.api_key_env,
            "key": self.key,
            "ready": self.ready,
            "why_not": self.why_not,
        }


def entry_of(own: Provider, environment: Mapping[str, str]) -> ProviderEntry:
    key = own.key_variable(environment)
    why_not = "" if key or not own.api_key_env else f"{' or '.join(own.api_key_env)} is not set"
    try:
        fill_base_url(own, environment)
        check_spoken(own)
    except CallerFault as fault:
        why_not = fault.message
    return ProviderEntry(own, key, why_not)


def check_spoken(own: Provider) -> None:
    """Raise `CallerFault` if this version does not know the provider's API format or one of its
    quirks."""
    if own.api_format not in API_FORMATS:
        raise CallerFault(
            f"unknown API format {own.api_format!r}, expected one of {', '.join(API_FORMATS)}",
            kind="bad_catalogue",
        )
    try:
        msgspec.convert(own.quirks, Quirks)
    except msgspec.ValidationError as error:
        raise CallerFault(f"quirks: {error}", kind="bad_catalogue") from None


PADDING = 12
"""Width of a table with the columns that are always shown, beside their content."""


def show(entries: Sequence[ProviderEntry]) -> None:
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    widths = {  # users copy these words, so they are not wrapped
        "provider": max(len(entry.provider.name) for entry in entries),
        "key": max(
            len(name) for entry in entries for name in ("not needed", *entry.provider.api_key_env)
        ),
        "format": max(len("anthropic"), *(len(entry.provider.api_format) for entry in entries)),
    }
    if console.width < sum(widths.values()) + PADDING:
        del widths["format"]
    table.add_column("", width=1)
    for heading, width in widths.items():
        table.add_column(heading, no_wrap=True, min_width=width)
    more = _columns(console.width)
    for heading in more:
        table.add_column(heading, overflow="fold", no_wrap=heading == "example model")
    for entry in entries:
        here = Text("✓", "green") if entry.key and entry.ready else ""
        own = entry.provider
        api_format = [own.api_format] if "format" in widths else []
        others = (tell(own) for tell in more.values())
        table.add_row(here, own.name, _key(entry), *api_format, *others)
    console.print(table)
    for line in _notes(entries, console.width):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _columns(width: int) -> dict[str, Callable[[Provider], str]]:
    columns: dict[str, Callable[[Provider], str]] = {}
    if width >= WIDE:
        columns |= {
            "token counts": lambda each: _COUNTS.get(
                counts := each.quirks.get("usage", ""), counts
            ),
            "closed early": lambda each: {True: "stops", False: "billed on", None: ""}[
                each.closing_stops_billing
            ],
            "prefill": lambda each: _SHORT.get(each.prefill, str(each.prefill)),
            "200": lambda each: "error" if each.error_in_200 else "",
        }
    if width >= WIDEST:
        columns |= {
            "regions": lambda each: ", ".join(sorted(each.regions)),
            "example model": lambda each: each.default_model,
        }
    return columns


def show_one(entry: ProviderEntry) -> None:
    facts = [(name, fact) for name, fact in _facts(entry) if fact]
    width = max(len(name) for name, _ in facts)
    console = Console()
    for name, fact in facts:
        console.print(f"{name:{width}}  {fact}", markup=False, highlight=False, soft_wrap=True)


def _facts(entry: ProviderEntry) -> list[tuple[str, str]]:
    """Return names and values; a value is empty where there is nothing to tell."""
    own = entry.provider
    return [
        ("name", f"{own.name}, {own.title}"),
        ("address", own.base_url),
        *(
            (f"address of {own.name}-{name}", region.base_url)
            for name, region in sorted(own.regions.items())
        ),
        ("API format", own.api_format),
        ("key", " or ".join(own.api_key_env) or "not needed"),
        ("sent as", own.auth if own.api_key_env else ""),
        ("can be called", "yes" if entry.ready else f"no: {entry.why_not}"),
        ("example model", own.default_model),
        *(_quirk(name, value) for name, value in own.quirks.items()),
        ("billed by the hour", "yes" if own.billed_by_hour else ""),
        ("closing stops billing", _SAYS[own.closing_stops_billing]),
        ("continues a beginning", _SAYS[own.prefill]),
        *((f"speed tier {name}", _tier(name, tier)) for name, tier in sorted(own.tiers.items())),
        ("errors in a 200", "possible" if own.error_in_200 else ""),
        *((f"distance, {each.date}", f"{each.summary} ({each.source})") for each in own.distances),
        (
            "hardware",
            f"{own.hardware.kind} ({own.hardware.source})" if own.hardware else "",
        ),
        *(("note", note) for note in own.notes),
        ("source", own.source + (f", checked {own.checked}" if own.checked else "")),
    ]


def _quirk(name: str, value: Any) -> tuple[str, str]:
    if name == "thinking":
        return "reasoning effort", "; ".join(map(_way, value)) or "unknown"
    called, meanings = _QUIRKS[name]
    if isinstance(value, list):
        return called, ", ".join(value) or "none"
    return called, meanings.get(value, str(value))


def _tier(name: str, tier: SpeedTier) -> str:
    prices = ", ".join(
        f"{price.factor:g} times for {' '.join(price.models)}" for price in tier.prices
    )
    price = f"; price {prices}" if prices else "; no price"
    return (
        f"MODEL@{name}, sent as {tier.field}: {tier.value}{price} ({tier.source}, checked "
        f"{tier.checked})"
    )


def _way(way: Mapping[str, Any]) -> str:
    efforts = way.get("efforts")
    text = (
        f"{way.get('field', 'reasoning_effort')}"
        f"{f', {efforts[0]} to {efforts[-1]}' if efforts else ''}"
    )
    return f"{' '.join(way['models'])}: {text}" if "models" in way else text


def _notes(entries: Sequence[ProviderEntry], width: int) -> Iterator[str]:
    ready = [entry.provider.name for entry in entries if entry.key and entry.ready]
    yield f"Keys are set for: {', '.join(ready) or 'no provider'}."
    for entry in entries:
        if entry.key and not entry.ready:
            yield f"{entry.provider.name}: {entry.key} is set, but {entry.why_not}."
    if width >= WIDE:
        yield (
            "Closed early: whether closing a response stops its bill. Prefill: whether a model "
            "continues the beginning of a response, and how it is marked. 200: errors may come "
            "with this status. Empty: unknown."
        )
    regions = [
        f"{own.name}-{'|'.join(sorted(own.regions))}"
        for own in (each.provider for each in entries)
        if own.regions
    ]
    yield f"A target is PROVIDER/MODEL. Providers with regions: {', '.join(regions)}."
    yield "Details: splitsecond providers PROVIDER. Models and prices: splitsecond models PROVIDER"


def _key(entry: ProviderEntry) -> Text:
    if not entry.provider.api_key_env and entry.ready:
        return Text("not needed", "dim")
    if entry.key:
        return Text(entry.key, "green" if entry.ready else "yellow")
    return Text("\n".join(entry.provider.api_key_env), "dim")
