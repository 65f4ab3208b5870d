"""`splitsecond providers`: who can be called, and whose key is here."""

from typing import Annotated

import typer


def providers(
    json: Annotated[str, typer.Option(metavar="FILE", help="The list as JSON; - for standard output.")] = "",
) -> None:
    """List the providers of the catalogue: dialect, the variable that holds the key, regions, a model to begin with.

    Keys are never shown, only the names of the variables that hold them.
    """
    import os

    from splitsecond.catalog.provider import names, provider
    from splitsecond.cli.provider_list import entry_of, show
    from splitsecond.cli.results import check_json, write_json

    check_json(json)
    found = [entry_of(provider(name), os.environ) for name in names()]
    write_json(found, json)
    if json != "-":
        show(found)
