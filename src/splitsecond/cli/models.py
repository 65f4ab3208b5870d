"""`splitsecond models`: what models cost, how much they read, and how fast others found them."""

from typing import Annotated

import typer


def models(
    provider: Annotated[
        str, typer.Argument(metavar="[PROVIDER]", help="Whose models; without it, those with a published speed.")
    ] = "",
    json: Annotated[str, typer.Option(metavar="FILE", help="The list as JSON; - for standard output.")] = "",
) -> None:
    """List models: price and its day, context window, and speeds that others have published, with their source.

    \b
    splitsecond models groq
    splitsecond models --json models.json

    A model that is not listed can be called just as well. A published speed is somebody else's measurement.
    """
    from splitsecond.catalog.provider import names
    from splitsecond.catalog.provider import provider as find
    from splitsecond.cli.model_list import entries_of, show
    from splitsecond.cli.results import check_json, write_json

    check_json(json)
    asked = [find(provider)] if provider else [find(name) for name in names()]
    found = [entry for each in asked for entry in entries_of(each, everything=bool(provider))]
    write_json(found, json)
    if json != "-":
        show(found, provider)
