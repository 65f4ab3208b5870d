"""Which format a foreign file has, and what its columns are."""

from collections.abc import Mapping, Set

from msgspec import Struct

from splitsecond.core.validation import nearest
from splitsecond.log.store.foreign import langfuse, litellm, openrouter
from splitsecond.log.store.foreign.columns import FIELDS, KnownFormat, heads
from splitsecond.log.store.foreign.lines import bad_import

KNOWN = (litellm.FORMAT, langfuse.FORMAT, openrouter.FORMAT)
TABLE = KnownFormat("a table", {field: field for field in FIELDS}, set())
"""A file whose columns have the names of our fields."""
SUMMARIES = (
    (
        {"Date", "Slug", "Requests", "Completion Tokens"},
        "this is OpenRouter's summary by day, which has no times of requests",
        "Export the list of generations, whose file is named openrouter_activity_DATE.csv.",
    ),
)
"""Files without single calls: the columns by which they are recognised, why they cannot be
imported, and a hint."""
PROVIDERS = {
    "vertex-ai": "vertex", "google-vertex": "vertex", "google-ai-studio": "gemini",
    "fireworks-ai": "fireworks",
    "together-ai": "together", "azure-ai": "azure", "amazon-bedrock": "bedrock",
    "hosted-vllm": "vllm",
    "moonshot-ai": "moonshot", "z.ai": "zai", "alibaba": "qwen",
}  # fmt: skip
"""Providers whose name in other programs differs from ours."""


class ForeignFormat(Struct, frozen=True):
    """How to read a file: the column of each field, the columns that are left out, and our names of
    providers."""

    title: str
    columns: Mapping[str, str]
    ignored: list[str]
    providers: Mapping[str, str]


def parse_map(text: str) -> dict[str, str]:
    """Return the columns by field, from "field=column,field=column". Raises `CallerFault` for an
    unknown field."""
    mapped = {}
    for part in filter(None, text.split(",")):
        field, equals, column = (each.strip() for each in part.partition("="))
        if not equals or not column:
            raise bad_import(f"--map: got {part!r}, expected field=column")
        if field not in FIELDS:
            raise bad_import(
                f"--map: unknown field {field!r}",
                nearest(field, FIELDS) or f"Fields: {', '.join(FIELDS)}.",
            )
        mapped[field] = column
    return mapped


def format_of(columns: list[str], mapped: Mapping[str, str]) -> ForeignFormat:
    """Return how to read a file with these columns: a known format, or columns with the names of
    our fields.

    `mapped` adds to it. Raises `CallerFault` if a column is missing, with those that the file has.
    """
    for recognised_by, why, hint in SUMMARIES:
        if recognised_by <= set(columns):
            raise bad_import(why, hint)
    base = next((each for each in KNOWN if each.recognised_by <= set(columns)), TABLE)
    column_of = {
        field: column for field, column in base.columns.items() if heads(column) & {*columns}
    }
    column_of |= mapped
    there = f"the file's columns are {', '.join(columns)}"
    if missing := [column for column in mapped.values() if not heads(column) & {*columns}]:
        raise bad_import(f"--map: no column {missing[0]!r}; {there}", nearest(missing[0], columns))
    if lacking := _lacking(column_of.keys()):
        raise bad_import(
            f"no column is known to be {lacking}; {there}",
            "Name it with --map field=column,field=column.",
        )
    used = set().union(*map(heads, column_of.values()))
    return ForeignFormat(
        base.title,
        column_of,
        [column for column in columns if column not in used],
        PROVIDERS | base.providers,
    )


_NEEDED: Mapping[str, tuple[set[str], ...]] = {
    "model": ({"model"},),
    "time": ({"time"}, {"end_time"}),
    "duration_s, duration_ms or both time and end_time": (
        {"duration_s"},
        {"duration_ms"},
        {"time", "end_time"},
    ),
}
"""What a file needs, by name: all fields of at least one of the sets."""


def _lacking(fields: Set[str]) -> str:
    return next(
        (name for name, sets in _NEEDED.items() if not any(each <= fields for each in sets)), ""
    )
