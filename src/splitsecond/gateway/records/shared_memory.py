"""Memory that the processes of a gateway share: its first process creates it, and child processes
inherit a descriptor.

It is no file in a folder. A page of a mapped file for which the disk has no room ends the process
that writes it (SIGBUS), and a file in the temporary folder may be removed while its gateway runs.
"""

import mmap
import os
import tempfile
from collections.abc import Callable

_memory_file: Callable[[str], int] | None = getattr(os, "memfd_create", None)
"""None: the system has no such call."""


def create_memory(size: int) -> int:
    if _memory_file is not None:
        memory = _memory_file("splitsecond")
        os.ftruncate(memory, size)
        return memory
    # without a name; written, so that the disk has room for it
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(bytes(size))
        return os.dup(file.fileno())


def mapped(memory: int | None, size: int) -> memoryview:
    return memoryview(mmap.mmap(-1 if memory is None else memory, size))
