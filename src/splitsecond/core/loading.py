"""Imports of a process that starts, without garbage collection."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def loading() -> Iterator[None]:
    """Import modules in the block without garbage collection, and exempt them from it afterwards.

    Nearly all of their objects stay. Scanning them again and again, and once more when the process
    ends, takes a quarter of the CPU time of a short command.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs `main` of a module, or of the `__main__` of a package, in a
    process of its own."""
    return sys.executable, "-m", __spec__.name, module


def main() -> None:
    name = sys.argv.pop(1)
    with loading():
        module = import_module(name)
        if hasattr(module, "__path__"):
            module = import_module(f"{name}.__main__")
    sys.exit(module.main())


if __name__ == "__main__":
    main()
