"""`splitsecond providers`: who can be called, and whose key is here."""

from typing import Annotated

import typer


def providers(
    name: Annotated[str, typer.Argument(metavar="[PROVIDER]", help="All that is known of this one.")] = "",
    json: Annotated[str, typer.Option(metavar="FILE", help="The list as JSON; - for standard output.")] = "",
) -> None:
    """List the providers of the catalogue: dialect, the variable that holds the key, regions, a model to begin with.

    Keys are never shown, only the names of the variables that hold them.
    """
    import os

    from splitsecond.catalog.provider import names, provider
    from splitsecond.cli.provider_list import entry_of, show, show_one
    from splitsecond.cli.results import check_json, write_json

    check_json(json)
    found = [entry_of(provider(each), os.environ) for each in ([name] if name else names())]
    write_json(found, json)
    if json != "-" and name:
        show_one(found[0])
    elif json != "-":
        show(found)
