"""The page of the dashboard: one file that loads nothing but its data.

The content security policy names the page's own script and style sheet by their hashes, and lets the page ask its own
server and nobody else. Clients and providers choose names that are shown here: the script makes elements and text
nodes only, and by `require-trusted-types-for` the browser refuses to read markup from a string at all.

The page itself holds nothing that is worth a key. Whoever opens it must have it before a key can be asked for, as a
browser sends none by itself.
"""

from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from string import Template

from splitsecond.gateway.refusal import Headers

HTML = b"text/html; charset=utf-8"
GUARDED: Headers = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
"""What goes with the page, and with its data."""
SCRIPTS = ("elements.js", "figures.js", "history.js", "view.js", "page.js")


@lru_cache(maxsize=1)
def dashboard_page() -> tuple[bytes, Headers]:
    """The page, and the headers that go with it."""
    pieces = "".join(map(_file, SCRIPTS))
    script, style = f'"use strict";\n{{\n{pieces}}}\n', _file("page.css")
    whole = Template(_file("page.html")).substitute(style=style, script=script)
    allowed = (
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "connect-src 'self'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return whole.encode(), [*GUARDED, (b"content-security-policy", "; ".join(allowed).encode())]


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _file(name: str) -> str:
    return files("splitsecond.gateway.dashboard").joinpath(name).read_text(encoding="utf-8")
