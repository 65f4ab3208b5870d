"""Grouping of observations, rows and findings by a property of theirs."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
Key = TypeVar("Key")


def grouped(items: Iterable[T], key: Callable[[T], Key]) -> defaultdict[Key, list[T]]:
    groups: defaultdict[Key, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
