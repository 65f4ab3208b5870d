"""The list of models: what `splitsecond models` shows of each, for a person and as JSON."""

from collections.abc import Sequence

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from splitsecond.catalog.model import Speed
from splitsecond.catalog.price import Price
from splitsecond.catalog.prices import of_provider
from splitsecond.catalog.provider import Provider


class ModelEntry(Struct, frozen=True, kw_only=True):
    """One model as `--json` has it. `target` is how every command calls it. `price`: None where nobody states one.
    `retired`: the day on which its provider takes it down, gone by or to come.
    """

    target: str
    context_tokens: int | None
    price: Price | None
    published: tuple[Speed, ...]
    retired: str


def entries_of(of: Provider, *, everything: bool) -> list[ModelEntry]:
    """A provider's models: `everything` that is known, or only those with a published speed."""
    known = of_provider(of) if everything or any(model.speeds for model in of.models.values()) else {}
    return [
        ModelEntry(
            target=f"{of.name}/{name}",
            context_tokens=listed.context_tokens,
            price=listed.price,
            published=of.model(name).speeds,
            retired=of.model(name).retired,
        )
        for name, listed in known.items()
        if everything or of.model(name).speeds
    ]


def show(found: Sequence[ModelEntry], provider: str) -> None:
    """Prints the list for a person."""
    console = Console()
    if not found:
        console.print(f"The catalogue knows no model of {provider}; any can be called.", highlight=False)
        return
    console.print(_table(found))
    sources = list(dict.fromkeys(speed.source for entry in found for speed in entry.published))
    for entry in found:
        if entry.published:
            console.print(f"Published of {entry.target}:", markup=False, highlight=False, soft_wrap=True)
        for speed in entry.published:
            words = f"  {speed.words}, {speed.date} [{sources.index(speed.source) + 1}]"
            console.print(words, markup=False, highlight=False, soft_wrap=True)
    days = dict.fromkeys(f"{entry.price.source}, {entry.price.as_of}" for entry in found if entry.price)
    said = [f"[{number}] {source}" for number, source in enumerate(sources, 1)]
    said += [f"Prices, US dollars for a million tokens: {'; '.join(days)}."] if days else []
    for line in said:
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _table(found: Sequence[ModelEntry]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("target", overflow="fold", min_width=20)
    for heading in ("in $/M", "cached", "out $/M", "context"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in found:
        name = escape(entry.target) + (f"\n[dim]until {entry.retired}[/]" if entry.retired else "")
        table.add_row(name, *_rates(entry.price), _tokens(entry.context_tokens))
    return table


def _rates(price: Price | None) -> tuple[str, str, str]:
    """Input, cached input and output; of a machine by the hour, the hour."""
    if price is None:
        return "–", "", "–"
    if not price.by_token:
        return "", "", f"{price.per_hour_usd:g}/h"
    more = "+" if price.tiers else ""
    cached = "" if price.cached_usd is None else f"{price.cached_usd:g}"
    return f"{price.input_usd:g}{more}", cached, f"{price.output_usd:g}{more}"


def _tokens(count: int | None) -> str:
    """A context window as people say it: "128K", "1M"."""
    if count is None:
        return "–"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.2g}M"
    return f"{count / 1000:.0f}K"
