"""What makes a row of production figures: names that follow from a target or its labels, and
classes of prompts."""

from collections.abc import Callable

import numpy as np

from splitsecond.core.catalog.model_names import Identity
from splitsecond.core.timing.columns import UNKNOWN, AttemptColumns, AttemptLabel, Integers

PROMPT_BOUNDS = (128, 1024, 8192, 65_536)
SIZES = (
    "unknown",
    "under 128",
    "128 to 1,023",
    "1,024 to 8,191",
    "8,192 to 65,535",
    "65,536 or more",
)
"""Classes of prompts by their tokens."""


_PROMPT_CLASS: Integers = np.append(
    1 + np.searchsorted(PROMPT_BOUNDS, np.arange(PROMPT_BOUNDS[-1] + 1), side="right"), 0
)
"""Class of a prompt by its tokens; the last one is that of an unknown length, -1."""

NAMES: dict[str, Callable[[Identity], str]] = {
    "target": lambda target: target.target,
    "model": lambda target: target.model,
    "provider": lambda target: target.provider,
    "maker": lambda target: target.maker or "unknown maker",
    "host": lambda target: target.host,
    "hosting": lambda target: target.hosting,
    "region": lambda target: target.region or "no region in the name",
    "hardware": lambda target: target.hardware,
}
"""Names of rows that follow from a target's name."""

SIDES = ("provider", "host", "hosting", "region", "hardware")
"""Rows that can serve the same model, so that their targets are compared."""

LABELS: dict[str, Callable[[AttemptLabel], str]] = {
    "key": lambda label: label.client or "no key",
    "team": lambda label: label.team or "no team",
    "tag": lambda label: label.tags or "no tag",
}
"""Names of rows that follow from the other names of an attempt."""

SPLIT = ("hour", "size")
"""Rows that do not follow from the names of an attempt."""


def prompt_classes(columns: AttemptColumns) -> Integers:
    """Return the place of the class of each prompt among `SIZES`."""
    return _PROMPT_CLASS[np.minimum(np.maximum(columns.input_tokens, UNKNOWN), PROMPT_BOUNDS[-1])]
