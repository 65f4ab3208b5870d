"""Lines of files that users give: traces and prompts. Memory stays bounded, whatever a file
holds."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from splitsecond.core.compressed_file import open_bytes
from splitsecond.core.errors import CallerFault, file_faults


def numbered_lines(path: Path, longest: int, kind: str, hint: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file that are not blank, stripped, with their numbers from 1.

    The file may be compressed by gzip. Raises `CallerFault` of `kind` with the line, and `hint`,
    for text that is not UTF-8 and for a line of more than `longest` bytes.
    """
    with file_faults(f"cannot read {path}", kind=kind), open_bytes(path) as file:
        yield from numbered(
            iter(lambda: file.readline(longest + 1), b""), str(path), longest, kind, hint
        )


def numbered(
    lines: Iterable[bytes], name: str, longest: int, kind: str, hint: str
) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
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
