"""Odd but real answers of providers and engines, each with the one meaning that every reader must
find.

There is one module for each API format, with builders of its events and a list of cases. A case is
a name, its `Meaning`, and what was odd. Sources: bug reports of gateways, engines and agents, and
providers' own documents.
"""

import json
from typing import Any

from msgspec import Struct, structs

Call = tuple[str, dict[str, Any]]
Fields = dict[str, Any]


class Meaning(Struct, frozen=True):
    """The meaning of an answer: `calls` are names with arguments, `end` is OpenAI's finish reason,
    "" for the usual one, and `usage` the tokens of input and output, 0 where they are unknown."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    end: str = ""
    usage: tuple[int, int] = (0, 0)


class OddAnswer(Struct, frozen=True):
    """The `body` of one answer, streamed or whole."""

    name: str
    api_format: str
    meaning: Meaning
    body: bytes


def streamed(api_format: str, name: str, meaning: Meaning, *events: Any) -> OddAnswer:
    """Return an answer with these events: JSON, or bytes as they are."""
    return OddAnswer(
        name, api_format, meaning, b"".join(b"data: " + _json(each) + b"\n\n" for each in events)
    )


def whole(api_format: str, name: str, meaning: Meaning, answer: Any) -> OddAnswer:
    """Return an answer that is one JSON object."""
    return OddAnswer(name, api_format, meaning, _json(answer))


def _json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def _in_lines(event: bytes) -> bytes:
    data = event.removeprefix(b"data: ")
    if not data.startswith(b"{"):
        return event
    return b"data: " + json.dumps(json.loads(data), indent=1).encode().replace(b"\n", b"\ndata: ")


def framings(base: OddAnswer) -> list[OddAnswer]:
    """Return `base`, a stream, in the framings of servers and proxies."""
    events = base.body.removesuffix(b"\n\n").split(b"\n\n")
    bodies = {
        "CR LF": base.body.replace(b"\n", b"\r\n"),
        "no space after the colon": base.body.replace(b"data: ", b"data:"),
        "comments, ids and retries": b"".join(
            b": ping\n\nid: 1\nretry: 9\n" + each + b"\n\n" for each in events
        ),
        "several data lines": b"".join(_in_lines(each) + b"\n\n" for each in events),
        "a byte order mark and blank lines": b"\xef\xbb\xbf\n\n" + base.body,
        "no blank line at the end": base.body.removesuffix(b"\n"),
    }
    return [
        structs.replace(base, name=f"framing: {name}", body=body) for name, body in bodies.items()
    ]


OSLO, UTC = ("weather", {"city": "Oslo"}), ("clock", {"zone": "UTC"})
BOTH = Meaning(calls=(OSLO, UTC))
HI = Meaning("Hi there")
ALL = Meaning("Hi there", calls=(OSLO, UTC))
SMILE, HALVES = Meaning("Hi \U0001f600!"), ("Hi ", "\ud83d", "\ude00!")
