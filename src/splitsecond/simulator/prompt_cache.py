"""A simulated prompt cache: it stores prefixes of prompts, so that a prompt with a known prefix is
processed faster.

A prefix is identified by a hash. An automatic cache (OpenAI, DeepSeek, Gemini, vLLM) stores
prefixes of whole blocks. A cache with marks (Anthropic) stores the prefixes that end at a mark of
the client. There an earlier prefix is found at each end of a text block that is not too far before
a mark, so a growing conversation is found again although its mark moves.

Each stored prefix holds only the tokens that it adds to the next shorter one, its parent. When the
cache is full, the least recently used prefixes are dropped. A use of a prefix is also one of all
shorter ones, so the longest are dropped first, and the parent of a stored prefix is always stored.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from splitsecond.core.clock import NS_PER_S
from splitsecond.simulator.content.tokens import CHARACTERS_PER_TOKEN
from splitsecond.simulator.profile import MAX_PREFIXES, PromptCacheSpec

DEFAULT_MAX_PREFIXES = 100_000
"""Maximum number of prefixes in a cache without a capacity."""
LOOK_BACK = 20
"""How many ends of text blocks before the last mark are looked up, as at Anthropic."""


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """A prefix of a prompt, `tokens` long, with the hash of its text."""

    hash: int
    tokens: int


class PromptPrefixes(msgspec.Struct, frozen=True):
    """The prefixes of one prompt that can be in a cache, the shortest first.

    `marked`: the numbers of those that the client marked; None for an automatic cache, which stores
    all of them.
    """

    prefixes: Sequence[Prefix]
    marked: frozenset[int] | None = None


class CacheLookup(msgspec.Struct, frozen=True):
    """The result of a lookup of one prompt.

    The first `read_tokens` of the prompt, the prefix `known`, are in the cache. The
    `written_tokens` after them are stored because the client marked them; None in an automatic
    cache, which does not count them. `prefixes` are to be stored, the shortest first.
    """

    read_tokens: int
    written_tokens: int | None
    prefixes: Sequence[Prefix]
    known: Prefix | None


class _Entry(msgspec.Struct, gc=False):
    """A stored prefix, with the tokens that it adds to its parent. `gc=False`: it refers to numbers
    only."""

    used_ns: int
    tokens: int
    parent: int | None


def automatic_prefixes(spec: PromptCacheSpec, text: str) -> PromptPrefixes:
    """Return the prefixes of a prompt in whole blocks. Takes linear time, as each hash continues
    the one before it."""
    block = spec.block_tokens * CHARACTERS_PER_TOKEN
    first = -(-spec.from_tokens * CHARACTERS_PER_TOKEN // block) * block
    prefixes: list[Prefix] = []
    begin = running = 0
    for end in range(first, len(text) + 1, block):
        running = hash((running, text[begin:end]))
        prefixes.append(Prefix(running, end // CHARACTERS_PER_TOKEN))
        begin = end
    return PromptPrefixes(prefixes)


def marked_prefixes(spec: PromptCacheSpec, text: str, marks: tuple[int, ...]) -> PromptPrefixes:
    """Return the prefixes of a prompt that end at `marks` (in characters) or shortly before the
    last one."""
    marks = tuple(mark for mark in marks if _tokens(mark) >= spec.from_tokens)
    if not marks:
        return PromptPrefixes((), frozenset())
    ends = sorted({*marks, *_ends_before(text, marks[-1], spec.from_tokens)})
    running = blake2b(digest_size=8)  # the same hash for the same text, wherever the other ends are
    prefixes: list[Prefix] = []
    begin = 0
    for end in ends:
        running.update(text[begin:end].encode())
        prefixes.append(Prefix(int.from_bytes(running.digest(), "big"), _tokens(end)))
        begin = end
    return PromptPrefixes(
        prefixes, frozenset(number for number, end in enumerate(ends) if end in marks)
    )


class PromptCache:
    """The prompt cache of one provider. The caller passes the monotonic time in ns, which must not
    go back."""

    def __init__(self, spec: PromptCacheSpec, most: int | None = None) -> None:
        default = DEFAULT_MAX_PREFIXES if spec.capacity_tokens is None else MAX_PREFIXES
        self._most = default if most is None else most
        self._capacity = spec.capacity_tokens
        self._ttl_ns = round(spec.ttl_s * NS_PER_S)
        self._entries: OrderedDict[int, _Entry] = OrderedDict()  # the least recently used first
        self.tokens = 0

    def look_up(self, prompt: PromptPrefixes, now_ns: int) -> CacheLookup:
        """Look up a prompt. Changes nothing."""
        prefixes, marked = prompt.prefixes, prompt.marked
        if marked is None:  # a stored prefix has all shorter ones, used as recently
            count = bisect_left(
                prefixes, True, key=lambda prefix: not self._is_stored(prefix, now_ns)
            )
            longest = prefixes[count - 1] if count else None
            return CacheLookup(longest.tokens if longest else 0, None, prefixes, longest)
        longest = next(
            (prefix for prefix in reversed(prefixes) if self._is_stored(prefix, now_ns)), None
        )
        read_tokens = longest.tokens if longest else 0
        to_store = [
            prefix
            for number, prefix in enumerate(prefixes)
            if number in marked or prefix is longest
        ]
        last = prefixes[max(marked)].tokens if marked else 0
        return CacheLookup(read_tokens, max(last - read_tokens, 0), to_store, longest)

    def use(self, lookup: CacheLookup) -> None:
        """Make the found part of a prompt the most recently used. When it expires does not
        change."""
        if lookup.known is not None:
            self._move_to_end(lookup.known)

    def store(self, prefixes: Sequence[Prefix], now_ns: int) -> int:
        """Store these prefixes, the shortest first. Return how many tokens were dropped because the
        cache was full.

        Expired tokens are dropped too, but not counted. Of a prompt longer than the capacity, the
        end is dropped.
        """
        before: Prefix | None = None
        ends: list[Prefix] = []  # more than one if a marked prefix was stored with another parent
        for prefix in prefixes:
            entry = self._entries.get(prefix.hash)
            if entry is None:
                added = prefix.tokens - (before.tokens if before else 0)
                entry = self._entries[prefix.hash] = _Entry(
                    now_ns, added, before.hash if before else None
                )
                self.tokens += added
            else:
                entry.used_ns = now_ns
            if before is not None and entry.parent != before.hash:
                ends.append(before)
            before = prefix
        for end in reversed([*ends, *prefixes[-1:]]):
            self._move_to_end(end)
        while self._entries and now_ns - next(iter(self._entries.values())).used_ns > self._ttl_ns:
            self._drop()
        held = self.tokens
        while len(self._entries) > self._most or (
            self._capacity is not None and self.tokens > self._capacity
        ):
            self._drop()
        return held - self.tokens

    def _move_to_end(self, prefix: Prefix) -> None:
        """Make a stored prefix and all shorter ones the most recently used, the shortest last."""
        key: int | None = prefix.hash
        while key is not None:
            self._entries.move_to_end(key)
            key = self._entries[key].parent

    def _drop(self) -> None:
        _, entry = self._entries.popitem(last=False)
        self.tokens -= entry.tokens

    def _is_stored(self, prefix: Prefix, now_ns: int) -> bool:
        entry = self._entries.get(prefix.hash)
        return entry is not None and now_ns - entry.used_ns <= self._ttl_ns


def _ends_before(text: str, mark: int, from_tokens: int) -> list[int]:
    """Return the ends of the last text blocks before `mark` that are long enough; line feeds join
    the blocks."""
    ends: list[int] = []
    end = text.rfind("\n", 0, mark)
    while end >= 0 and len(ends) < LOOK_BACK and _tokens(end) >= from_tokens:
        ends.append(end)
        end = text.rfind("\n", 0, end)
    return ends


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
