"""The list of models: what `splitsecond models` shows of each, for a person and as JSON."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from splitsecond import clock
from splitsecond.catalog.price import Price
from splitsecond.catalog.prices import of_provider
from splitsecond.catalog.provider import Provider
from splitsecond.catalog.published import Speed

WIDE = 110
"""Columns of a screen that has room for the day of each price."""


class ModelEntry(Struct, frozen=True, kw_only=True):
    """One model as `--json` has it. `target` is how every command calls it. `price`: None where nobody states one;
    `blended_usd` is that of a million tokens, three of input for each of output.
    `retired`: the day on which its provider takes it down, gone by or to come; `replaced_by`: what it names instead.
    """

    target: str
    context_tokens: int | None
    price: Price | None
    blended_usd: float | None
    published: tuple[Speed, ...]
    retired: str
    replaced_by: str


def entries_of(of: Provider, *, everything: bool) -> list[ModelEntry]:
    """A provider's models: `everything` that is known, or only those with a published speed."""
    known = of_provider(of) if everything or any(model.speeds for model in of.models.values()) else {}
    return [
        ModelEntry(
            target=f"{of.name}/{name}",
            context_tokens=listed.context_tokens,
            price=listed.price,
            blended_usd=listed.price.blended_usd if listed.price else None,
            published=of.model(name).speeds,
            retired=of.model(name).retired,
            replaced_by=of.model(name).replaced_by,
        )
        for name, listed in known.items()
        if everything or of.model(name).speeds
    ]


def show(found: Sequence[ModelEntry], asked: str) -> None:
    """Prints the list for a person. `asked`: whose models they are."""
    console = Console()
    if not found:
        console.print(f"The catalogue knows no model of {asked}; any can be called.", markup=False, highlight=False)
        return
    console.print(_table(found, wide=console.width >= WIDE))
    sources = list(dict.fromkeys(speed.source for entry in found for speed in entry.published))
    for line in _published(found, sources):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in _notes(found, sources):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _published(found: Sequence[ModelEntry], sources: list[str]) -> Iterator[str]:
    for entry in found:
        if entry.published:
            yield f"Published of {entry.target}:"
        for speed in entry.published:
            also = [
                speed.setup,
                f"context {_tokens(speed.context_tokens)}" if speed.context_tokens else "",
                speed.cost.words if speed.cost else "",
            ]
            said = "; ".join(filter(None, (speed.words, *also)))
            yield f"  {said}, {speed.date} [{sources.index(speed.source) + 1}]"


def _notes(found: Sequence[ModelEntry], sources: list[str]) -> Iterator[str]:
    for number, source in enumerate(sources, 1):
        yield f"[{number}] {source}"
    if sources:
        yield "What was published is somebody else's measurement; what it says of prices and contexts is of its day."
    days = dict.fromkeys(f"{entry.price.source}, {entry.price.as_of}" for entry in found if entry.price)
    if days:
        yield f"Prices, US dollars for a million tokens: {'; '.join(days)}."
        yield "mix: three tokens of input for each of output. +: more for a long prompt."


def _table(found: Sequence[ModelEntry], *, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("target", overflow="fold", min_width=20)
    for heading in ("context", "in $/M", "cached", "out $/M", "mix", *(["price of"] if wide else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    today = clock.wall_time().date().isoformat()
    for entry in found:
        end = _end(entry, today)
        name = escape(entry.target) + (f"\n[dim]{escape(end)}[/]" if end else "")
        day = [entry.price.as_of if entry.price else ""] if wide else []
        table.add_row(name, _tokens(entry.context_tokens), *_rates(entry.price), *day)
    return table


def _end(entry: ModelEntry, today: str) -> str:
    """When it is taken down, and what comes in its place: "until 2026-12-01, then gemini-3.5-flash-lite"."""
    if not entry.retired:
        return ""
    if entry.retired <= today:
        return f"gone since {entry.retired}" + (f"; instead: {entry.replaced_by}" if entry.replaced_by else "")
    return f"until {entry.retired}" + (f", then {entry.replaced_by}" if entry.replaced_by else "")


def _rates(price: Price | None) -> tuple[str, str, str, str]:
    """Input, cached input, output and a blend; of a machine by the hour, the hour."""
    if price is None:
        return "–", "", "–", ""
    if not price.by_token:
        return "", "", f"{price.per_hour_usd:g}/h", ""
    more = "+" if price.tiers else ""
    cached = "" if price.cached_usd is None else f"{price.cached_usd:g}"
    return f"{price.input_usd:g}{more}", cached, f"{price.output_usd:g}{more}", f"{price.blended_usd:.3g}{more}"


def _tokens(count: int | None) -> str:
    """A context window as people say it: "128K", "1M"."""
    if count is None:
        return "–"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.2g}M"
    return f"{count / 1000:.0f}K"
