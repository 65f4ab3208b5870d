"""The sessions of clients: which one a call belongs to, and what of its prompt the session has sent
before.

A session is what its client calls so (`routing/requests/session_names`), else the calls with the
same beginning of a conversation. Its id is a hash of this and of the client's key, keyed with the
secret of the installation: a client cannot name the session of another one, and the same text has
another hash elsewhere.

What is remembered of an agent of a session is in memory that all workers share, because the next
call may reach any of them: when its latest answer ended and which target gave it, how many calls
there were, and hashes of its latest prompts. A prompt has borders: those of equal blocks in the
first one, and then the ends of the turns that continued it. A hash at each border covers the prompt
up to there, so two prompts are compared without their text. The entry of a session also has which
targets have how much of it in their caches, which each worker adds to what it knows itself
(`routing/targets/conversations`). A new entry replaces the one of its neighbours that was used
longest ago. There is no lock: a call of the same agent at another worker in the same microsecond
may not be counted, and a half-written prompt is not recognised.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct

from msgspec import Raw
from msgspec.json import encode

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import Call, Spoken
from splitsecond.core.session import CONVERSATION, CallSession
from splitsecond.core.upstream.prompt_size import text_tokens
from splitsecond.core.wire.stored_ids import CONTINUES
from splitsecond.gateway.records.shared_memory import create_memory, mapped
from splitsecond.routing.machinery.conversation import (
    MARK,
    first_messages,
    stripped,
    without_cache_marks,
)
from splitsecond.routing.requests.session_names import session_name

MAX_AGENTS = 8192
"""Agents that are remembered."""
WAYS = 8
"""Places in which an agent can be: that of its hash and those after it."""
MIN_BLOCK = 1024
"""Least bytes of a block."""
BORDERS = 24
"""The most borders that are remembered of a prompt. At more turns every second one is forgotten."""
PROMPTS = 4
"""The latest prompts of an agent that are remembered: clients send others between those of the
conversation, for the title of a session for instance."""
SECRET_BYTES = 32
_HASH = 8
CACHES = 16
"""Targets, or agents at a target, whose cached prompts are remembered of a session."""
_KEY = Struct("=Q")
_ENDED = Struct("=2Q")
"""When the latest answer ended, and its target."""
_BEGAN = Struct("=7Q8s")
"""When the agent was used, its turns, when the latest of these began, the tokens of its prompt,
those that the provider has stored, and the borders, the size and the hash of the prompt."""
_AGENT = Struct("=Q2Q7Q8s")  # the hash of the agent, and both
_PROMPT_HEAD = Struct("=2Q8s")
_BORDER = Struct("=Q8s")
_PROMPT = _PROMPT_HEAD.size + BORDERS * _BORDER.size
# since when, 0 for an unused place; the target; the agent; the tokens
_CACHE = Struct("=4Q")
_WHERE = Struct("=2Q")
"""The target and the agent, after the time."""
_SAVED = Struct("=Q8sq")
MAX_CLOCK_STEP_NS = 60 * NS_PER_S
"""How far the wall clock may be corrected between two starts."""
_ENDED_AT = _KEY.size
_BEGAN_AT = _ENDED_AT + _ENDED.size
_PROMPTS_AT = _AGENT.size - _PROMPT_HEAD.size
_BORDERS_AT = _PROMPTS_AT + _PROMPT_HEAD.size
_BORDER_PLACES = [_BORDERS_AT + number * _BORDER.size for number in range(BORDERS)]
_CACHES_AT = _PROMPTS_AT + PROMPTS * _PROMPT
_WIDTH = _CACHES_AT + CACHES * _CACHE.size
_TABLE = MAX_AGENTS * _WIDTH
_SIZE = SECRET_BYTES + _TABLE
_CONTINUING = frozenset(CONTINUES)
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
        data = mapped(memory, _SIZE)
        if memory is None:
            data[:SECRET_BYTES] = secrets.token_bytes(SECRET_BYTES)
        self._keyed = blake2b(key=data[:SECRET_BYTES], digest_size=_HASH)
        self._table = data[SECRET_BYTES:]

    @staticmethod
    def create(secret: bytes) -> int:
        memory = create_memory(_SIZE)
        mapped(memory, _SIZE)[:SECRET_BYTES] = secret
        return memory

    def saved(self) -> bytes:
        """Return the agents of the table, for `restore`."""
        entries = [
            _KEY.pack(at) + self._table[at : at + _WIDTH]
            for at in range(0, _TABLE, _WIDTH)
            if _KEY.unpack_from(self._table, at)[0]
        ]
        return b"".join([self._saved_head(), *entries])

    def restore(self, data: bytes) -> None:
        """Add the agents of a saved table. Ignore those of another installation, another version or
        an earlier boot of this machine, whose clock began again."""
        head = self._saved_head()
        before, now = (
            _SAVED.unpack_from(each) if len(each) >= _SAVED.size else () for each in (data, head)
        )
        if before[:-1] != now[:-1] or abs(before[-1] - now[-1]) > MAX_CLOCK_STEP_NS:
            return
        entry = Struct(f"=Q{_WIDTH}s")
        whole = (len(data) - _SAVED.size) // entry.size * entry.size
        for at, agent in entry.iter_unpack(data[_SAVED.size : _SAVED.size + whole]):
            if at in range(0, _TABLE, _WIDTH):
                self._table[at : at + _WIDTH] = agent

    def _saved_head(self) -> bytes:
        """Return what shows that a saved table fits: the size of an entry, a hash of the secret,
        and the wall clock's offset."""
        return _SAVED.pack(_WIDTH, self._keyed.digest(), clock.wall_offset_ns())

    def began(
        self, headers: Mapping[bytes, bytes], call: Call, continued: str = ""
    ) -> CallSession | None:
        """Return where in its session `call` is, and remember its prompt. None: it has no prompt of
        a conversation. Note the session's home in the call's notes.

        `continued`: the session of the stored response that it continues, "" for none. Takes time
        in proportion to the prompt; a thread may call it.
        """
        parts, prompt = prompt_parts(call)
        names = session_name(headers, call.body)
        agent = parent = ""
        if names is not None:
            source, session = names.source, self._hash(call.client.encode(), names.name)
            if names.agent:
                salt = bytes.fromhex(session)
                agent = self._hash(salt, names.agent)
                parent = self._hash(salt, names.parent) if names.parent else ""
        elif continued:
            source, session = "previous_response_id", continued
        elif parts:
            source, messages = CONVERSATION, parts.pop()
            running = self._keyed.copy()
            running.update(b"\0".join([call.client.encode(), *parts, *first_messages(messages)]))
            session = running.hexdigest()
        else:
            return None
        table, key, start_ns = self._table, int(agent or session, 16), call.start_ns
        at = key % MAX_AGENTS * _WIDTH
        entry = _AGENT.unpack_from(table, at)
        if entry[0] != key:
            at = self._entry(key)
            entry = _AGENT.unpack_from(table, at)
        call.notes.session_entry = at, key
        _, ended_ns, call.notes.home, _, turn, began_ns, tokens, stored, borders, size, digest = (
            entry
        )
        if _CONTINUING.isdisjoint(call.body):
            running = self._keyed.copy()
            running.update(prompt[:size])
            if size and running.digest() == digest:  # as with nearly all turns
                reusable, new = tokens, 0
                if continuation := prompt[size:]:
                    new = text_tokens(continuation)
                    if borders == BORDERS:
                        borders = self._forget_half(at)
                    _BORDER.pack_into(table, at + _BORDER_PLACES[borders], size, digest)
                    borders += 1
                    running.update(continuation)
                    size, digest = len(prompt), running.digest()
            else:
                new, reusable = self._compare(at, prompt)
                borders, size, digest = _PROMPT_HEAD.unpack_from(table, at + _PROMPTS_AT)
            tokens = stored = new + reusable
        else:  # the provider adds what it has stored
            new, reusable = text_tokens(prompt), stored
            stored += new
        if not turn:
            idle_ns = None
        elif ended_ns < began_ns:  # also while a client, which has its answer, is quicker than us
            idle_ns = 0
        else:
            idle_ns = max(start_ns - ended_ns, 0)
        turn += 1
        began_ns = max(start_ns, began_ns)
        _BEGAN.pack_into(
            table, at + _BEGAN_AT, start_ns, turn, began_ns, tokens, stored, borders, size, digest
        )
        return CallSession(
            id=session,
            source=source,
            agent=agent,
            parent=parent,
            turn=turn,
            new_tokens=new,
            reusable_tokens=reusable,
            idle_ns=idle_ns,
        )

    def ended(self, entry: tuple[int, int], end_ns: int, target: str) -> None:
        """Note when an answer to the agent of an `entry` that `began` noted ended, and the target
        that gave it; "": none did."""
        at, key = entry
        if _KEY.unpack_from(self._table, at)[0] != key:  # another agent has its place now
            at = self._entry(key)
        if target:
            _ENDED.pack_into(self._table, at + _ENDED_AT, end_ns, target_hash(target))
        else:
            _KEY.pack_into(self._table, at + _ENDED_AT, end_ns)

    def note_cached(self, session: CallSession, target: str, tokens: int, at_ns: int) -> None:
        """Note that since `at_ns` so many `tokens` of the agent of `session` are in the cache of
        `target`."""
        table, entry = self._table, self._entry(int(session.id, 16))
        _KEY.pack_into(table, entry + _BEGAN_AT, at_ns)
        where = target_hash(target), int(session.agent or "0", 16)
        places = range(entry + _CACHES_AT, entry + _WIDTH, _CACHE.size)
        for place in places:
            if _WHERE.unpack_from(table, place + _KEY.size) == where:
                _KEY.pack_into(table, place + _CACHE.size - _KEY.size, tokens)
                _KEY.pack_into(table, place, at_ns)
                return
        place = min(places, key=lambda at: _KEY.unpack_from(table, at))
        _KEY.pack_into(table, place, 0)  # not to be read before all of it is there
        _CACHE.pack_into(table, place, 0, *where, tokens)
        _KEY.pack_into(table, place, at_ns)

    def cached(
        self, session: CallSession, targets: Iterable[str]
    ) -> Iterator[tuple[str, str, int, int]]:
        """Yield what all workers noted about `targets`: the target, the agent, its tokens there,
        and since when."""
        entry = self._entry(int(session.id, 16))
        names = {target_hash(name): name for name in targets}
        for at_ns, target, agent, tokens in _CACHE.iter_unpack(
            self._table[entry + _CACHES_AT : entry + _WIDTH]
        ):
            if not at_ns:  # those after it are free, too
                break
            if target in names:
                yield names[target], f"{agent:016x}" if agent else "", tokens, at_ns

    def _hash(self, *parts: bytes) -> str:
        running = self._keyed.copy()
        running.update(b"\0".join(parts))
        return running.hexdigest()

    def _entry(self, key: int) -> int:
        """Return the place of an agent's entry, which is new if there was none."""
        table, at = self._table, key % MAX_AGENTS * _WIDTH
        if _KEY.unpack_from(table, at)[0] == key:
            return at
        places = [(at + way * _WIDTH) % _TABLE for way in range(WAYS)]
        for place in places:
            if _KEY.unpack_from(table, place)[0] == key:
                return place
        oldest = min(places, key=lambda place: _KEY.unpack_from(table, place + _BEGAN_AT))
        table[oldest : oldest + _WIDTH] = bytes(_WIDTH)
        _KEY.pack_into(table, oldest, key)
        return oldest

    def _forget_half(self, entry: int) -> int:
        """Forget every second border of the agent's latest prompt. Return how many are left."""
        begin = entry + _BORDERS_AT
        end = begin + BORDERS * _BORDER.size
        every = list(_BORDER.iter_unpack(self._table[begin:end]))
        left = _packed(every[1::2])
        self._table[begin : begin + len(left)] = left
        return BORDERS // 2

    def _compare(self, entry: int, prompt: memoryview) -> tuple[int, int]:
        """Return how many tokens of `prompt` are new, and with how many one of the agent's latest
        prompts begins. Remember the prompt."""
        begin, size = entry + _PROMPTS_AT, len(prompt)
        stored = self._table[begin : begin + PROMPTS * _PROMPT].tobytes()
        prompts = [stored[at : at + _PROMPT] for at in range(0, len(stored), _PROMPT)]
        ends = [_ends(each) for each in prompts]
        block = max(-(-size // (BORDERS + 1)), MIN_BLOCK)
        blocks = range(block, size, block)
        hashes = self._hashes(prompt, {size, *blocks, *(end for each in ends for end in each)})
        common = [
            max((end for end in each if hashes.get(end) == each[end]), default=0) for each in ends
        ]
        own = _PROMPT_HEAD.pack(len(blocks), size, hashes[size])
        own += _packed((border, hashes[border]) for border in blocks)
        other_prompts = [
            one
            for one, same, each in zip(prompts, common, ends, strict=True)
            if each and 2 * same <= max(each)
        ]
        now = b"".join([own.ljust(_PROMPT, b"\0"), *other_prompts]).ljust(len(stored), b"\0")
        self._table[begin : begin + len(stored)] = now[: len(stored)]
        tokens = text_tokens(prompt)
        reusable = tokens * max(common) // max(size, 1)
        return tokens - reusable, reusable

    def _hashes(self, prompt: memoryview, ends: Iterable[int]) -> dict[int, bytes]:
        """Return the hash of the prompt up to each of `ends` that is within it."""
        running, done = self._keyed.copy(), 0
        hashes: dict[int, bytes] = {}
        for end in sorted(each for each in ends if each <= len(prompt)):
            running.update(prompt[done:end])
            hashes[end] = running.digest()
            done = end
        return hashes


@lru_cache(maxsize=256)
def target_hash(name: str) -> int:
    """Return what stands for a target in the memory of all workers."""
    return int.from_bytes(blake2b(name.encode(), digest_size=_HASH).digest(), "big") | 1


def prompt_parts(call: Call) -> tuple[list[bytes | Raw], memoryview]:
    """Return the parts of the prompt, the messages last, and all of it as it is compared with
    others; both without marks for caches.

    It holds at most two copies of a long prompt at a time: with a third one, the allocator returns
    its memory to the system after each call, and getting it again takes longer than all the rest.
    """
    body = call.body
    parts = list(map(body.__getitem__, filter(body.__contains__, _FIELDS[call.api_format])))
    try:
        prompt = b"\0".join(parts)
    except TypeError:  # a translated request has other values
        parts = list(map(encode, parts))
        prompt = b"\0".join(parts)
    if MARK not in prompt:
        return parts, memoryview(prompt.rstrip(_END))
    del prompt
    parts = [without_cache_marks(bytes(each)) for each in parts]
    prompt = b"\0".join(parts)
    return parts, memoryview(prompt)[: stripped(prompt, 0, len(prompt), _END)]


def _ends(prompt: bytes) -> dict[int, bytes]:
    """Return the hash of a remembered prompt up to each of its borders, and of all of it."""
    borders, size, digest = _PROMPT_HEAD.unpack_from(prompt)
    end = _PROMPT_HEAD.size + min(borders, BORDERS) * _BORDER.size
    hashes = dict(_BORDER.iter_unpack(prompt[_PROMPT_HEAD.size : end]))
    return {**hashes, size: digest} if size else {}


def _packed(borders: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join([_BORDER.pack(*each) for each in borders])
