"""The messages of a conversation, built by appending: each prompt begins with exactly the bytes of
an earlier one.

The messages are one growing JSON array, so a turn costs the copying of what is new, and of the
request itself. Lengths in tokens follow what the server reports: the filler of a turn has the
length that is missing to the planned prompt, so errors do not add up. Texts of a recorded session
are sent as they are.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.benchmark.workload.traced_prompts import INSTRUCTION, PromptScale
from splitsecond.benchmark.workload.words import Filler

MORE = "Go on:"
"""Begins a message that is too short for the instruction."""
NO_TEXT = "(no text)"
"""Takes the place of an answer without text, which some providers refuse: a model may only have
reasoned."""
_STEP = 61
"""Words in the pool between the beginnings of the filler of two messages, so that they differ."""
_WORDS_OF = {text: len(text.split()) for text in (INSTRUCTION, MORE)}
_ANSWER, _CONTENT = b'{"role":"assistant"', b'"content":"'
_encode = msgspec.json.encode


class Conversation:
    """The messages of one conversation.

    `tokens`: the length of the prompt, by the server's last count and the scale of words since
    then.
    """

    def __init__(self, scale: PromptScale, filler: Filler) -> None:
        self.tokens = 0.0
        self._scale = scale
        self._filler = filler
        self._counted = False
        self._surplus = 0.0
        self._text = bytearray(b"[")
        self._ends: list[tuple[float, int]] = [(0.0, 1)]
        """The tokens and bytes at the end of each message, after the beginning of the array."""

    def messages(self) -> Raw:
        """Return all messages as the field of a request, without a copy. It is valid until the next
        change."""
        self._open()
        self._text += b"]"
        return Raw(memoryview(self._text))

    def copy(self) -> "Conversation":
        other = Conversation(self._scale, self._filler)
        other.tokens, other._text, other._ends = (
            self.tokens,
            bytearray(self._text),
            list(self._ends),
        )
        other._counted, other._surplus = self._counted, self._surplus
        return other

    def note_count(self, tokens: int) -> None:
        """Take the server's count of the prompt that was sent.

        What a turn has beside its words, such as the template of its messages, is expected of the
        next turn, too.
        """
        if self._counted:
            self._surplus = tokens - self.tokens
        self._counted = True
        self.tokens = float(tokens)
        self._ends[-1] = (self.tokens, self._ends[-1][1])

    def add(self, message: bytes, tokens: float) -> None:
        self._open()
        if len(self._text) > 1:
            self._text += b","
        self._text += message
        self.tokens += tokens
        self._ends.append((self.tokens, len(self._text)))

    def fill(self, role: str, nonce: str, until: float) -> None:
        """Append a message of filler, up to a prompt of `until` tokens. `nonce`: its first words,
        or ""."""
        fixed = self._scale.fixed if self.tokens == 0 else 0.0
        words = max(round((until - self.tokens - fixed - self._surplus) / self._scale.per_word), 1)
        self.add(_message(role, self._words(nonce, words)), fixed + words * self._scale.per_word)

    def cut(self, tokens: float) -> None:
        """Keep only about the first `tokens`, up to the end of a word."""
        self._open()
        at = bisect_right(self._ends, (tokens, len(self._text) + 1))
        if at == len(self._ends):
            return
        (begin_tokens, begin), (end_tokens, end) = self._ends[at - 1], self._ends[at]
        del self._ends[at:]
        piece = _cut(
            bytes(self._text[begin:end]), (tokens - begin_tokens) / (end_tokens - begin_tokens)
        )
        del self._text[begin:]
        self.tokens = begin_tokens
        if piece:
            self._text += piece
            self.tokens = tokens
            self._ends.append((tokens, len(self._text)))

    @property
    def wants_answer(self) -> bool:
        """Whether the last message is one that an answer follows."""
        begin = self._ends[-2][1] if len(self._ends) > 1 else 0
        answered = self._text.startswith(_ANSWER, begin) or self._text.startswith(
            b"," + _ANSWER, begin
        )
        return len(self._ends) > 1 and not answered

    def _words(self, nonce: str, count: int) -> str:
        parts = [nonce] if nonce else []
        left = count - len(nonce.split())
        for opening in (INSTRUCTION, MORE):
            if left >= _WORDS_OF[opening]:
                parts.append(opening)
                left -= _WORDS_OF[opening]
                break
        if left > 0:
            parts.append(self._filler.words(left, _STEP * len(self._ends)))
        return " ".join(parts)

    def _open(self) -> None:
        """Make the messages ready for more."""
        self._own()
        if self._text[-1:] == b"]":
            del self._text[-1:]

    def _own(self) -> None:
        """Take a copy of the messages if a request that is still held refers to them, such as a
        race's loser."""
        try:
            self._text.append(0)
            self._text.pop()
        except BufferError:
            self._text = bytearray(self._text)


def _message(role: str, content: str) -> bytes:
    return b'{"role":%b,"content":%b}' % (_encode(role), _encode(content))


def _cut(message: bytes, share: float) -> bytes:
    """Return a message with only a share of its text, up to the end of a word; b"" if no word is
    left."""
    mark = message.find(_CONTENT)
    content = mark + len(_CONTENT)
    space = message.rfind(b" ", content, content + max(round((len(message) - content) * share), 0))
    return b"" if mark < 0 or space < 0 else message[:space] + b'"}'


def answer_message(text: str, calls: Sequence[dict[str, Any]] = ()) -> bytes:
    """Return an answer as a message of the next request."""
    if not calls:
        return _message("assistant", text or NO_TEXT)
    return _encode({"role": "assistant", "content": text or None, "tool_calls": calls})
