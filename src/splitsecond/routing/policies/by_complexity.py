"""`by_complexity(simple=a, medium=b, complex=c)`: easy requests go to a fast model, hard ones to a
strong one."""

from collections.abc import Sequence

from splitsecond.core.errors import CallerFault, Fault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.upstream.prompt_size import raw_bytes
from splitsecond.core.wire.output_limit import output_limit
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.fault_handling import NOT_TRANSLATABLE
from splitsecond.routing.machinery.prompt import (
    LONGEST_BYTES,
    examined,
    field_value,
    last_user_text,
    messages,
    wanted_effort,
    wanted_form,
)
from splitsecond.routing.machinery.settings import short_text

LEVELS = ("simple", "medium", "complex")
MEDIUM_POINTS, COMPLEX_POINTS = 2, 4

LONG_BYTES, VERY_LONG_BYTES = 4_000, 24_000
"""Sizes of prompts: about 1,000 and 6,000 tokens of English."""
MANY_TURNS = 8
LONG_ANSWER, SHORT_ANSWER = 2_000, 64
"""Output limits in tokens. A short answer is a label or a title."""
LOOKED_AT = 1_000
"""The first characters of the last question, whose words count: they mostly say what is wanted."""

_WORDS = frozenset(word.encode() for word in (
    "algorithm", "analyse", "analyze", "architecture", "assess", "compare", "complexity",
    "contradiction", "contrast",
    "debug", "deduce", "derivative", "derive", "design", "diagnose", "differential", "eigenvalue",
    "equation",
    "evaluate", "explain", "hypothesis", "implement", "implications", "inference", "integral",
    "investigate", "justify",
    "lemma", "logic", "matrix", "optimal", "optimise", "optimize", "plan", "probability", "proof",
    "prove", "puzzle",
    "reason", "reasoning", "refactor", "review", "solve", "step", "strategy", "theorem",
    "tradeoff", "why",
))  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TO_WORDS = bytes(
    ord(c.lower()) if c.lower() in _LETTERS else ord(" ") for c in map(chr, range(256))
)
"""A table for `bytes.translate`: lower-case letters, and spaces for all else. Ten times as fast as
a pattern."""
_MATHS = ("\\frac", "\\int", "\\sum", "\\sqrt", "\\begin{", "$$", "∫", "∑", "√")
_PROMPT = ("messages", "prompt", "input", "system", "instructions")
_EFFORT = {"medium": 2, "high": 4, "xhigh": 4, "max": 4}


class ByComplexity(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        *,
        simple: Service | None = None,
        medium: Service | None = None,
        complex: Service | None = None,  # noqa: A002 - the name of the branch in an expression
    ) -> None:
        super().__init__(context)
        by_level = zip(LEVELS, (simple, medium, complex), strict=True)
        self._branches = {level: branch for level, branch in by_level if branch is not None}

    async def __call__(self, call: Call) -> Reply:
        level, why = call.hints.get("complexity", ""), "the client says so"
        if not level:
            level, why = await examined(call, complexity)
        elif level not in LEVELS:
            raise CallerFault(
                f"the complexity is {short_text(level)}, expected one of {', '.join(LEVELS)}",
                kind="unknown_complexity",
                hint="Send x-splitsecond-complexity: simple, or leave it out.",
            )
        call.notes.chosen = f"by_complexity: {level} ({why})"
        first, *others = [
            self._branches[name] for name in _by_preference(level) if name in self._branches
        ]
        try:
            return await first(call)
        except Fault as fault:
            if fault.kind != NOT_TRANSLATABLE or not others:
                raise
            refused = fault.without_traceback()
        for branch in others:
            try:
                return await branch(call)
            except Fault as fault:
                if fault.kind != NOT_TRANSLATABLE:
                    raise
        raise refused


def complexity(call: Call) -> tuple[str, str]:
    signs = dict(_signs(call))
    points = sum(signs.values())
    level = LEVELS[(points >= MEDIUM_POINTS) + (points >= COMPLEX_POINTS)]
    return level, ", ".join(signs) or "no sign of difficulty"


def _signs(call: Call) -> list[tuple[str, int]]:
    body, signs = call.body, list[tuple[str, int]]()
    size = sum(len(raw_bytes(body[name])) for name in _PROMPT if name in body)
    if size > LONG_BYTES:
        signs.append(("a very long prompt", 4) if size > VERY_LONG_BYTES else ("a long prompt", 2))
    if "tools" in body:
        signs.append(("tools", 2))
    if wanted_form(call) is not None:
        signs.append(("a form of the answer", 1))
    if effort := _EFFORT.get(wanted_effort(call)):
        signs.append(("reasoning effort", effort))
    if (most := output_limit(call.body)) is not None:
        if most > LONG_ANSWER:
            signs.append(("a long answer", 1))
        elif most <= SHORT_ANSWER:
            signs.append(("a short answer", -1))
    if size <= LONGEST_BYTES:
        signs += _message_signs(call)
    return signs


def _message_signs(call: Call) -> list[tuple[str, int]]:
    signs: list[tuple[str, int]] = []
    turns = messages(call) or []
    if len(turns) > MANY_TURNS:
        signs.append(("many turns", 1))
    if turns and turns[-1].has_media:
        signs.append(("more than text", 1))
    prompt = field_value(call, "prompt") if "prompt" in call.body else None
    question = prompt if isinstance(prompt, str) else last_user_text(turns)
    if "```" in question:
        signs.append(("code", 2))
    question = question[:LOOKED_AT]
    if any(sign in question for sign in _MATHS):
        signs.append(("maths", 2))
    if words := _WORDS.intersection(
        question.encode("ascii", "replace").translate(_TO_WORDS).split()
    ):
        signs.append((f"words such as {min(words).decode()}", min(2 * len(words) - 1, 4)))
    return signs


def _by_preference(level: str) -> Sequence[str]:
    place = LEVELS.index(level)
    return (*LEVELS[place:], *reversed(LEVELS[:place]))


by_complexity = Policy(
    ByComplexity,
    example='by_complexity(simple="a/small", complex="a/large")',
    one_of=LEVELS,
    needs_stream=(),
)
