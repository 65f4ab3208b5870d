"""The content of requests: synthetic prompts of a chosen length, prompts from a file, or those of a
trace.

All synthetic requests of a seed have the same words, so that all inputs have the same length. Only
the nonce differs: the beginning, picked by a hash of run and call, so that no prefix cache that an
earlier request has filled can serve a part of it.

A run that measures a prompt cache sends a long system prompt, and a short user message that differs
each time. One condition uses a nonce per request, the other one nonce for all of its requests, so
its first request finds an empty cache.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.workload.answer_checks import AnswerChecker, AnswerChecks
from splitsecond.benchmark.workload.images import Images, image_parts
from splitsecond.benchmark.workload.prompt_files import LENGTH_FIELDS
from splitsecond.benchmark.workload.sessions import SessionSet
from splitsecond.benchmark.workload.traced_prompts import INSTRUCTION, PromptScale, TracedPrompts
from splitsecond.benchmark.workload.traces import TracedRequest
from splitsecond.benchmark.workload.words import NONCE_WORDS, WORDS, picked
from splitsecond.core.service import WHOLE_OPERATIONS, Operation

SYSTEM = "You are a patient storyteller who never stops early. Keep these words in mind:"
USER = INSTRUCTION
QUESTION = "Write a very long and detailed story, as long as you can. Begin it with these words:"
QUESTION_WORDS = 4
SEPARATOR = "#"
"""Between a target and the name of its workload, inside `load` (`sweep`)."""


class WorkloadVariant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    input_tokens: int
    output_tokens: int | None = None
    images: Images | None = None
    batch: int | None = None
    effort: str = ""


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the requests to one target.

    `prompts` holds request bodies from a file, which are used in turn; `traced` the requests of a
    trace, whose prompts have their own lengths by the `scale` of the target. If both are empty,
    prompts are synthetic, with `system_words` and `user_words` of filler drawn from `seed`, and
    `images`, which differ from request to request. With `questions` all filler is in the system
    prompt, and the user message differs each time. `output_tokens` None leaves the length to the
    provider. `extra` overrides all other body fields. `run` determines the nonces. With `sessions`,
    requests are their turns (`session_player`): their filler has the `scale` of the target, and
    `output_tokens` is for answers whose length was not recorded.

    `checks`: what every answer must be, whose fields are in `extra`. An `operation` whose answer is
    no text has `batch` inputs in a request: texts to embed, or documents to rank. All filler is
    then in each of them.
    """

    run: str
    prompts: list[dict[str, Any]] = []
    system_words: int = 0
    user_words: int = 0
    output_tokens: int | None = 512
    questions: bool = False
    images: Images | None = None
    extra: dict[str, Any] = {}
    seed: int = 0
    variants: dict[str, WorkloadVariant] = {}
    traced: list[TracedRequest] = []
    scale: PromptScale = PromptScale()
    sessions: SessionSet | None = None
    operation: Operation = "chat"
    batch: int = 1
    checks: AnswerChecks | None = None

    def of_target(self, target: str, input_tokens: int) -> "tuple[Workload, int]":
        variant = self.variants.get(target.rpartition(SEPARATOR)[2])
        if variant is None:
            return self, input_tokens
        workload = replace(
            self,
            output_tokens=variant.output_tokens or self.output_tokens,
            images=variant.images or self.images,
            batch=variant.batch or self.batch,
            extra=self.extra | ({"reasoning_effort": variant.effort} if variant.effort else {}),
            variants={},
        )
        return workload, variant.input_tokens

    @property
    def inputs(self) -> int:
        """Texts to embed or documents to rank in a request; 0 if its answer is text."""
        return self.batch if self.operation in WHOLE_OPERATIONS else 0

    @property
    def synthetic(self) -> bool:
        return not self.prompts and not self.traced and self.sessions is None


class Composer:
    """Makes the request bodies of one workload, for a `condition`. With `alike` all of its prompts
    begin alike."""

    def __init__(self, workload: Workload, condition: str = "", *, alike: bool = False) -> None:
        self.workload = workload
        self._shared = condition if alike else ""
        self._traced: TracedPrompts | None = None
        if workload.traced:
            longest = max(each.input_tokens or 0 for each in workload.traced)
            self._traced = TracedPrompts(
                f"{workload.run}/{condition}", workload.seed, workload.scale, longest
            )
        words = Random(workload.seed).choices(WORDS, k=workload.system_words + workload.user_words)
        self._system = " ".join([SYSTEM, *words[: workload.system_words]])
        self._user = " ".join([USER, *words[workload.system_words :]])
        self.checker = AnswerChecker(workload.checks) if workload.checks else None
        self.hints: Mapping[str, str] = {"prompt_cache": "mark"} if alike else {}

    def body(self, call: str, number: int, *, shortened: bool = False) -> dict[str, Any]:
        """Return the body of the request with the id `call`, the `number`th of its target.

        The length of a `shortened` response is uniformly random, up to the length that others have.
        """
        workload, output_tokens = self.workload, self.workload.output_tokens
        if workload.inputs:
            return self._inputs(call) | workload.extra
        nonce = self._picked(self._shared or call, NONCE_WORDS) + ".\n"
        if self._traced is not None:
            request = workload.traced[number % len(workload.traced)]
            body: dict[str, Any] = {
                "messages": [{"role": "user", "content": self._traced.text(call, request)}]
            }
            output_tokens = request.output_tokens
        elif workload.synthetic:
            content: Any = self._question(call) if workload.questions else self._user
            if workload.images:
                content = [
                    {"type": "text", "text": content},
                    *image_parts(workload.images, f"{workload.run}/{call}"),
                ]
            body = {
                "messages": [
                    {"role": "system", "content": nonce + self._system},
                    {"role": "user", "content": content},
                ]
            }
        else:
            prompt = workload.prompts[number % len(workload.prompts)]
            first, *others = prompt["messages"]
            body = {**prompt, "messages": [begins_with(nonce, first), *others]}
        body.update(workload.extra)
        if output_tokens is not None and not any(field in body for field in LENGTH_FIELDS):
            body["max_tokens"] = output_tokens
        if shortened:
            share = Random(f"{workload.seed}/{call}").random()
            for field in (*LENGTH_FIELDS, "min_tokens"):
                if isinstance(longest := body.get(field), int):
                    body[field] = max(round(longest * share), 1)
        return body

    def _inputs(self, call: str) -> dict[str, Any]:
        """Return the body of a request that has inputs, each with a beginning of its own."""
        filler = f"{self._system} {self._user}"
        texts = [
            f"{self._picked(f'{call}/{number}', NONCE_WORDS)}.\n{filler}"
            for number in range(self.workload.inputs)
        ]
        if self.workload.operation == "rerank":
            return {"query": self._picked(call, QUESTION_WORDS), "documents": texts}
        return {"input": texts}

    def _question(self, call: str) -> str:
        return f"{QUESTION} {self._picked(call, QUESTION_WORDS)}"

    def _picked(self, name: str, count: int) -> str:
        return picked(f"{self.workload.run}/{name}", count)


def begins_with(nonce: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose content begins with `nonce`."""
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": nonce}, *content]}
    return {**message, "content": nonce + (content or "")}
