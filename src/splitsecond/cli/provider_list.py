from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.core.catalog.model import Prefill, PublishedDistance
from splitsecond.core.catalog.provider import Provider, fill_base_url
from splitsecond.core.catalog.speed_tier import SpeedTier
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.wire.api_format import USAGE_WORDS, Quirks

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


class ProviderEntry(Struct, frozen=True, kw_only=True):
    """One provider, as in `--json`. `key`: the variable that holds its key, "" if none of `key_names` is set.

    `ready`: it can be called now, because its key is set or not needed, and its address is complete.
    """

    name: str
    title: str
    api_format: str
    base_url: str
    regions: list[str]
    region_urls: dict[str, str]
    auth: str
    key_names: list[str]
    key: str
    ready: bool
    why_not: str
    default_model: str
    quirks: dict[str, Any]
    billed_by_hour: bool
    closing_stops_billing: bool | None
    prefill: Prefill | None
    tiers: dict[str, SpeedTier]
    error_in_200: bool
    distances: list[PublishedDistance]
    notes: list[str]
    source: str
    checked: str


def entry_of(found: Provider, environment: Mapping[str, str]) -> ProviderEntry:
    key = found.key_variable(environment)
    why_not = "" if key or not found.api_key_env else f"{' or '.join(found.api_key_env)} is not set"
    try:
        fill_base_url(found, environment)
        check_spoken(found)
    except CallerFault as fault:
        why_not = fault.message
    same = {name: getattr(found, name) for name in ProviderEntry.__struct_fields__ if hasattr(found, name)}
    entry = {
        "regions": sorted(found.regions),
        "region_urls": {name: region.base_url for name, region in sorted(found.regions.items())},
        "key_names": list(found.api_key_env),
        "key": key,
        "ready": not why_not,
        "why_not": why_not,
        "distances": list(found.distances),
        "notes": list(found.notes),
    }
    return ProviderEntry(**(same | entry))


def check_spoken(found: Provider) -> None:
    """Raise `CallerFault` if this version does not know the provider's API format or one of its quirks."""
    if found.api_format not in API_FORMATS:
        raise CallerFault(
            f"unknown API format {found.api_format!r}, expected one of {', '.join(API_FORMATS)}", kind="bad_catalogue"
        )
    try:
        msgspec.convert(found.quirks, Quirks)
    except msgspec.ValidationError as error:
        raise CallerFault(f"quirks: {error}", kind="bad_catalogue") from None


def show(found: Sequence[ProviderEntry]) -> None:
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    widths = {  # users copy these words, so they are not wrapped
        "provider": max(len(entry.name) for entry in found),
        "key": max(len(name) for entry in found for name in ("not needed", *entry.key_names)),
        "format": max(len("anthropic"), *(len(entry.api_format) for entry in found)),
    }
    table.add_column("", width=1)
    for heading, width in widths.items():
        table.add_column(heading, no_wrap=True, min_width=width)
    more = _columns(console.width)
    for heading in more:
        table.add_column(heading, overflow="fold", no_wrap=heading == "example model")
    for entry in found:
        here = Text("✓", "green") if entry.key and entry.ready else ""
        table.add_row(here, entry.name, _key(entry), entry.api_format, *(tell(entry) for tell in more.values()))
    console.print(table)
    for line in _notes(found, console.width):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _columns(width: int) -> dict[str, Callable[[ProviderEntry], str]]:
    columns: dict[str, Callable[[ProviderEntry], str]] = {}
    if width >= WIDE:
        columns |= {
            "token counts": lambda entry: _COUNTS.get(counts := entry.quirks.get("usage", ""), counts),
            "closed early": lambda entry: {True: "stops", False: "billed on", None: ""}[entry.closing_stops_billing],
            "prefill": lambda entry: _SHORT.get(entry.prefill, str(entry.prefill)),
            "200": lambda entry: "error" if entry.error_in_200 else "",
        }
    if width >= WIDEST:
        columns |= {
            "regions": lambda entry: ", ".join(entry.regions),
            "example model": lambda entry: entry.default_model,
        }
    return columns


def show_one(entry: ProviderEntry) -> None:
    facts = [
        ("name", f"{entry.name}, {entry.title}"),
        ("address", entry.base_url),
        *((f"address of {entry.name}-{region}", url) for region, url in entry.region_urls.items()),
        ("API format", entry.api_format),
        ("key", " or ".join(entry.key_names) or "not needed"),
        ("sent as", entry.auth if entry.key_names else ""),
        ("can be called", "yes" if entry.ready else f"no: {entry.why_not}"),
        ("example model", entry.default_model),
        *(_quirk(name, value) for name, value in entry.quirks.items()),
        ("billed by the hour", "yes" if entry.billed_by_hour else ""),
        ("closing stops billing", _SAYS[entry.closing_stops_billing]),
        ("continues a beginning", _SAYS[entry.prefill]),
        *((f"speed tier {name}", _tier(name, tier)) for name, tier in sorted(entry.tiers.items())),
        ("errors in a 200", "possible" if entry.error_in_200 else ""),
        *((f"distance, {each.date}", f"{each.summary} ({each.source})") for each in entry.distances),
        *(("note", note) for note in entry.notes),
        ("source", entry.source + (f", checked {entry.checked}" if entry.checked else "")),
    ]
    width = max(len(name) for name, _ in facts)
    console = Console()
    for name, fact in facts:
        if fact:
            console.print(f"{name:{width}}  {fact}", markup=False, highlight=False, soft_wrap=True)


def _quirk(name: str, value: Any) -> tuple[str, str]:
    if name == "thinking":
        return "reasoning effort", "; ".join(map(_way, value)) or "unknown"
    called, meanings = _QUIRKS[name]
    if isinstance(value, list):
        return called, ", ".join(value) or "none"
    return called, meanings.get(value, str(value))


def _tier(name: str, tier: SpeedTier) -> str:
    prices = ", ".join(f"{price.factor:g} times for {' '.join(price.models)}" for price in tier.prices)
    price = f"; price {prices}" if prices else "; no price"
    return f"MODEL@{name}, sent as {tier.field}: {tier.value}{price} ({tier.source}, checked {tier.checked})"


def _way(way: Mapping[str, Any]) -> str:
    efforts = way.get("efforts")
    text = f"{way.get('field', 'reasoning_effort')}{f', {efforts[0]} to {efforts[-1]}' if efforts else ''}"
    return f"{' '.join(way['models'])}: {text}" if "models" in way else text


def _notes(found: Sequence[ProviderEntry], width: int) -> Iterator[str]:
    ready = [entry.name for entry in found if entry.key and entry.ready]
    yield f"Keys are set for: {', '.join(ready) or 'no provider'}."
    for entry in found:
        if entry.key and not entry.ready:
            yield f"{entry.name}: {entry.key} is set, but {entry.why_not}."
    if width >= WIDE:
        yield (
            "Closed early: whether closing a response stops its bill. Prefill: whether a model continues the beginning "
            "of a response, and how it is marked. 200: errors may come with this status. Empty: unknown."
        )
    regions = [f"{entry.name}-{'|'.join(entry.regions)}" for entry in found if entry.regions]
    yield f"A target is PROVIDER/MODEL. Providers with regions: {', '.join(regions)}."
    yield "Details: splitsecond providers PROVIDER. Models and prices: splitsecond models PROVIDER"


def _key(entry: ProviderEntry) -> Text:
    if not entry.key_names and entry.ready:
        return Text("not needed", "dim")
    if entry.key:
        return Text(entry.key, "green" if entry.ready else "yellow")
    return Text("\n".join(entry.key_names), "dim")
