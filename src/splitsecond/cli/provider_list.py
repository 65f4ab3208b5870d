"""The list of providers: what `splitsecond providers` shows of each, for a person and as JSON."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.catalog.provider import Provider, fill_base_url
from splitsecond.errors import CallerFault


class ProviderEntry(Struct, frozen=True, kw_only=True):
    """One provider as `--json` has it. `key`: the variable that holds its key, "" where none of `key_names` is set.

    `ready`: it can be called as things are: its key is set or it takes none, and so are the parts of its address.
    """

    name: str
    title: str
    dialect: str
    base_url: str
    regions: list[str]
    key_names: list[str]
    key: str
    ready: bool
    why_not: str
    default_model: str
    closing_stops_billing: bool | None
    source: str
    checked: str


def entry_of(found: Provider, environment: Mapping[str, str]) -> ProviderEntry:
    """A provider as it can be called from this environment."""
    key = found.key_variable(environment)
    why_not = "" if key or not found.api_key_env else f"{' or '.join(found.api_key_env)} is not set"
    try:
        fill_base_url(found, environment)
    except CallerFault as fault:
        why_not = fault.message
    return ProviderEntry(
        name=found.name,
        title=found.title,
        dialect=found.dialect,
        base_url=found.base_url,
        regions=sorted(found.regions),
        key_names=list(found.api_key_env),
        key=key,
        ready=not why_not,
        why_not=why_not,
        default_model=found.default_model,
        closing_stops_billing=found.closing_stops_billing,
        source=found.source,
        checked=found.checked,
    )


def show(found: Sequence[ProviderEntry]) -> None:
    """Prints the list for a person."""
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("provider", no_wrap=True)
    table.add_column("")
    for heading in ("key", "dialect", "to begin with", "regions"):
        table.add_column(heading, overflow="fold")
    for entry in found:
        here = Text("✓", "green") if entry.key and entry.ready else ""
        regions = ", ".join(f"-{region}" for region in entry.regions)
        table.add_row(entry.name, here, _key(entry), entry.dialect, entry.default_model, regions)
    console.print(table)
    ready = [entry.name for entry in found if entry.key and entry.ready]
    console.print(f"Keys are here for: {', '.join(ready) or 'none of them'}.", highlight=False, soft_wrap=True)
    console.print(
        "A target is PROVIDER/MODEL, in a region PROVIDER-REGION/MODEL. For models and prices: "
        "splitsecond models PROVIDER",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )


def _key(entry: ProviderEntry) -> Text:
    """The variable that holds the key, those that could, or why it does not help."""
    if not entry.key_names and entry.ready:
        return Text("takes none", "dim")
    if entry.key and not entry.ready:
        return Text(f"{entry.key}, but {entry.why_not}", "yellow")
    return Text(entry.key, "green") if entry.key else Text(" or ".join(entry.key_names), "dim")
