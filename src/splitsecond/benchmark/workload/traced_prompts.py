"""The texts of the prompts of a trace: each of its own length, with the shared beginnings that the
trace records.

The length of a prompt of plain words in tokens is a line, known by calibration. The ends of blocks
are rounded to whole words one by one, so errors do not add up. A block begins with words picked by
a hash of its id, which stands for its block and all those before it, so two prompts are equal
exactly as far as their ids are. All first words also depend on the run and its condition, so that
no cache filled before can serve them.
"""

import msgspec

from splitsecond.benchmark.workload.traces import BLOCK_TOKENS, TracedRequest
from splitsecond.benchmark.workload.words import NONCE_WORDS, Filler, picked

INSTRUCTION = (
    "Write a very long and detailed story, as long as you can. Use many of these words in it:"
)


class PromptScale(msgspec.Struct, frozen=True):
    fixed: float = 0.0
    per_word: float = 1.0

    def words(self, tokens: float) -> int:
        return max(round((tokens - self.fixed) / self.per_word), NONCE_WORDS)


class TracedPrompts:
    def __init__(self, name: str, seed: int, scale: PromptScale, longest: int) -> None:
        self._name = name
        self._scale = scale
        self._filler = Filler(seed, scale.words(longest))
        self._instruction = len(INSTRUCTION.split())

    def text(self, call: str, request: TracedRequest) -> str:
        """Return the prompt of a request. `call` makes it unique from its last block with an id
        on."""
        end = self._scale.words(request.input_tokens or 0)
        names = [f"block {each}" for each in request.hash_ids]
        bounds = [
            0,
            *(min(self._scale.words(BLOCK_TOKENS * (at + 1)), end) for at in range(len(names))),
        ]
        if not names or bounds[-1] < end:
            names.append(call)
            bounds.append(end)
        return " ".join(
            self._words(name, after - before, opening=before == 0)
            for name, before, after in zip(names, bounds, bounds[1:], strict=False)
            if after > before
        )

    def _words(self, name: str, count: int, *, opening: bool) -> str:
        words = picked(f"{self._name}/{name}", NONCE_WORDS)
        rest = count - NONCE_WORDS
        if opening and rest >= self._instruction:
            words, rest = f"{words}.\n{INSTRUCTION}", rest - self._instruction
        if rest <= 0:
            return " ".join(words.split(" ")[:count])
        return f"{words} {self._filler.words(rest)}"
