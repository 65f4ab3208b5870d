"""The list of providers: what `splitsecond providers` shows of each, for a person and as JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.catalog.model import Prefill
from splitsecond.catalog.provider import Provider, fill_base_url
from splitsecond.catalog.published import Distance
from splitsecond.errors import CallerFault
from splitsecond.upstream.target import DIALECTS
from splitsecond.wire.dialect import USAGE_WORDS, Quirks

_SAYS: Mapping[bool | str | None, str] = {
    True: "yes",
    False: "no",
    None: "not known",
    "plain": "yes",
    "prefix": 'yes, marked with "prefix": true',
    "partial": 'yes, marked with "partial": true',
}
_QUIRKS: Mapping[str, tuple[str, Mapping[Any, str]]] = {
    "usage": ("token counts", USAGE_WORDS),
    "reasoning_field": (
        "thoughts",
        {
            "reasoning": "in the field reasoning",
            "reasoning_content": "in the field reasoning_content",
            "content": "in the answer's own text",
        },
    ),
    "rate_limits": (
        "rate limits",
        {
            "x-ratelimit": "in headers x-ratelimit-...",
            "anthropic-ratelimit": "in headers anthropic-ratelimit-...",
            "none": "no headers tell of them",
        },
    ),
    "max_tokens_field": ("limit on output", {}),
    "stream_options": ("stream_options", {False: "refused"}),
    "done_marker": ("end of a stream", {False: "without [DONE]"}),
    "takes_thoughts": ("thoughts of before", {True: "taken back, as reasoning_content"}),
    "takes": ("fields that few take", {}),
    "on_vertex": ("messages", {True: "as Vertex has them"}),
}
"""What each quirk is called for a person, and what its values mean; a value that is not here speaks for itself."""
_SHORT: Mapping[bool | str | None, str] = {True: "yes", False: "no", None: "", "plain": "yes"}
_COUNTS = {"own_chunk": "own chunk", "last_chunk": "last chunk", "every_chunk": "every chunk"}
WIDE = 115
"""Columns of a screen that shows how each provider differs too."""
WIDEST = 190
"""Columns of a screen that shows regions and a model of each provider too."""


class ProviderEntry(Struct, frozen=True, kw_only=True):
    """One provider as `--json` has it. `key`: the variable that holds its key, "" where none of `key_names` is set.

    `ready`: it can be called as things are: its key is set or it takes none, and so are the parts of its address.
    """

    name: str
    title: str
    dialect: str
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
    error_in_200: bool
    distances: list[Distance]
    notes: list[str]
    source: str
    checked: str


def entry_of(found: Provider, environment: Mapping[str, str]) -> ProviderEntry:
    """A provider as it can be called from this environment."""
    key = found.key_variable(environment)
    why_not = "" if key or not found.api_key_env else f"{' or '.join(found.api_key_env)} is not set"
    try:
        fill_base_url(found, environment)
        check_spoken(found)
    except CallerFault as fault:
        why_not = fault.message
    return ProviderEntry(
        name=found.name,
        title=found.title,
        dialect=found.dialect,
        base_url=found.base_url,
        regions=sorted(found.regions),
        region_urls={name: region.base_url for name, region in sorted(found.regions.items())},
        auth=found.auth,
        key_names=list(found.api_key_env),
        key=key,
        ready=not why_not,
        why_not=why_not,
        default_model=found.default_model,
        quirks=found.quirks,
        billed_by_hour=found.billed_by_hour,
        closing_stops_billing=found.closing_stops_billing,
        prefill=found.prefill,
        error_in_200=found.error_in_200,
        distances=list(found.distances),
        notes=list(found.notes),
        source=found.source,
        checked=found.checked,
    )


def check_spoken(found: Provider) -> None:
    """Raises `CallerFault` where this version does not speak the provider's dialect, or knows one of its quirks not."""
    if found.dialect not in DIALECTS:
        raise CallerFault(f"its dialect {found.dialect!r} is none of {', '.join(DIALECTS)}", kind="bad_catalogue")
    try:
        msgspec.convert(found.quirks, Quirks)
    except msgspec.ValidationError as error:
        raise CallerFault(f"quirks: {error}", kind="bad_catalogue") from None


def show(found: Sequence[ProviderEntry]) -> None:
    """Prints the list for a person."""
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    widths = {  # these words are to be copied, so they stay whole
        "provider": max(len(entry.name) for entry in found),
        "key": max(len(name) for entry in found for name in ("takes none", *entry.key_names)),
        "dialect": max(len(entry.dialect) for entry in found),
    }
    table.add_column("", width=1)
    for heading, width in widths.items():
        table.add_column(heading, no_wrap=True, min_width=width)
    more = _columns(console.width)
    for heading in more:
        table.add_column(heading, overflow="fold", no_wrap=heading == "a model")
    for entry in found:
        here = Text("✓", "green") if entry.key and entry.ready else ""
        table.add_row(here, entry.name, _key(entry), entry.dialect, *(tell(entry) for tell in more.values()))
    console.print(table)
    for line in _notes(found, console.width):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _columns(width: int) -> dict[str, Callable[[ProviderEntry], str]]:
    """What there is room for beside name, key and dialect."""
    columns: dict[str, Callable[[ProviderEntry], str]] = {}
    if width >= WIDE:
        columns |= {
            "token counts": lambda entry: _COUNTS.get(counts := entry.quirks.get("usage", ""), counts),
            "closed early": lambda entry: {True: "stops", False: "billed on", None: ""}[entry.closing_stops_billing],
            "prefill": lambda entry: _SHORT.get(entry.prefill, str(entry.prefill)),
            "200": lambda entry: "error" if entry.error_in_200 else "",
        }
    if width >= WIDEST:
        columns |= {"regions": lambda entry: ", ".join(entry.regions), "a model": lambda entry: entry.default_model}
    return columns


def show_one(entry: ProviderEntry) -> None:
    """Prints all that the catalogue says of a provider."""
    facts = [
        ("name", f"{entry.name}, {entry.title}"),
        ("address", entry.base_url),
        *((f"address of {entry.name}-{region}", url) for region, url in entry.region_urls.items()),
        ("dialect", entry.dialect),
        ("key", " or ".join(entry.key_names) or "takes none"),
        ("sent as", entry.auth if entry.key_names else ""),
        ("can be called", "yes" if entry.ready else f"no: {entry.why_not}"),
        ("a model", entry.default_model),
        *(_quirk(name, value) for name, value in entry.quirks.items()),
        ("billed by the hour", "yes" if entry.billed_by_hour else ""),
        ("closing stops billing", _SAYS[entry.closing_stops_billing]),
        ("goes on from a beginning", _SAYS[entry.prefill]),
        ("errors in a 200", "possible" if entry.error_in_200 else ""),
        *((f"way to it, {each.date}", f"{each.words} ({each.source})") for each in entry.distances),
        *(("note", note) for note in entry.notes),
        ("source", entry.source + (f", checked {entry.checked}" if entry.checked else "")),
    ]
    width = max(len(name) for name, _ in facts)
    console = Console()
    for name, fact in facts:
        if fact:
            console.print(f"{name:{width}}  {fact}", markup=False, highlight=False, soft_wrap=True)


def _quirk(name: str, value: Any) -> tuple[str, str]:
    """How it departs from its dialect: what is different, and how it is."""
    if name == "thinking":
        return "how far to think", "; ".join(map(_way, value)) or "nothing is known of how it is told"
    if isinstance(value, list):
        return _QUIRKS[name][0], ", ".join(value) or "none of those that few take"
    called, meanings = _QUIRKS.get(name, (name, {}))
    return called, meanings.get(value, str(value))


def _way(way: Mapping[str, Any]) -> str:
    """How some models are told how far to think: "gpt-5*: reasoning_effort, low to high"."""
    efforts = way.get("efforts")
    said = f"{way.get('field', 'reasoning_effort')}{f', {efforts[0]} to {efforts[-1]}' if efforts else ''}"
    return f"{' '.join(way['models'])}: {said}" if "models" in way else said


def _notes(found: Sequence[ProviderEntry], width: int) -> Iterator[str]:
    ready = [entry.name for entry in found if entry.key and entry.ready]
    yield f"Keys are here for: {', '.join(ready) or 'none of them'}."
    for entry in found:
        if entry.key and not entry.ready:
            yield f"{entry.name}: {entry.key} is set, but {entry.why_not}."
    if width >= WIDE:
        yield (
            "Closed early: whether that stops the bill. Prefill: whether it goes on from the beginning of an answer, "
            "and how that is marked. 200: errors may come with this status. Empty: not known."
        )
    regions = [f"{entry.name}-{'|'.join(entry.regions)}" for entry in found if entry.regions]
    yield f"A target is PROVIDER/MODEL. Those with regions of their own: {', '.join(regions)}."
    yield "All of one: splitsecond providers PROVIDER. Its models and prices: splitsecond models PROVIDER"


def _key(entry: ProviderEntry) -> Text:
    """The variable that holds the key, or those that could."""
    if not entry.key_names and entry.ready:
        return Text("takes none", "dim")
    if entry.key:
        return Text(entry.key, "green" if entry.ready else "yellow")
    return Text("\n".join(entry.key_names), "dim")
