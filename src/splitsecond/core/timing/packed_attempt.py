"""Numbers of one attempt in a fixed layout, so that millions of attempts are read without a Python
object for each.

`core/timing/columns` reads many of them at once with numpy, which this module does not import,
because the gateway uses it.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from struct import Struct as Layout
from typing import NamedTuple, TypeVar
from zlib import crc32

from splitsecond.core.observation import (
    Outcome,
    TokenSource,
    is_closed_by_us,
    is_closed_early,
    is_unbilled,
)

Made = TypeVar("Made")

FIELDS = {
    "came_us": "q", "label": "Q", "call": "I", "attempts": "H", "flags": "H",
    "wait_ns": "q", "took_ns": "q", "decode_ns": "q",
    "decoded": "i", "input_tokens": "i", "output_tokens": "i", "cached_tokens": "i",
    "cache_write_tokens": "i",
    "cache_write_1h_tokens": "i",
}  # fmt: skip
"""Fields in their order, with their formats in `struct`; little-endian, without padding. `label`:
hash of the names (`AttemptLabel`). `call`: hash of the call's id, 0 if it has one attempt.
`attempts`: attempts of the call. The others: see `AttemptColumns`."""
PACKED = Layout("<" + "".join(FIELDS.values()))
LABEL_AT = 8
"""Place of the label, in bytes."""
MAX_ATTEMPTS = 0xFFFF

OUTCOMES: tuple[Outcome, ...] = ("ok", "failed", "cancelled")
SOURCES: tuple[TokenSource, ...] = ("usage", "tokenizer", "events", "", "estimate")
WAIT_ENDED, WAIT_CLOSED = 1, 2
UNKNOWN = -1
UNBILLED, CLOSED_EARLY, LOSER = 64, 128, 256
"""Flags above two bits each for outcome, source and wait. The highest bit is the third one of the
source."""
_OUTCOME: dict[str, int] = {name: place for place, name in enumerate(OUTCOMES)}
_SOURCE: dict[str, int] = {
    name: (place & 3) << 2 | (place & 4) << 7 for place, name in enumerate(SOURCES)
}


class AttemptLabel(NamedTuple):
    """Names by which attempts are counted. `tier`: the speed tier that served it; `fault`: its
    kind, "" for none; `team` and `tags` of an imported call; `stated`: its log states its cost."""

    target: str
    client: str = ""
    route: str = ""
    tier: str = ""
    fault: str = ""
    team: str = ""
    tags: str = ""
    stated: bool = False


@lru_cache(maxsize=4096)
def label_hash(
    target: str, client: str, route: str, tier: str, fault: str, *accounting: str
) -> int:
    text = "\n".join((target, client, route, tier, fault, *accounting)).encode(
        "utf-8", "surrogatepass"
    )
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def call_hash(call: str) -> int:
    return crc32(call.encode("utf-8", "surrogatepass"))


def attempt_numbers(
    make: Callable[..., Made],
    place: tuple[int, int, int, int],
    state: tuple[str, str, bool, str, int, int | None],
    times: tuple[int | None, int | None, int | None, int | None, int | None, int, int | None],
    tokens: tuple[int | None, int | None, int | None, int | None, int | None, int | None, str],
) -> Made:
    """Return what `make` makes of the fields, in their order: `PACKED.pack`, or another function.

    `place`: the first four fields. `state`: outcome, role, whether it was streamed, the type of its
    fault, its status, and the tokens that were not streamed. `times`: sent, headers, first token,
    first token of the answer, last token, and end, in nanoseconds from the arrival of the call;
    then the tokens of the first event. `tokens`: input, cached, written to the cache, of these for
    an hour, output, reasoning; then their source. Raises `struct.error` if `make` packs and a
    number is too large.
    """
    outcome, role, streamed, fault_type, status, unstreamed_tokens = state
    sent, _, first_token, first_answer, last_token, end, first_event_tokens = times
    (
        input_tokens,
        cached_tokens,
        written_tokens,
        hour_tokens,
        output_tokens,
        reasoning_tokens,
        source,
    ) = tokens
    flags = _OUTCOME[outcome] | _SOURCE[source]
    if role == "loser":
        flags |= LOSER
    if is_closed_early(sent is not None, outcome, fault_type, source):
        flags |= CLOSED_EARLY
    if is_unbilled(sent is not None, first_token is not None, status):
        flags |= UNBILLED
    kind, wait = (
        _wait(sent, first_token, end, is_closed_by_us(outcome, fault_type)) if streamed else (0, 0)
    )
    decoded = UNKNOWN
    if output_tokens is not None:
        reasoned = reasoning_tokens if first_answer == first_token else 0
        decoded = _streamed_tokens(output_tokens, unstreamed_tokens, reasoned) - (
            first_event_tokens or 1
        )
    return make(
        *place,
        flags | kind << 4,
        wait,
        end,
        UNKNOWN if first_token is None or last_token is None else last_token - first_token,
        decoded,
        UNKNOWN if input_tokens is None else input_tokens,
        UNKNOWN if output_tokens is None else output_tokens,
        cached_tokens or 0,
        written_tokens or 0,
        hour_tokens or 0,
    )


def _streamed_tokens(
    output_tokens: int, unstreamed_tokens: int | None, reasoning_tokens: int | None
) -> int:
    # as in `Observation.tps`
    return max(output_tokens - (unstreamed_tokens or 0) - (reasoning_tokens or 0), 0)


def _wait(
    sent: int | None, first_token: int | None, end: int, closed_by_us: bool
) -> tuple[int, int]:
    if sent is None:
        return 0, 0
    if first_token is not None:
        return WAIT_ENDED, first_token - sent
    return (WAIT_CLOSED, end - sent) if closed_by_us else (0, 0)
