"""A session as it is sent: the requests of its conversations, each with its place and with what is
new in it."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from math import sqrt
from random import Random
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.workload.conversation import Conversation, answer_message
from splitsecond.benchmark.workload.prompt_files import LENGTH_FIELDS
from splitsecond.benchmark.workload.session_texts import BYTES_PER_TOKEN
from splitsecond.benchmark.workload.sessions import Branch, Session, Turn
from splitsecond.benchmark.workload.words import NONCE_WORDS, Filler, picked
from splitsecond.benchmark.workload.workload import Workload, begins_with
from splitsecond.core.observation import Observation, SessionTurn

MAX_NAME = 200
"""Most characters of the name of a session."""
GOLDEN = (sqrt(5) - 1) / 2
"""The multiples of this number, without their whole parts, are spread evenly, however many there
are."""
POOL_WORDS = 1 << 15
"""Words of the filler, which begins again after them."""


class SessionPrompts:
    """Makes the players of the sessions of one block of a condition."""

    def __init__(self, workload: Workload, condition: str, round_number: int) -> None:
        if workload.sessions is None:
            raise ValueError("the workload has no sessions")
        self.workload = workload
        self.sessions = workload.sessions
        self._condition = condition
        self._round = round_number
        self._filler = Filler(workload.seed, POOL_WORDS)

    def random(self, number: int) -> Random:
        """Return what decides about session `number` of the block: the same for all targets and
        loads."""
        return Random(f"{self.workload.seed}/session {self._round}.{number}")

    def in_progress(self, block: RequestBlock) -> list[tuple[Session, int]]:
        """Return what each slot is at when the block begins: the same for all targets, and other
        for each slice."""
        slice_number = block.first if block.stride > 1 else 0
        at = (block.round + slice_number) * GOLDEN % 1
        return self.sessions.in_progress(self.random(-1 - slice_number), block.concurrency or 0, at)

    def player(self, session: Session, number: int) -> "Player":
        """Return the player of the main conversation. No other session of the block has its
        `number`."""
        name = f"{self._condition}-{self._round}.{number}"
        return Player(
            self, session, session.turns, name, knows_shared=number > 0 or self._round > 1
        )

    def conversation(self) -> Conversation:
        return Conversation(self.workload.scale, self._filler)

    def filler(self, tokens: int) -> str:
        return self._filler.words(max(round(tokens / self.workload.scale.per_word), 1))

    def nonce(self, name: str) -> str:
        return picked(f"{self.workload.run}/{name}", NONCE_WORDS)

    def shared_nonce(self, session: Session) -> str:
        return self.nonce(f"{self._condition}/{session.shared_prompt}")


class Player:
    """The requests of one conversation of a session, in order.

    For each turn take its `body` and its `place`, and then report its answer. `knows_shared`: the
    session's shared system prompt was sent before. `name` identifies the session in its run, and
    `key` anywhere.
    """

    def __init__(
        self,
        prompts: SessionPrompts,
        session: Session,
        turns: Sequence[Turn],
        name: str,
        *,
        branch: str = "",
        knows_shared: bool = True,
    ) -> None:
        self.name = name
        self.key = blake2b(f"{prompts.workload.run}/{name}".encode(), digest_size=12).hexdigest()
        self.turns = turns
        self._prompts = prompts
        self._session = session
        self._branch = branch
        self._knows_shared = knows_shared
        self._conversation = prompts.conversation()
        self._kept: dict[int, tuple[Conversation, bytes, int]] = {}
        """Conversations that later turns begin with, by the number of their last turn, with the
        answer to it."""
        self._needed = Counter(turn.follows for turn in turns if turn.follows)
        self._tools = b""
        self._answer = (b"", 0)
        self._answer_calls: list[dict[str, Any]] = []
        # tokens that the latest prompt shares with an earlier one, by the server's count if known
        self._shared = 0

    def branch(self, of: Branch) -> "Player":
        return Player(self._prompts, self._session, of.turns, self.name, branch=of.name)

    @property
    def call_prefix(self) -> str:
        return f"{self.name}.{self._branch}." if self._branch else f"{self.name}."

    def wait_ns(self, number: int) -> int:
        return self._prompts.sessions.wait_ns(self.turns[number - 1])

    def place(self, number: int, *, primes: bool = False) -> SessionTurn:
        """Return the place of turn `number`, after its `body` was made."""
        turn = self.turns[number - 1]
        reusable = turn.shared_tokens
        if primes or (number == 1 and not self._branch):
            reusable = self._session.shared_tokens if self._knows_shared else 0
        elif turn.messages:
            reusable = self._shared
        total = round(self._conversation.tokens) if turn.messages else turn.input_tokens
        return SessionTurn(
            session=f"{self.name}-{self._session.id}"[:MAX_NAME],
            branch=self._branch,
            turn=number,
            new_tokens=max(total - reusable, 0),
            reusable_tokens=reusable,
            wait_ns=self.wait_ns(number),
            primes=primes,
            last=number == len(self.turns) and not self._branch,
        )

    def skip(self, until: int) -> None:
        """Go to turn `until`, as if those before it had been sent and answered with recorded
        lengths."""
        for number in range(1, until):
            self._advance(number)
            self._take_recorded(number)

    def priming_body(self) -> dict[str, Any]:
        """Return the request that fills the cache with the prompt of the turn before."""
        return self._body(1)

    def body(self, number: int) -> dict[str, Any]:
        self._advance(number)
        return self._body(
            self.turns[number - 1].output_tokens or self._prompts.workload.output_tokens
        )

    def primed(self, counts: Observation | None) -> None:
        if counts is not None and counts.input_tokens:
            self._conversation.note_count(counts.input_tokens)

    def answered(
        self, number: int, text: str, calls: Sequence[dict[str, Any]], counts: Observation | None
    ) -> None:
        """Take the answer to turn `number`, with what the server counted."""
        self.primed(counts)
        if self._prompts.sessions.answers == "recorded":
            self._take_recorded(number)
            return
        tokens = len(text) // BYTES_PER_TOKEN
        if counts is not None and counts.output_tokens is not None:
            tokens = counts.output_tokens - (counts.reasoning_tokens or 0)
        self._answer_calls = list(calls)
        self._take_answer(number, (answer_message(text, calls), tokens))

    def _body(self, output_tokens: int | None) -> dict[str, Any]:
        workload = self._prompts.workload
        body: dict[str, Any] = {"messages": self._conversation.messages()}
        if self._session.tools:
            self._tools = self._tools or self._marked_tools()
            body["tools"] = Raw(self._tools)
        body.update(workload.extra)
        if output_tokens is not None and not any(field in body for field in LENGTH_FIELDS):
            body["max_tokens"] = output_tokens
        return body

    def _advance(self, number: int) -> None:
        turn = self.turns[number - 1]
        if number == 1:
            self._begin(turn)
            return
        base = turn.follows or number - 1
        if base != number - 1:
            self._needed[base] -= 1
            conversation, answer, tokens = self._kept[base]
            self._conversation = (
                conversation.copy() if self._needed[base] else self._kept.pop(base)[0]
            )
            self._answer = answer, tokens
        conversation = self._conversation
        self._shared = round(conversation.tokens)
        if turn.messages:
            self._add_answer()
            self._add_texts(self._texts(turn))
            return
        if turn.cut:
            conversation.cut(turn.shared_tokens)
        if conversation.wants_answer:
            self._add_answer()
        nonce = self._nonce(number) if turn.cut else ""
        conversation.fill("user", nonce, turn.input_tokens)

    def _begin(self, turn: Turn) -> None:
        session, nonce = self._session, self._nonce(0)
        shared = session.shared_tokens if not self._branch else 0
        if turn.messages:
            first, *others = msgspec.json.decode(f"[{turn.messages}]")
            if shared and first["role"] in ("system", "developer"):
                first = begins_with(f"{self._prompts.shared_nonce(session)}.\n", first)
                others[:1] = [begins_with(f"{nonce}.\n", each) for each in others[:1]]
            else:
                first = begins_with(f"{nonce}.\n", first)
            self._add_texts([first, *others])
            return
        if shared:
            self._conversation.fill("system", self._prompts.shared_nonce(session), shared)
        self._conversation.fill("user", nonce, turn.input_tokens)

    def _texts(self, turn: Turn) -> list[dict[str, Any]]:
        """Return the new messages of a turn; results of tools belong to the calls in the answer
        that the server gave.

        An answer without a call is followed by a message of the user.
        """
        messages: list[dict[str, Any]] = msgspec.json.decode(f"[{turn.messages}]")
        if self._prompts.sessions.answers == "recorded":
            return messages
        calls, self._answer_calls = self._answer_calls, []
        results = [each for each in messages if each["role"] == "tool"]
        others = [each for each in messages if each["role"] != "tool"]
        if not calls:
            return [
                {"role": "user", "content": each.get("content") or ""} for each in results
            ] + others
        answered = [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": (each.get("content") or "") if each else "done",
            }
            for call, each in zip(calls, [*results, *[None] * len(calls)], strict=False)
        ]
        return answered + others

    def _add_texts(self, messages: Sequence[dict[str, Any]]) -> None:
        conversation = self._conversation
        for message in messages:
            data = msgspec.json.encode(message)
            conversation.add(data, len(data) / BYTES_PER_TOKEN)

    def _add_answer(self) -> None:
        message, tokens = self._answer
        if message:
            self._conversation.add(message, tokens)

    def _take_answer(self, number: int, answer: tuple[bytes, int]) -> None:
        self._answer = answer
        if self._needed[number]:
            self._kept[number] = (self._conversation.copy(), *answer)

    def _take_recorded(self, number: int) -> None:
        """Take the recorded answer to a turn, or filler of its length."""
        turn = self.turns[number - 1]
        if turn.answer:
            self._answer_calls = msgspec.json.decode(turn.answer).get("tool_calls") or []
            self._take_answer(number, (turn.answer.encode(), turn.output_tokens))
            return
        text = self._prompts.filler(turn.output_tokens)
        self._take_answer(number, (answer_message(text), turn.output_tokens))

    def _marked_tools(self) -> bytes:
        """Return the tools; the first begins its description with the nonce, because servers put
        tools first."""
        tools = msgspec.json.decode(self._session.tools)
        session = self._session
        nonce = self._prompts.shared_nonce(session) if session.shared_tokens else self._nonce(0)
        function = tools[0].get("function", tools[0])
        function["description"] = f"{nonce}.\n{function.get('description') or ''}"
        return msgspec.json.encode(tools)

    def _nonce(self, number: int) -> str:
        return self._prompts.nonce(f"{self.name}/{self._branch}/{number}")
