"""Imports without garbage collection."""

import gc

import pytest

from splitsecond.core.loading import loading


def test_collection_pauses_while_modules_load_and_skips_them_afterwards() -> None:
    frozen = gc.get_freeze_count()
    with loading():
        assert not gc.isenabled()
        made: list[list[int]] = [[] for _ in range(100_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(made)


def test_collection_is_enabled_again_if_a_module_is_missing() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
