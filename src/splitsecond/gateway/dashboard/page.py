"""The page of the dashboard: one file that loads nothing except its data.

The content security policy names the page's own script and style sheet by their hashes, and lets
the page connect to its own server only.

Clients and providers choose names that the page shows, so the script creates elements and text
nodes only, and `require-trusted-types-for` makes the browser refuse to parse markup from a string.

The page itself contains nothing secret. It is served without a key, because a browser cannot send
one before the page asks for it.
"""

from functools import lru_cache
from importlib.resources import files

from splitsecond.core.pages.theme import page_colours
from splitsecond.routing.requests.error_response import Headers

HTML = b"text/html; charset=utf-8"
GUARDED: Headers = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
SCRIPTS = (
    "elements.js", "figures.js", "history.js", "charts.js", "recent.js", "speeds.js",
    "sessions.js", "what_if.js", "view.js",
    "page.js",
)  # fmt: skip


@lru_cache(maxsize=1)
def dashboard_page() -> tuple[bytes, Headers]:
    # takes a tenth of a second, which only a gateway whose dashboard is opened should spend
    import jinja2

    from splitsecond.core.pages.html import csp_hash, page_style, template_source

    pieces = template_source("filters.js") + "".join(map(_file, SCRIPTS))
    script = f'"use strict";\n{{\n{pieces}}}\n'
    shared = template_source("chart.css") + template_source("filters.css")
    style = page_colours() + shared + _file("page.css")
    whole = jinja2.Template(_file("page.html"), autoescape=True).render(style=style, script=script)
    allowed = (
        "default-src 'none'",
        f"script-src '{csp_hash(script)}'",
        f"style-src '{csp_hash(style)}' '{csp_hash(page_style())}'",
        "connect-src 'self'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return whole.encode(), [*GUARDED, (b"content-security-policy", "; ".join(allowed).encode())]


def _file(name: str) -> str:
    return files("splitsecond.gateway.dashboard").joinpath(name).read_text(encoding="utf-8")
