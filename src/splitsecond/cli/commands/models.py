from typing import Annotated

import typer

from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.model_list import entries_of, search, show
from splitsecond.cli.options import Json
from splitsecond.core.catalog.provider import names, provider


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
        found = search(words)
    else:
        found = [
            entry for name in names() for entry in entries_of(provider(name), everything=False)
        ]
    write_json(found, json)
    if json != "-":
        show(found, " ".join(words or ()))
