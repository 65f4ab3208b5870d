import os
from typing import Annotated

import typer

from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.options import Json
from splitsecond.cli.provider_list import entry_of, show, show_one
from splitsecond.core.catalog.provider import names, provider


def providers(
    name: Annotated[
        str, typer.Argument(metavar="[PROVIDER]", help="Show everything about this provider.")
    ] = "",
    json: Json = "",
) -> None:
    """List providers: API format, variable of the key, regions.

    \b
    splitsecond providers
    splitsecond providers groq

    Keys are never shown, only the names of the variables that hold them.
    """
    check_json(json)
    found = [entry_of(provider(each), os.environ) for each in ([name] if name else names())]
    write_json([each.fields for each in found], json)
    if json != "-" and name:
        show_one(found[0])
    elif json != "-":
        show(found)
