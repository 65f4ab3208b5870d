"""A process of its own that reads the log for the dashboard, and answers with one line."""

import asyncio

import msgspec
from msgspec import Struct

from splitsecond.core.child_process import ChildProcess, how_it_ended
from splitsecond.core.errors import CallerFault
from splitsecond.core.loading import module_command

LONGEST_S = 300.0
LONGEST_LINE = 16 << 20
NICENESS = 10


class LogQuestion(Struct, kw_only=True, frozen=True):
    """What the process reads from standard input, because the log's URL can contain a password."""

    url: str


async def line_of_process(module: str, question: LogQuestion) -> bytes:
    """Return the line that `module` answers. Raises `CallerFault` if that fails or takes too
    long."""
    try:
        process = await ChildProcess.start(*module_command(module), longest_line=LONGEST_LINE)
    except OSError as error:
        why = f"the process that reads the log cannot start: {error}"
        raise CallerFault(why, kind="log_unavailable", status=503) from None
    try:
        await process.write(msgspec.json.encode(question) + b"\n")
        line = await asyncio.wait_for(process.read_line(), LONGEST_S)
        code = await process.wait() if line is None else 0
    except TimeoutError:
        raise CallerFault(
            f"the log was not read within {LONGEST_S:g} s", kind="log_unavailable", status=503
        ) from None
    finally:
        await process.stop()
    if line is None:
        raise CallerFault(
            f"the process that reads the log {how_it_ended(code)}",
            kind="log_unavailable",
            status=503,
        )
    return line
