"""What answers of other targets, told as Responses, have left in a conversation that goes on where those are spoken.

Their items have ids that no provider has given (`answers` makes them of the answer's own, which begins with "resp_"). A
thought is known to its provider by its id or in encrypted form; these are neither, and are left out, and named. All
other items go on without their id, which they need not have.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.service import Call
from splitsecond.wire.translation import left_out

_FOREIGN = re.compile(rb'"id"\s*:\s*"[a-z]+_resp_')
THOUGHTS = "reasoning items"
"""What the client is told was left out."""
_BEGINS = re.compile(r"[a-z]+_resp_")


def without_foreign_items(call: Call) -> Any:
    """``input`` of `call` without thoughts and ids that are not its provider's; as it came where there are none."""
    given = call.body["input"]
    if not isinstance(given, Raw) or not _FOREIGN.search(given):
        return given
    try:
        items = msgspec.json.decode(given)
    except (ValueError, RecursionError):
        return given
    if not isinstance(items, list):
        return given
    kept: list[Any] = []
    for item in items:
        match item:
            case {"id": str(identity), **rest} if _BEGINS.match(identity):
                if item.get("type") == "reasoning":
                    left_out(call, THOUGHTS)
                else:
                    kept.append(rest)
            case _:
                kept.append(item)
    return kept
