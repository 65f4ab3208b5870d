"""The browser for tests of pages."""

import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def browser() -> str | None:
    """Return the first of `BROWSERS` on PATH."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)
