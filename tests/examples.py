"""Numbers of generated examples."""

from hypothesis import settings

FULL = 100


def examples(count: int) -> settings:
    """Return settings with `count` examples for a profile with 100, and proportionally fewer or
    more for others."""
    return settings(max_examples=max(1, count * settings().max_examples // FULL))
