"""JSON that msgspec refuses and a lenient reader takes. Providers send some, and it is no reason to lose an answer."""

import json


def mended(data: bytes) -> bytes:
    """`data` as JSON that msgspec takes: U+FFFD for bytes not UTF-8, "?" for half a surrogate pair, null for NaN.

    Raises `ValueError` or `RecursionError` where it is no JSON for a lenient reader either.
    """
    value = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def is_json(data: bytes) -> bool:
    """Whether `data` is a whole JSON value, read leniently."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
