"""The comparison with golden files."""

from pathlib import Path

import pytest
from tests.golden import Golden


def test_golden_file_fails_on_a_difference_until_updated(tmp_path: Path) -> None:
    """A missing or different file fails; an update writes what the next run expects."""
    with pytest.raises(AssertionError, match="no golden file"):
        Golden(tmp_path, "x", update=False).check("one")
    Golden(tmp_path, "x", update=True).check("one")
    Golden(tmp_path, "x", update=False).check("one")
    with pytest.raises(AssertionError, match="differs"):
        Golden(tmp_path, "x", update=False).check("two")
    with pytest.raises(AssertionError, match=r"no golden file .*x\.part\.txt"):
        Golden(tmp_path, "x", update=False).check("one", part="part")


def test_the_fixture_names_the_file_after_the_test(golden: Golden) -> None:
    """The folder is `golden/` beside the module; the file is named after the test."""
    assert golden.folder == Path(__file__).parent / "golden" / "test_golden"
    assert golden.test == "test_the_fixture_names_the_file_after_the_test"
