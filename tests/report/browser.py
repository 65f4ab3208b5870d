"""The browser that looks at a report."""

import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def browser() -> str | None:
    """The first of `BROWSERS` that is on PATH."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)
