"""The JSON schema of `splitsecond.yaml`, with which editors complete it and mark what is wrong while it is written."""

from typing import Any

import msgspec

from splitsecond.gateway.configuration.shape import File

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """Made from the shapes that the file is read into, so that the two cannot differ."""
    return {"$schema": DRAFT, "title": "splitsecond.yaml", **msgspec.json.schema(File)}


def schema_text() -> str:
    """The schema as it is printed."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode()
