"""Lengths of a target's answers. If they are as long as was requested, the end of the next one is
known in advance.

A measurement that leaves streams unread for a while must read them promptly before their last token
(`sparse_reads`).
"""

LIKE_BEFORE = 32
"""Consecutive answers of full length after which the next one is expected to have it too."""
FULL_SHARE = 0.98
"""Content events of an answer of full length, as a share of its tokens: a character can need
several tokens."""


class AnswerLengths:
    __slots__ = ("_full",)

    def __init__(self) -> None:
        self._full = 0

    def expected(self, limit: int | None) -> int | None:
        """Return how many content events an answer will have at least; None: it is not known.

        `limit`: its `output_limit`.
        """
        return None if limit is None or self._full < LIKE_BEFORE else int(limit * FULL_SHARE)

    def record(self, limit: int | None, events: int) -> None:
        if limit is not None:
            self._full = self._full + 1 if events >= int(limit * FULL_SHARE) else 0
