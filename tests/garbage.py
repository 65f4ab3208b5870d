"""What a piece of code leaves for the garbage collector."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage() -> Iterator[Counter[str]]:
    """Counts the objects that were made in its block and can only be freed by looking for cycles,
    by their type.

    The counts are there when the block has ended.
    """
    found: Counter[str] = Counter()
    gc.collect()
    gc.freeze()  # so that only what is made from here on is looked through
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.update(f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()
