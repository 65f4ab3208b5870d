"""The latest answer of `splitsecond what-if`, which is kept beside its log for the gateway's
dashboard."""

import os

from splitsecond.core.errors import CallerFault
from splitsecond.log.store.database import beside

MAX_BYTES = 4 << 20


def keep_answer(url: str, answer: bytes) -> None:
    """Replace the answer beside the log `url`. Raises `OSError`."""
    file = beside(url, "what-if.json")
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(answer)
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def kept_answer(url: str) -> bytes | None:
    """Return the answer beside the log `url`, or None if no answer was kept. Raises `CallerFault`
    if the file cannot be read."""
    file = beside(url, "what-if.json")
    try:
        with open(file, "rb") as opened:
            answer = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        words = f"cannot read {file}: {error.strerror or error}"
        raise CallerFault(words, kind="log_unavailable", status=503) from None
    return answer if len(answer) <= MAX_BYTES else None
