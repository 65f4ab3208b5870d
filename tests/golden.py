"""Comparison of printed text with files, so that a change of wording is one command and one diff to
review.

`pytest --update-golden` rewrites the files of the tests that run.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Golden:
    """Compares texts of one test with the files in `golden/` beside its module.

    The file is named ``<module>/<test>.txt``; a test that checks several texts names each with
    `part`.
    """

    folder: Path
    test: str
    update: bool

    def check(self, text: str, part: str = "") -> None:
        """Fail unless `text` equals the file's content. With `--update-golden`, write the file
        instead."""
        path = self.folder / f"{self.test}{f'.{part}' if part else ''}.txt"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"no golden file {path}: create it with --update-golden"
        assert text == path.read_text(encoding="utf-8"), (
            f"differs from {path}; if intended, use --update-golden"
        )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Golden files of the running test."""
    module = request.path
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in request.node.name)
    return Golden(
        module.parent / "golden" / module.stem, name, request.config.getoption("--update-golden")
    )
