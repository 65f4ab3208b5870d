"""Lines of a foreign file. It is read line by line, so its size does not matter."""

import csv
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from splitsecond.core.compressed_file import open_bytes
from splitsecond.core.errors import PARSER_ERRORS, CallerFault, parser_words
from splitsecond.core.json_array import ArrayElements, ArrayError, check_encodable

MAX_CHARACTERS = 16 << 20
"""Longest line, or field of a CSV file."""
_BLOCK = 1 << 16

NumberedLine = tuple[int, Mapping[str, Any] | str]
"""A line: its number, and its values by column, or why it cannot be read."""


def lines_of(path: Path) -> Iterator[NumberedLine]:
    """Yield the lines of a CSV file, of a file of JSON lines, the objects of a JSON list or of
    pages of an API (``{"data": […]}``), or the rows of a Parquet file, each with its number. The
    file may be compressed by gzip.

    Raises `CallerFault` for a CSV file whose first line cannot be read, because it names the
    columns.
    """
    with TextIOWrapper(
        open_bytes(path), encoding="utf-8-sig", errors="replace", newline=""
    ) as file:
        begin = file.read(_BLOCK).lstrip()[:4]
        file.seek(0)
        if begin == "PAR1":
            from splitsecond.log.store.parquet import rows_as_text

            yield from rows_as_text(path)
            return
        begin = begin[:1]
        if begin == "[":
            yield from _json_list(file)
        elif begin == "{":
            yield from _json_lines(file)
        else:
            yield from _csv(file)


def _csv(file: TextIO) -> Iterator[NumberedLine]:
    csv.field_size_limit(MAX_CHARACTERS)
    reader = csv.reader(file)
    try:
        head = next(reader, [])
    except csv.Error as error:
        raise bad_import(
            f"{file.name}, line 1: it is no CSV ({error})", "It names the columns."
        ) from None
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, f"it is no CSV ({error})"
            continue
        if row and len(row) != len(head):
            yield reader.line_num, f"it has {len(row):,} fields, and the head {len(head):,}"
        elif row:
            yield reader.line_num, dict(zip(head, row, strict=True))


def _json_lines(file: TextIO) -> Iterator[NumberedLine]:
    number = 0
    while text := file.readline(MAX_CHARACTERS):
        number += 1
        if not text.strip():
            continue
        values = json_object(text)
        # one object over several lines, or no JSON at all
        if isinstance(values, str) and number == 1:
            rest = file.read(MAX_CHARACTERS - len(text))
            whole = json_object(text + rest)
            if isinstance(whole, str):
                file.seek(0)
                file.readline(MAX_CHARACTERS)
            else:
                values = whole
        if not isinstance(values, str) and isinstance(values.get("data"), list | dict):
            yield from _page(values["data"])
        else:
            yield number, values


def _page(data: Any) -> Iterator[NumberedLine]:
    for number, values in enumerate(data if isinstance(data, list) else [data], 1):
        yield number, values if isinstance(values, dict) else "it is no object"


def _json_list(file: TextIO) -> Iterator[NumberedLine]:
    """Yield the objects of a list without reading all of it. The number is that of the object, from
    1."""
    number = 0
    try:
        for number, (_, values) in enumerate(ArrayElements(file, MAX_CHARACTERS), 1):
            yield number, values if isinstance(values, dict) else "it is no object"
    except ArrayError:
        yield number + 1, "the list ends in the middle, or is no JSON from here on"


@lru_cache(maxsize=4)
def json_object(text: str) -> Mapping[str, Any] | str:
    try:
        values = json.loads(text)
        check_encodable(values)
    except PARSER_ERRORS as error:
        return f"it is no JSON ({parser_words(error)})"
    return values if isinstance(values, dict) else "it is no object"


def bad_import(message: str, hint: str = "") -> CallerFault:
    return CallerFault(message, kind="bad_import", hint=hint)
