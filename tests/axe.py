"""axe-core, which finds what people with a screen reader, only a keyboard or weak eyes cannot use.

`make clients` installs it.
"""

import os
from pathlib import Path
from typing import Any

from tests.gateway.in_chromium.devtools import Page

CLIENTS = Path(os.environ.get("SPLITSECOND_CLIENTS", Path(__file__).parents[1] / "build/clients"))
AXE = CLIENTS / "node_modules/axe-core/axe.min.js"
LOOKS = ((1280, "light"), (1280, "dark"), (390, "light"))


def violations(page: Page) -> list[str]:
    """Return what axe-core finds on the page that is open, with all of its details unfolded, in
    each of `LOOKS`."""
    assert AXE.exists(), "this test needs axe-core: make clients"
    page.value("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.value(AXE.read_text("utf-8"))
    found = []
    for width, theme in LOOKS:
        page.looks(width, theme)
        result: Any = page.value(
            "axe.run().then(found => ({passes: found.passes.length, wrong: found.violations}))"
        )
        assert result["passes"] > 10, "axe has looked at the page"
        for each in result["wrong"]:
            nodes = [node["html"][:200] for node in each["nodes"][:3]]
            found.append(f"{width} {theme} {each['impact']} {each['id']}: {nodes}")
    return found
