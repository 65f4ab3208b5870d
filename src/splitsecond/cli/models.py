"""`splitsecond models`: what models cost, how much they read, and how fast others found them."""

from typing import Annotated

import typer


def models(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROVIDER | PROVIDER/TEXT | TEXT]...",
            help="Those of a provider, or those with all of this in their names; "
            "without it, those with a published speed.",
        ),
    ] = None,
    json: Annotated[str, typer.Option(metavar="FILE", help="The list as JSON; - for standard output.")] = "",
) -> None:
    """List models: price and its day, context window, and speeds that others have published, with their source.

    \b
    splitsecond models groq
    splitsecond models groq/llama
    splitsecond models llama 70b
    splitsecond models --json models.json

    A model that is not listed can be called just as well. A published speed is somebody else's measurement.
    """
    from splitsecond.catalog.provider import names, provider
    from splitsecond.cli.model_list import entries_of, show
    from splitsecond.cli.model_search import search
    from splitsecond.cli.results import check_json, write_json

    check_json(json)
    if words:
        found = search(words)
    else:
        found = [entry for name in names() for entry in entries_of(provider(name), everything=False)]
    write_json(found, json)
    if json != "-":
        show(found, " ".join(words or ()))
