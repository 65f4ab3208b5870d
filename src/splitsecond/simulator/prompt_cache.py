"""What a provider remembers of prompts: their beginnings, so that one that begins the same is answered sooner.

A beginning is known by the hash of all its text. Where the cache works unasked, those of whole blocks are remembered
(OpenAI, DeepSeek, Gemini, vLLM). Where the client has to mark what is worth it (Anthropic), those that end at a mark
are, and one of an earlier request is found wherever a text of the prompt ends, not too far before a mark: so a
conversation that grows is found again although its mark moves.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from splitsecond.clock import NS_PER_S
from splitsecond.simulator.profile import PromptCacheSpec
from splitsecond.simulator.words import CHARACTERS_PER_TOKEN

MAX_BEGINNINGS = 100_000
"""How many are remembered; those that were not asked for longest are forgotten."""
LOOK_BACK = 20
"""How many ends of texts before the last mark are looked at; Anthropic's own number, of blocks."""


class Recalled(msgspec.Struct, frozen=True):
    """What a cache knows of one prompt.

    `read_tokens` of its beginning were there; `written_tokens`, which follow them, are kept because the client marked
    them (None: the cache works unasked, and does not count them). `beginnings` are to be kept.
    """

    read_tokens: int
    written_tokens: int | None
    beginnings: tuple[bytes, ...]


class PromptCache:
    """The memory of one provider. Times are the caller's, in monotonic nanoseconds, and never go back."""

    def __init__(self, spec: PromptCacheSpec, most: int = MAX_BEGINNINGS) -> None:
        self._spec = spec
        self._ttl_ns = round(spec.ttl_s * NS_PER_S)
        self._most = most
        self._used_ns: dict[bytes, int] = {}  # by beginning, when it was last asked for; the oldest come first

    def recall(self, text: str, now_ns: int) -> Recalled:
        """What is known of a prompt, where the cache works unasked."""
        block = self._spec.block_tokens * CHARACTERS_PER_TOKEN
        first = -(-self._spec.from_tokens * CHARACTERS_PER_TOKEN // block) * block
        ends = list(range(first, len(text) + 1, block))
        beginnings = _hashes(text, ends)
        known = self._known(beginnings, now_ns)
        return Recalled(_tokens(ends[known]) if known >= 0 else 0, None, tuple(beginnings))

    def recall_marked(self, text: str, marks: tuple[int, ...], now_ns: int) -> Recalled:
        """What is known of a prompt of which only what comes before `marks` (in characters) is to be kept."""
        marks = tuple(mark for mark in marks if _tokens(mark) >= self._spec.from_tokens)
        if not marks:
            return Recalled(0, 0, ())
        ends = sorted({*marks, *self._ends_before(text, marks[-1])})
        beginnings = _hashes(text, ends)
        known = self._known(beginnings, now_ns)
        read = _tokens(ends[known]) if known >= 0 else 0
        kept = tuple(beginnings[number] for number, end in enumerate(ends) if end in marks or number == known)
        return Recalled(read, max(_tokens(marks[-1]) - read, 0), kept)

    def keep(self, beginnings: Sequence[bytes], now_ns: int) -> None:
        """Remember these, of which each is longer than the one before, from now on."""
        for beginning in reversed(beginnings):  # the longest are the first to be forgotten
            self._used_ns.pop(beginning, None)
            self._used_ns[beginning] = now_ns
        while len(self._used_ns) > self._most:
            del self._used_ns[next(iter(self._used_ns))]

    def _ends_before(self, text: str, mark: int) -> list[int]:
        """Where the last few texts before `mark` end, of those that are long enough; texts are joined by line feeds."""
        ends: list[int] = []
        end = text.rfind("\n", 0, mark)
        while end >= 0 and len(ends) < LOOK_BACK and _tokens(end) >= self._spec.from_tokens:
            ends.append(end)
            end = text.rfind("\n", 0, end)
        return ends

    def _known(self, beginnings: list[bytes], now_ns: int) -> int:
        """The number of the longest one that is remembered, which has been asked for with this; -1: none is."""
        for number in range(len(beginnings) - 1, -1, -1):
            used_ns = self._used_ns.get(beginnings[number])
            if used_ns is not None and now_ns - used_ns <= self._ttl_ns:
                return number
        return -1


def _hashes(text: str, ends: list[int]) -> list[bytes]:
    """One for each beginning of `text` that has one of these lengths, which rise."""
    running = blake2b(digest_size=16)
    hashes = []
    begin = 0
    for end in ends:
        running.update(text[begin:end].encode())
        begin = end
        hashes.append(running.digest())
    return hashes


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
