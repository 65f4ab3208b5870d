import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer
from msgspec import Struct
from rich import box
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.report.tables import SHORTEST_NAME, add_columns, broken
from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.options import Json
from splitsecond.core import clock
from splitsecond.core.catalog.model import PublishedSpeed
from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.prices import provider_models
from splitsecond.core.catalog.provider import Provider, names, provider
from splitsecond.core.errors import CallerFault


def models(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROVIDER | PROVIDER/TEXT | TEXT]...",
            help="Models of a provider, or models with all of these words in their names. "
            "Default: models with a published speed.",
        ),
    ] = None,
    json: Json = "",
) -> None:
    """List models: price, context window, published speeds.

    \b
    splitsecond models groq
    splitsecond models groq/llama
    splitsecond models llama 70b
    splitsecond models --json models.json

    A model that is not listed can be called too. Prices have a date; a published speed is
    somebody else's measurement and names its source.
    """
    check_json(json)
    if words:
        entries = search(words)
    else:
        entries = [
            entry for name in names() for entry in entries_of(provider(name), everything=False)
        ]
    write_json(entries, json)
    if json != "-":
        show(entries, " ".join(words or ()))


FEWER = ("price of", "mix", "cached", "context")
"""Columns that a narrow console leaves out, one after another."""
MIN_NAME = 32
"""Width in columns that a target's name needs before it is broken; a name breaks after slashes and
hyphens."""
LIKE = 0.7
_ANY = "Unlisted models can be called too, as PROVIDER/MODEL."
_MARKS = re.compile(r"[^a-z0-9]+")


class ModelEntry(Struct, frozen=True, kw_only=True):
    """One model, as in `--json`.

    `target` is its name in every command. `price` is None if it is unknown; `blended_usd` is the
    price of a million tokens, three of input for each of output. `retired`: the day on which its
    provider shuts it down, past or future; `replaced_by`: the provider's replacement. `tiers`: its
    speed tiers with a known price, as factors of `price`.
    """

    target: str
    context_tokens: int | None
    price: Price | None
    blended_usd: float | None
    published: tuple[PublishedSpeed, ...]
    retired: str
    replaced_by: str
    tiers: dict[str, float]


def entries_of(of: Provider, *, everything: bool) -> list[ModelEntry]:
    """Return a provider's models: `everything` that is known, or only those with a published
    speed."""
    models_of = (
        provider_models(of)
        if everything or any(model.speeds for model in of.models.values())
        else {}
    )
    return [
        ModelEntry(
            target=f"{of.name}/{name}",
            context_tokens=model.context_tokens,
            price=model.price,
            blended_usd=model.price.blended_usd if model.price else None,
            published=model.speeds,
            retired=model.retired,
            replaced_by=model.replaced_by,
            tiers={
                each: factor
                for each, tier in of.tiers.items()
                if (factor := tier.factor(name)) is not None
            },
        )
        for name, model in models_of.items()
        if everything or model.speeds
    ]


def show(entries: Sequence[ModelEntry], query: str) -> None:
    console = Console()
    if not entries:
        console.print(
            f"The catalogue lists no model of {query}, but every model can be called.",
            markup=False,
            highlight=False,
        )
        return
    console.print(_fitting(entries, console))
    sources = list(dict.fromkeys(speed.source for entry in entries for speed in entry.published))
    for line in _published(entries, sources):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in _notes(entries, sources):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _published(entries: Sequence[ModelEntry], sources: list[str]) -> Iterator[str]:
    for entry in entries:
        if entry.published:
            yield f"Published speed of {entry.target}:"
        for speed in entry.published:
            also = [
                speed.setup,
                f"context {_tokens(speed.context_tokens)}" if speed.context_tokens else "",
                speed.cost.summary if speed.cost else "",
            ]
            text = "; ".join(filter(None, (speed.summary, *also)))
            yield f"  {text}, {speed.date} [{sources.index(speed.source) + 1}]"


def _notes(entries: Sequence[ModelEntry], sources: list[str]) -> Iterator[str]:
    for number, source in enumerate(sources, 1):
        yield f"[{number}] {source}"
    if sources:
        yield (
            "Published speeds are measurements of others; their prices and context windows are "
            "those of their date."
        )
    days = dict.fromkeys(
        f"{entry.price.source}, {entry.price.as_of}" for entry in entries if entry.price
    )
    if days:
        yield f"Prices in US dollars per million tokens: {'; '.join(days)}."
        yield "mix: three input tokens for each output token. +: more for long prompts."
    if tiered := next((entry for entry in entries if entry.tiers), None):
        examples = ", ".join(f"{tiered.target}@{name}" for name in sorted(tiered.tiers))
        yield (
            f"Speed tiers are targets: {examples}. Their prices: splitsecond providers "
            "PROVIDER, or --json."
        )


def _fitting(entries: Sequence[ModelEntry], console: Console) -> Table:
    longest = max(len(entry.target) for entry in entries)
    for left_out in range(len(FEWER) + 1):
        others = console.measure(_table(entries, FEWER[:left_out], 0)).maximum
        if console.width - others >= min(longest, MIN_NAME):
            break
    return _table(entries, FEWER[:left_out], max(console.width - others, SHORTEST_NAME))


def _table(entries: Sequence[ModelEntry], left_out: Sequence[str], name_width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("target" if name_width else "", overflow="fold", max_width=name_width)
    today = clock.wall_time().date().isoformat()
    cells = [
        (_tokens(each.context_tokens), *_rates(each.price), each.price.as_of if each.price else "")
        for each in entries
    ]
    headings = ("context", "in $/M", "cached", "out $/M", "mix", "price of")
    columns = dict(zip(headings, zip(*cells, strict=True), strict=True))
    remaining = add_columns(table, columns, set(left_out))
    for entry, *row in zip(entries, *remaining, strict=True):
        name = Text(broken(entry.target, name_width) if name_width else "")
        if name_width and (end := _end(entry, today)):
            name.append(f"\n{end}", "dim")
        table.add_row(name, *row)
    return table


def _end(entry: ModelEntry, today: str) -> str:
    if not entry.retired:
        return ""
    if entry.retired <= today:
        return f"gone since {entry.retired}" + (
            f"; instead: {entry.replaced_by}" if entry.replaced_by else ""
        )
    return f"until {entry.retired}" + (f", then {entry.replaced_by}" if entry.replaced_by else "")


def _rates(price: Price | None) -> tuple[str, str, str, str]:
    if price is None:
        return "–", "", "–", ""
    if not price.by_token:
        return "", "", f"{price.per_hour_usd:g}/h", ""
    more = "+" if price.tiers else ""
    cached = "" if price.cached_usd is None else f"{price.cached_usd:g}"
    return (
        f"{price.input_usd:g}{more}",
        cached,
        f"{price.output_usd:g}{more}",
        f"{price.blended_usd:.3g}{more}",
    )


def _tokens(count: int | None) -> str:
    if count is None:
        return "–"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.2g}M"
    return f"{count / 1000:.0f}K"


def search(words: Sequence[str]) -> list[ModelEntry]:
    """Return the models with all of `words` in their names, whose dashes, dots and capitals do not
    count: providers write them differently.

    A provider's name alone returns all of its models, which can be an empty list. "PROVIDER/TEXT"
    searches its models, and those of all providers if it has no such model. Raises `CallerFault`
    with suggestions if nothing is found.
    """
    first, slash, text = words[0].partition("/")
    own, unknown = _entries_of_provider(first) if slash or len(words) == 1 else ([], "")
    alone = len(words) == 1 and not slash
    if alone and not unknown:
        return own
    if matching := [
        entry for entry in own if _has(entry.target.partition("/")[2], [text, *words[1:]])
    ]:
        return matching
    everything = _all_entries()
    if matching := [entry for entry in everything if _has(entry.target, words)]:
        return matching
    message = f"no known model has {' and '.join(map(repr, words))} in its name"
    if alone:
        message = f"{unknown}, and no known model has it in its name"
    raise CallerFault(message, kind="unknown_model", hint=_meant(words, own or everything))


def _all_entries() -> list[ModelEntry]:
    return [entry for name in names() for entry in entries_of(provider(name), everything=True)]


def _entries_of_provider(name: str) -> tuple[list[ModelEntry], str]:
    """Return the models of a provider, and the message if there is no such provider."""
    try:
        return entries_of(provider(name), everything=True), ""
    except CallerFault as fault:
        if fault.kind != "unknown_provider":
            raise
        return [], fault.message


def _has(name: str, words: Iterable[str]) -> bool:
    plain = _plain(name)
    return all(_plain(word) in plain for word in words)


def _plain(name: str) -> str:
    return _MARKS.sub("", name.lower())


def _meant(words: Sequence[str], entries: Sequence[ModelEntry]) -> str:
    query_parts = [part for word in words for part in word.lower().split("/") if part]
    names_of = [entry.target.lower().partition("/")[2] for entry in entries]
    parts = {part for name in names_of for part in (name, *re.split(r"[/:@-]", name))}
    parts |= {
        each
        for name in names()
        for each in (name, *(f"{name}-{region}" for region in provider(name).regions))
    }
    near = [
        similar
        for word in query_parts
        if not any(_has(entry.target, [word]) for entry in entries)
        for similar in difflib.get_close_matches(word, sorted(parts), n=3, cutoff=LIKE)
    ]
    return f"Did you mean {' or '.join(dict.fromkeys(near))}? {_ANY}" if near else _ANY
