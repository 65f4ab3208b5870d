"""A simulated prompt cache: it stores prefixes of prompts, so that a prompt with a known prefix is processed faster.

An automatic cache (OpenAI, DeepSeek, Gemini, vLLM) stores prefixes of whole blocks. A cache with marks (Anthropic)
stores the prefixes that end at a mark of the client. There an earlier prefix is found at each end of a text block that
is not too far before a mark, so a growing conversation is found again although its mark moves.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from splitsecond.core.clock import NS_PER_S
from splitsecond.simulator.content.tokens import CHARACTERS_PER_TOKEN
from splitsecond.simulator.profile import PromptCacheSpec

MAX_PREFIXES = 100_000
"""Maximum number of stored prefixes; the least recently used are dropped."""
LOOK_BACK = 20
"""How many ends of text blocks before the last mark are looked up, as at Anthropic."""


class CacheLookup(msgspec.Struct, frozen=True):
    """The result of a lookup of one prompt.

    The first `read_tokens` of the prompt are in the cache. The `written_tokens` after them are stored because the
    client marked them; None in an automatic cache, which does not count them. `prefixes` are to be stored.
    """

    read_tokens: int
    written_tokens: int | None
    prefixes: tuple[bytes, ...]


class PromptCache:
    def __init__(self, spec: PromptCacheSpec, most: int = MAX_PREFIXES) -> None:
        self._spec = spec
        self._ttl_ns = round(spec.ttl_s * NS_PER_S)
        self._most = most
        self._used_ns: dict[bytes, int] = {}  # last use by prefix, oldest first

    def look_up(self, text: str, now_ns: int) -> CacheLookup:
        block = self._spec.block_tokens * CHARACTERS_PER_TOKEN
        first = -(-self._spec.from_tokens * CHARACTERS_PER_TOKEN // block) * block
        ends = list(range(first, len(text) + 1, block))
        prefixes = _hashes(text, ends)
        known = self._known(prefixes, now_ns)
        return CacheLookup(_tokens(ends[known]) if known >= 0 else 0, None, tuple(prefixes))

    def look_up_marked(self, text: str, marks: tuple[int, ...], now_ns: int) -> CacheLookup:
        marks = tuple(mark for mark in marks if _tokens(mark) >= self._spec.from_tokens)
        if not marks:
            return CacheLookup(0, 0, ())
        ends = sorted({*marks, *self._ends_before(text, marks[-1])})
        prefixes = _hashes(text, ends)
        known = self._known(prefixes, now_ns)
        read = _tokens(ends[known]) if known >= 0 else 0
        kept = tuple(prefixes[number] for number, end in enumerate(ends) if end in marks or number == known)
        return CacheLookup(read, max(_tokens(marks[-1]) - read, 0), kept)

    def store(self, prefixes: Sequence[bytes], now_ns: int) -> None:
        for prefix in reversed(prefixes):  # the longest ones are dropped first
            self._used_ns.pop(prefix, None)
            self._used_ns[prefix] = now_ns
        while len(self._used_ns) > self._most:
            del self._used_ns[next(iter(self._used_ns))]

    def _ends_before(self, text: str, mark: int) -> list[int]:
        ends: list[int] = []
        end = text.rfind("\n", 0, mark)
        while end >= 0 and len(ends) < LOOK_BACK and _tokens(end) >= self._spec.from_tokens:
            ends.append(end)
            end = text.rfind("\n", 0, end)
        return ends

    def _known(self, prefixes: list[bytes], now_ns: int) -> int:
        for number in range(len(prefixes) - 1, -1, -1):
            used_ns = self._used_ns.get(prefixes[number])
            if used_ns is not None and now_ns - used_ns <= self._ttl_ns:
                return number
        return -1


def _hashes(text: str, ends: list[int]) -> list[bytes]:
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
