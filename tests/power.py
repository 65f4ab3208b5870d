"""Tests that repeat one experiment: a few times among the fast tests, and with full power in `make
test-all`."""

import pytest


def repeated(few: int, full: int) -> pytest.MarkDecorator:
    """Run a test twice, with `few` and with `full` as its argument `repeats`; the second is a
    `system` test."""
    return pytest.mark.parametrize("repeats", [few, pytest.param(full, marks=pytest.mark.system)])
