"""What the requests say: synthetic prompts of a wanted length, or prompts from a file.

A `Workload` is plain data that travels to the worker processes; a `Composer` makes request bodies from it.

Synthetic prompts are a system prompt and a user message, each an instruction followed by plain words. The words are
the same for all requests of a seed, so that all inputs have the same length; what differs is the nonce.

The nonce stands at the very start of each prompt, so that no part of it can be answered from a prefix cache that an
earlier request (of this run or another) has filled. It is made of words from the same list: seven words picked by a
hash of run and call, so that it is as many tokens each time.

Where the run is about such a cache, prompts are what profits from one: a long system prompt, and a short user message
that asks for something else each time, so that no cache of whole answers has anything to say. They are sent in two
ways that differ only in whose nonce it is: each request's own, or one that a whole condition shares. In the second way
all but the user message is the same, and its first request finds an empty cache, whatever earlier runs have sent.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.load.words import WORDS

SYSTEM = "You are a patient storyteller who never stops early. Keep these words in mind:"
USER = "Write a very long and detailed story, as long as you can. Use many of these words in it:"
QUESTION = "Write a very long and detailed story, as long as you can. Begin it with these words:"
NONCE_WORDS = 7
QUESTION_WORDS = 4
LENGTH_FIELDS = ("max_tokens", "max_completion_tokens")
OURS = ("model", "stream", "stream_options")
"""What a measurement sets itself; a line of a prompts file that was recorded elsewhere may carry its own."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the requests to one target say.

    `prompts` holds request bodies from a file, used in turn; where there is none, prompts are synthetic:
    `system_words` and `user_words` of filler drawn from `seed`. With `questions` all filler is in the system prompt and
    the user message asks for something else each time. `output_tokens` None leaves the length to the provider. `extra`
    are further body fields, which win over all others. `run` is the run's id, which the nonce depends on.
    """

    run: str
    prompts: list[dict[str, Any]] = []
    system_words: int = 0
    user_words: int = 0
    output_tokens: int | None = 512
    questions: bool = False
    extra: dict[str, Any] = {}
    seed: int = 0

    @property
    def synthetic(self) -> bool:
        """Whether we write the prompts, and so can choose their length."""
        return not self.prompts


class Composer:
    """Makes the request bodies of one workload. `shared` names what all of them begin like; "": each differently."""

    def __init__(self, workload: Workload, shared: str = "") -> None:
        self._workload = workload
        self._shared = shared
        words = Random(workload.seed).choices(WORDS, k=workload.system_words + workload.user_words)
        self._system = " ".join([SYSTEM, *words[: workload.system_words]])
        self._user = " ".join([USER, *words[workload.system_words :]])
        self.hints: Mapping[str, str] = {"prompt_cache": "mark"} if shared else {}
        """What goes with each request: some providers cache a prompt only where they are asked to."""

    def body(self, call: str, number: int) -> dict[str, Any]:
        """The body of the request with the id `call`, the `number`th of its target."""
        workload = self._workload
        nonce = self._picked(self._shared or call, NONCE_WORDS) + ".\n"
        if workload.synthetic:
            body: dict[str, Any] = {
                "messages": [
                    {"role": "system", "content": nonce + self._system},
                    {"role": "user", "content": self._question(call) if workload.questions else self._user},
                ]
            }
        else:
            prompt = workload.prompts[number % len(workload.prompts)]
            first, *others = prompt["messages"]
            body = {**prompt, "messages": [_begin_with(nonce, first), *others]}
        body.update(workload.extra)
        if workload.output_tokens is not None and not any(field in body for field in LENGTH_FIELDS):
            body["max_tokens"] = workload.output_tokens
        return body

    def _question(self, call: str) -> str:
        return f"{QUESTION} {self._picked(call, QUESTION_WORDS)}"

    def _picked(self, name: str, count: int) -> str:
        """`count` words for the requests, or the one request, of that name."""
        picks = blake2b(f"{self._workload.run}/{name}".encode(), digest_size=count).digest()
        return " ".join(WORDS[pick] for pick in picks)


def _begin_with(nonce: str, message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": nonce}, *content]}
    return {**message, "content": nonce + (content or "")}


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """The request bodies in a file; see `parse_prompts`. Raises `CallerFault` if it cannot be read."""
    try:
        with path.open("rb") as lines:
            return parse_prompts(lines, str(path))
    except OSError as error:
        raise CallerFault(f"cannot read the prompts {path}: {error.strerror or error}", kind="bad_prompts") from None


def parse_prompts(lines: Iterable[bytes], name: str) -> list[dict[str, Any]]:
    """Request bodies from JSON lines: each a list of OpenAI messages, or an object with `messages` and other fields.

    Blank lines are skipped; `model` and streaming fields are left out, as the measurement sets them. Raises
    `CallerFault` with `name`:line.
    """
    prompts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            prompts.append(_prompt(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CallerFault(
                f"{name}:{number}: {error}",
                kind="bad_prompts",
                hint='Each line is one request: {"messages": [{"role": "user", "content": "..."}]}.',
            ) from None
    if not prompts:
        raise CallerFault(f"{name}: holds no prompt, expected one a line", kind="bad_prompts")
    return prompts


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None


def _prompt(line: bytes) -> dict[str, Any]:
    decoded = msgspec.json.decode(line)
    fields = {"messages": decoded} if isinstance(decoded, list) else decoded
    if not isinstance(fields, dict) or "messages" not in fields:
        raise msgspec.ValidationError('expected a list of messages, or an object with "messages"')
    if not msgspec.convert(fields["messages"], list[_Message]):
        raise msgspec.ValidationError("expected at least one message, got none")
    return {field: value for field, value in fields.items() if field not in OURS}
