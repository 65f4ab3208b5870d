"""Simulations that are spread over processes."""

import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

From = TypeVar("From")
To = TypeVar("To")


def add_processes(parser: ArgumentParser) -> None:
    """Add the option `--processes` to the command line of a benchmark."""
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="processes that simulate"
    )


def in_processes(simulate: Callable[[From], To], cases: Iterable[From], processes: int) -> list[To]:
    """Return what `simulate`, a function of a module, finds for each case, in their order."""
    if processes == 1:
        return [simulate(case) for case in cases]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(simulate, cases))
