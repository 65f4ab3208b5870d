"""The sessions of clients: which one a call belongs to, and what of its prompt the session has sent
before.

A session is what its client calls so (`routing/requests/session_names`), else the calls with the
same beginning of a conversation. Its id is a hash of this and of the client's key, keyed with the
secret of the installation: a client cannot name the session of another one, and the same text has
another hash elsewhere.

What is remembered of an agent of a session is in memory that all workers share, because the next
call may reach any of them: when its latest answer ended and which target gave it, how many calls
there were, and hashes of its latest prompts. A hash at each border of a block covers the prompt up
to there, so two prompts are compared without their text. The entry of a session also has which
targets have how much of it in their caches, which each worker adds to what it knows itself
(`routing/targets/conversations`). A new entry replaces the one of its neighbours that was used
longest ago. There is no lock: a call of the same agent at another worker in the same microsecond
may not be counted, and a half-written prompt is not recognised.
"""

import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from struct import Struct

from splitsecond.core.service import Call, Spoken
from splitsecond.core.session import CONVERSATION, CallSession
from splitsecond.core.upstream.prompt_size import raw_bytes, text_tokens
from splitsecond.core.wire.stored_ids import CONTINUES
from splitsecond.gateway.records.shared_memory import create_memory, mapped
from splitsecond.routing.machinery.conversation import first_messages, without_cache_marks
from splitsecond.routing.requests.session_names import session_name

MAX_AGENTS = 8192
"""Agents that are remembered."""
WAYS = 8
"""Places in which an agent can be: that of its hash and those after it."""
MIN_BLOCK = 1024
"""Least bytes of a block. A block has the least power of two with which a prompt has at most
`BLOCKS`."""
BLOCKS = 32
PROMPTS = 4
"""The latest prompts of an agent that are remembered: clients send others between those of the
conversation, for the title of a session for instance."""
SECRET_BYTES = 32
_HASH = 8
_PROMPT = _HASH * (2 + BLOCKS)  # its size, the hash of all of it, and that at each border
CACHES = 16
"""Targets, or agents at a target, whose cached prompts are remembered of a session."""
_KEY, _USED, _TURN, _BEGAN, _ENDED, _TOKENS, _STORED_TOKENS, _TARGET, _PROMPTS_AT = range(9)
_CACHES_AT = _PROMPTS_AT + PROMPTS * _PROMPT // _HASH
# since when, 0 for an unused place; the target; the agent; the tokens
_CACHED_AT_NS, _CACHE = 0, Struct("=4Q")
_CACHE_CELLS = _CACHE.size // _HASH
_WIDTH = _CACHES_AT + CACHES * _CACHE_CELLS
_CELLS = MAX_AGENTS * _WIDTH
_SIZE = SECRET_BYTES + _CELLS * _HASH
_CONTINUING = frozenset(CONTINUES)
_cell = partial(int.from_bytes, byteorder=sys.byteorder)
_END = b' \n]"'
"""What ends the messages. Without it, each turn begins with the whole turn before."""
_FIELDS: Mapping[Spoken, Sequence[str]] = {
    "openai": ("tools", "prompt", "messages"),
    "anthropic": ("tools", "system", "messages"),
    "responses": ("tools", "instructions", "input"),
}
"""The parts of a prompt in each API format, in the order in which providers cache them."""


class Sessions:
    """The table of all agents. `memory`: the descriptor that `create` returned; None: memory of
    this process, with a secret of its own."""

    def __init__(self, memory: int | None = None) -> None:
        self._bytes = mapped(memory, _SIZE)
        if memory is None:
            self._bytes[:SECRET_BYTES] = secrets.token_bytes(SECRET_BYTES)
        self._keyed = blake2b(key=self._bytes[:SECRET_BYTES], digest_size=_HASH)
        self._cells = self._bytes[SECRET_BYTES:].cast("Q")

    @staticmethod
    def create(secret: bytes) -> int:
        memory = create_memory(_SIZE)
        mapped(memory, _SIZE)[:SECRET_BYTES] = secret
        return memory

    def began(
        self, headers: Mapping[bytes, bytes], call: Call, continued: str = ""
    ) -> CallSession | None:
        """Return where in its session `call` is, and remember its prompt. None: it has no prompt of
        a conversation. Note the session's home in the call's notes.

        `continued`: the session of the stored response that it continues, "" for none. Takes time
        in proportion to the prompt; a thread may call it.
        """
        named, parts = session_name(headers, call.body), prompt_parts(call)
        agent = parent = 0
        if named is not None:
            source, session = named.source, self._hash(call.client.encode(), named.name)
            if named.agent:
                agent = self._hash(session.to_bytes(_HASH, "big"), named.agent)
                parent = (
                    self._hash(session.to_bytes(_HASH, "big"), named.parent) if named.parent else 0
                )
        elif continued:
            source, session = "previous_response_id", int(continued, 16)
        elif parts:
            source, session = (
                CONVERSATION,
                self._hash(call.client.encode(), *parts[:-1], *first_messages(parts[-1])),
            )
        else:
            return None
        cells, at = self._cells, self._entry(agent or session)
        start_ns = call.start_ns
        began_ns, ended_ns = cells[at + _BEGAN], cells[at + _ENDED]
        cells[at + _USED] = start_ns
        if start_ns > began_ns:
            cells[at + _BEGAN] = start_ns
        cells[at + _TURN] = turn = cells[at + _TURN] + 1
        call.notes.home = cells[at + _TARGET]
        prompt = b"\0".join(parts).rstrip(_END)
        if _CONTINUING.isdisjoint(call.body):
            before = cells[at + _PROMPTS_AT]
            if self._continues(at, prompt):
                new, reusable = text_tokens(memoryview(prompt)[before:]), cells[at + _TOKENS]
            else:
                new, reusable = self._compare(at, prompt)
            cells[at + _TOKENS] = cells[at + _STORED_TOKENS] = new + reusable
        else:  # the provider adds what it has stored
            new, reusable = text_tokens(prompt), cells[at + _STORED_TOKENS]
            cells[at + _STORED_TOKENS] = new + reusable
        if turn == 1:
            idle_ns = None
        elif ended_ns < began_ns:  # also while a client, which has its answer, is quicker than us
            idle_ns = 0
        else:
            idle_ns = max(start_ns - ended_ns, 0)
        return CallSession(
            id=f"{session:016x}",
            source=source,
            agent=f"{agent:016x}" if agent else "",
            parent=f"{parent:016x}" if parent else "",
            turn=turn,
            new_tokens=new,
            reusable_tokens=reusable,
            idle_ns=idle_ns,
        )

    def ended(self, session: CallSession, end_ns: int, target: str) -> None:
        """Note when an answer to the agent of `session` ended, and the target that gave it; "":
        none did."""
        cells, at = self._cells, self._entry(int(session.agent or session.id, 16))
        cells[at + _ENDED] = end_ns
        if target:
            cells[at + _TARGET] = target_hash(target)

    def note_cached(self, session: CallSession, target: str, tokens: int, at_ns: int) -> None:
        """Note that since `at_ns` so many `tokens` of the agent of `session` are in the cache of
        `target`."""
        cells, entry = self._cells, self._entry(int(session.id, 16))
        cells[entry + _USED] = at_ns
        where = target_hash(target), int(session.agent or "0", 16)
        places = range(entry + _CACHES_AT, entry + _WIDTH, _CACHE_CELLS)
        same = (at for at in places if (cells[at + 1], cells[at + 2]) == where)
        place = next(same, None) or min(places, key=lambda at: cells[at + _CACHED_AT_NS])
        cells[place + _CACHED_AT_NS] = 0  # not to be read before all of it is there
        cells[place + 1], cells[place + 2], cells[place + 3] = *where, tokens
        cells[place + _CACHED_AT_NS] = at_ns

    def cached(
        self, session: CallSession, targets: Iterable[str]
    ) -> Iterator[tuple[str, str, int, int]]:
        """Yield what all workers noted about `targets`: the target, the agent, its tokens there,
        and since when."""
        begin = SECRET_BYTES + (self._entry(int(session.id, 16)) + _CACHES_AT) * _HASH
        names = {target_hash(name): name for name in targets}
        for at_ns, target, agent, tokens in _CACHE.iter_unpack(
            self._bytes[begin : begin + CACHES * _CACHE.size]
        ):
            if at_ns and target in names:
                yield names[target], f"{agent:016x}" if agent else "", tokens, at_ns

    def _hash(self, *parts: bytes | memoryview) -> int:
        running = self._keyed.copy()
        running.update(b"\0".join(parts))
        return int.from_bytes(running.digest(), "big")

    def _entry(self, key: int) -> int:
        """Return the place of an agent's entry, which is new if there was none."""
        cells, at = self._cells, key % MAX_AGENTS * _WIDTH
        if cells[at] == key:
            return at
        places = [(at + way * _WIDTH) % _CELLS for way in range(WAYS)]
        for place in places:
            if cells[place] == key:
                return place
        oldest = min(places, key=lambda place: cells[place + _USED])
        begin = SECRET_BYTES + oldest * _HASH
        self._bytes[begin : begin + _WIDTH * _HASH] = bytes(_WIDTH * _HASH)
        cells[oldest] = key
        return oldest

    def _compare(self, entry: int, prompt: bytes) -> tuple[int, int]:
        """Return how many tokens of `prompt` are new, and with how many one of the agent's latest
        prompts begins. Remember the prompt."""
        tokens = text_tokens(prompt)
        reusable = tokens * self._sent_before(entry, prompt) // max(len(prompt), 1)
        return tokens - reusable, reusable

    def _continues(self, entry: int, prompt: bytes) -> bool:
        """Return whether `prompt` begins with the latest one of the agent, if there is one; then it
        takes its place.

        Nearly all prompts do, so this compares one hash, and adds those of what is new.
        """
        cells, at = self._cells, entry + _PROMPTS_AT
        size, done = len(prompt), cells[at]
        running, view = self._keyed.copy(), memoryview(prompt)
        if done:
            running.update(view[:done])
            if _cell(running.digest()) != cells[at + 1]:
                return False
            if done == size:
                return True
        block = _block(size)
        kept = (done - 1) // block if done else 0
        if kept and block > MIN_BLOCK and (wider := block // _block(done)) > 1:
            cells[at + 2 : at + 2 + kept] = cells[at + 1 + wider : at + 2 + wider * kept : wider]
        for place, border in enumerate(range((kept + 1) * block, size, block), at + 2 + kept):
            running.update(view[done:border])
            cells[place] = _cell(running.digest())
            done = border
        running.update(view[done:])
        cells[at + 1] = _cell(running.digest())
        cells[at] = size
        return True

    def _sent_before(self, entry: int, prompt: bytes) -> int:
        """Return how many bytes of `prompt` one of the agent's latest prompts begins with; remember
        the prompt."""
        begin, size = SECRET_BYTES + (entry + _PROMPTS_AT) * _HASH, len(prompt)
        stored = self._bytes[begin : begin + PROMPTS * _PROMPT].tobytes()
        known = [stored[at : at + _PROMPT] for at in range(0, len(stored), _PROMPT)]
        sizes = [int.from_bytes(each[:_HASH], sys.byteorder) for each in known]
        hashes = self._hashes(prompt, sizes)
        common = [_common(hashes, size, *each) for each in zip(known, sizes, strict=True)]
        kept = [
            each for each, same, own in zip(known, common, sizes, strict=True) if 2 * same <= own
        ]
        own = b"".join([hashes[border] for border in (size, *_borders(size))])
        new = (size.to_bytes(_HASH, sys.byteorder) + own).ljust(_PROMPT, b"\0")
        self._bytes[begin : begin + PROMPTS * _PROMPT] = b"".join([new, *kept, bytes(len(stored))])[
            : len(stored)
        ]
        return max(common)

    def _hashes(self, prompt: bytes, ends: Iterable[int]) -> dict[int, bytes]:
        """Return the hash of the prompt up to each border of its blocks, to each of `ends`, and of
        all of it."""
        size, running, view, done = len(prompt), self._keyed.copy(), memoryview(prompt), 0
        found: dict[int, bytes] = {}
        for border in sorted({size, *ends, *_borders(size)}):
            if border > size:
                break
            running.update(view[done:border])
            found[border] = running.digest()
            done = border
        return found


@lru_cache(maxsize=256)
def target_hash(name: str) -> int:
    """Return what stands for a target in the memory of all workers."""
    return int.from_bytes(blake2b(name.encode(), digest_size=_HASH).digest(), "big") | 1


def prompt_parts(call: Call) -> list[bytes]:
    """Return the parts of the prompt, the messages last, without marks for caches."""
    body = call.body
    return [
        without_cache_marks(bytes(raw_bytes(body[name])))
        for name in _FIELDS[call.api_format]
        if name in body
    ]


def _common(hashes: Mapping[int, bytes], size: int, known: bytes, known_size: int) -> int:
    """Return how many bytes a prompt with these `hashes` and a `known` one have in common, to a
    border of blocks."""
    if known_size and hashes.get(known_size) == known[_HASH : 2 * _HASH]:
        return known_size
    own = _block(known_size)
    step = max(own, _block(size))
    common = 0
    for border in range(step, min(size, known_size), step):
        at = (1 + border // own) * _HASH
        if hashes.get(border) != known[at : at + _HASH]:
            break
        common = border
    return common


def _borders(size: int) -> range:
    block = _block(size)
    return range(block, size, block)


def _block(size: int) -> int:
    return max(1 << ((size - 1) // BLOCKS).bit_length(), MIN_BLOCK)
