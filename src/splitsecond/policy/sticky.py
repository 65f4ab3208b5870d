"""`sticky(a, b, ..., ttl="10m")`: a conversation stays with one branch, where its beginning is in the prompt cache.

What it does. The same client with the same beginning is sent to the same branch. The beginning is the client's own
word for it (`prompt_cache_key`, else `user`), else the system prompt, the tools and the first user message; of a plain
prompt the first bytes. What has no beginning at all (embeddings) goes anywhere. A beginning that is not known gets its
branch by its hash alone (rendezvous hashing), so that all worker processes send it to the same one without a word, and
a branch more or less moves only its own share. Where it was answered is remembered for `ttl` after its last use.

When its branch is down, or at its rate limit, a conversation goes to the next one by hash, and comes back as soon as it
can within `ttl`; after that it stays where it went.

What it costs. The branches are loaded as conversations fall, evenly only if there are many. Some memory: the latest
10,000 conversations.

When it helps. With long prompts that begin alike: agents, chats, questions to one document. A cached token costs a
tenth to a half of a new one, and is read many times faster.

When it hurts. With short or single prompts there is nothing to gain, and a slow branch keeps its conversations.

Where it stands. Inside `fallback`; around `limit` and `retry`. Inside it `fastest` would move the conversation again.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond import clock
from splitsecond.policy.choosing.branch import Branch, Choice, ask_in_turn, branches, in_order
from splitsecond.policy.choosing.prompt_size import raw_bytes
from splitsecond.policy.settings import duration, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service

REMEMBERED = 10_000
BEGINNING_BYTES = 1024
"""Of a plain prompt. What providers cache begins at about as many tokens, but then the prompts would differ already."""
_OWN_WORDS = ("prompt_cache_key", "user")


def sticky(
    *services: Service,
    ttl: str = "10m",
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
) -> Service:
    """The service that keeps each conversation at one of `services`, until `ttl` after its last call."""
    return Sticky(branches(services, names), ttl, standing or Standing())


class Sticky:
    """See `sticky`."""

    def __init__(self, among: Sequence[Branch], ttl: str, standing: Standing) -> None:
        self._branches = among
        self._ttl, self._ttl_ns = ttl, duration("ttl", ttl)
        self._standing = standing
        self._salts = [f"{place} {branch.label}".encode() for place, branch in enumerate(among)]
        self._homes: OrderedDict[bytes, tuple[Branch, int]] = OrderedDict()
        """Where a conversation is, and until when (ns) that is remembered; the one used last at the end."""

    def __repr__(self) -> str:
        return written("sticky", [branch.service for branch in self._branches], ttl=self._ttl)

    async def __call__(self, call: Call) -> Reply:
        key = conversation(call)
        if key is None:
            return await ask_in_turn(call, self._choices(_digest(call.id.encode()), None))
        home, until_ns = self._homes.get(key, (None, 0))
        if clock.now_ns() >= until_ns:
            home = None
        asked: list[Branch] = []
        reply = await ask_in_turn(call, _noted(self._choices(key, home), asked))
        if home is None or home is asked[-1]:
            self._remember(key, asked[-1])
        return reply

    def _choices(self, key: bytes, home: Branch | None) -> Iterator[Choice]:
        """Its home, if that is well; then by hash."""
        by_hash = [branch for _, branch in sorted(zip(self._ranks(key), self._branches, strict=True), key=_rank)]
        well = [branch for branch in by_hash if branch.available(self._standing)]
        others = well or by_hash
        if home in well:
            yield home, f"sticky: {home.label}, where the conversation is"
            others = [branch for branch in well if branch is not home]
        yield from in_order(others, "sticky" if well else "sticky, none is well")

    def _ranks(self, key: bytes) -> Iterator[bytes]:
        return (_digest(key + salt) for salt in self._salts)

    def _remember(self, key: bytes, branch: Branch) -> None:
        self._homes[key] = branch, clock.now_ns() + self._ttl_ns
        self._homes.move_to_end(key)
        if len(self._homes) > REMEMBERED:
            self._homes.popitem(last=False)


class _Message(Struct):
    role: str = ""
    content: Raw = Raw()


_messages = msgspec.json.Decoder(list[_Message]).decode


def conversation(call: Call) -> bytes | None:
    """What calls of one conversation have in common, hashed. None: there is nothing to tell it by."""
    body = call.body
    for name in _OWN_WORDS:
        if name in body:
            return _digest(_joined(call.client, name, raw_bytes(body[name])))
    parts: list[bytes | memoryview] = [
        raw_bytes(body[name]) for name in ("system", "instructions", "tools") if name in body
    ]
    begun = False
    for name in ("messages", "input", "prompt"):
        if name in body:
            parts.extend(_beginning(raw_bytes(body[name])))
            begun = call.operation != "embeddings"
    return _digest(_joined(call.client, *parts)) if begun else None


def _beginning(data: bytes | memoryview) -> list[bytes | memoryview]:
    """Of messages, all that stands before the first user's and that; of text, the first bytes."""
    try:
        messages = _messages(data)
    except (msgspec.DecodeError, RecursionError):  # it is text, or what only the provider understands
        return [data[:BEGINNING_BYTES]]
    parts: list[bytes | memoryview] = []
    for message in messages:
        parts.append(memoryview(message.content))
        if message.role == "user":
            break
    return parts


def _joined(*parts: Any) -> bytes:
    return b"\0".join(part.encode() if isinstance(part, str) else part for part in parts)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _rank(ranked: tuple[bytes, Branch]) -> bytes:
    return ranked[0]


def _noted(choices: Iterator[Choice], asked: list[Branch]) -> Iterator[Choice]:
    """`choices`, each of which is put into `asked` when it is."""
    for choice in choices:
        asked.append(choice[0])
        yield choice
