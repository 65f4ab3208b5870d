"""Lines of files that users give: traces and prompts. Memory stays bounded, whatever a file
holds."""

from collections.abc import Iterator
from typing import BinaryIO

from splitsecond.core.errors import CallerFault


def numbered_lines(
    file: BinaryIO, name: str, longest: int, kind: str, hint: str
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file that are not blank, stripped, with their numbers from 1.

    Raises `CallerFault` of `kind` with the line, and `hint`, for text that is not UTF-8 and for a
    line of more than `longest` bytes.
    """
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), 1):
        if len(line) > longest:
            raise CallerFault(
                f"{name}:{number}: the line is longer than {longest:,} bytes", kind=kind, hint=hint
            )
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise CallerFault(
                f"{name}:{number}: the line is not UTF-8 text: {error.reason}", kind=kind, hint=hint
            ) from None
        if text:
            yield number, text
