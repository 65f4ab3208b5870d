"""`by_complexity(simple=a, medium=b, complex=c)`: easy requests go to a quick model, hard ones to a strong one.

What it does. Each request is judged by what can be seen of it without a model (`complexity`), in some tens of
microseconds: how long the prompt is, how many turns it has, whether it holds code, pictures or tools, whether a form of
the answer is demanded, whether its words speak of proofs, designs and comparisons, and how much answer or reasoning is
asked for. The client knows better: the header ``x-splitsecond-complexity`` (simple, medium or complex) decides where it
is sent. A branch that is missing is stood in for by the next stronger one, else by the strongest there is.

What it costs. Nothing but those microseconds.

When it helps. Where most requests are easy, and the small model is several times as fast: what goes there has its
speed. It is decided before anything is sent, so unlike `cascade` it costs no second request and holds nothing back.

When it hurts. A short question can be a hard one. The words it looks for are English; in other languages it goes by
everything else. Where a wrong answer is dear, let the client say, or use `cascade` with a judge.

Where it stands. Outside of all else: each branch has its own policy.
"""

from splitsecond.errors import CallerFault
from splitsecond.policy.choosing.prompt_size import most_output_tokens, raw_bytes
from splitsecond.policy.prompt import LONGEST_BYTES, last_asked, messages, plain, wanted_effort, wanted_form
from splitsecond.policy.settings import setting_text_of, written
from splitsecond.service import Call, Reply, Service

LEVELS = ("simple", "medium", "complex")
MEDIUM_POINTS, COMPLEX_POINTS = 2, 4

LONG_BYTES, VERY_LONG_BYTES = 4_000, 24_000
"""Of the prompt: about a thousand, and six thousand, tokens of English."""
MANY_TURNS = 8
LONG_ANSWER, SHORT_ANSWER = 2_000, 64
"""Tokens that are asked for at most. A short answer is a label or a title."""
LOOKED_AT = 1_000
"""Characters of the last question whose words are looked at: its beginning, which mostly says what is wanted."""

_WORDS = frozenset(word.encode() for word in (
    "algorithm", "analyse", "analyze", "architecture", "assess", "compare", "complexity", "contradiction", "contrast",
    "debug", "deduce", "derivative", "derive", "design", "diagnose", "differential", "eigenvalue", "equation",
    "evaluate", "explain", "hypothesis", "implement", "implications", "inference", "integral", "investigate", "justify",
    "lemma", "logic", "matrix", "optimal", "optimise", "optimize", "plan", "probability", "proof", "prove", "puzzle",
    "reason", "reasoning", "refactor", "review", "solve", "step", "strategy", "theorem", "tradeoff", "why",
))  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TO_WORDS = bytes(ord(c.lower()) if c.lower() in _LETTERS else ord(" ") for c in map(chr, range(256)))
"""A table for `bytes.translate`: small letters, and spaces for all else. A tenth of the time of a pattern."""
_MATHS = ("\\frac", "\\int", "\\sum", "\\sqrt", "\\begin{", "$$", "∫", "∑", "√")
_PROMPT = ("messages", "prompt", "input", "system", "instructions")
_EFFORT = {"medium": 2, "high": 4, "xhigh": 4, "max": 4}


def by_complexity(**branches: Service) -> Service:
    """The service that asks the branch for the complexity of the call: `simple`, `medium` or `complex`."""
    if not branches or branches.keys() - set(LEVELS):
        hint = 'Write by_complexity(simple="a/x", complex="b/x").'
        raise CallerFault("by_complexity takes simple, medium and complex, one at least", kind="bad_policy", hint=hint)
    return ByComplexity(branches)


class ByComplexity:
    """See `by_complexity`."""

    def __init__(self, branches: dict[str, Service]) -> None:
        self._branches = branches
        self._for = {level: branches[_stand_in(level, branches)] for level in LEVELS}

    def __repr__(self) -> str:
        return written("by_complexity", (), self._branches)

    async def __call__(self, call: Call) -> Reply:
        level, why = call.hints.get("complexity", ""), "the client says so"
        if not level:
            level, why = complexity(call)
        elif level not in LEVELS:
            raise CallerFault(
                f"the complexity is {setting_text_of(level)}, expected one of {', '.join(LEVELS)}",
                kind="unknown_complexity",
                hint="Send x-splitsecond-complexity: simple, or leave it out.",
            )
        call.notes.chosen = f"by_complexity: {level} ({why})"
        return await self._for[level](call)


def complexity(call: Call) -> tuple[str, str]:
    """How hard `call` looks: a level, and a few words on what speaks for it."""
    signs = dict(_signs(call))
    points = sum(signs.values())
    level = LEVELS[(points >= MEDIUM_POINTS) + (points >= COMPLEX_POINTS)]
    return level, ", ".join(signs) or "nothing speaks against it"


def _signs(call: Call) -> list[tuple[str, int]]:
    """What speaks for a hard request, in words, and by how much."""
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
    if (most := most_output_tokens(call)) is not None:
        if most > LONG_ANSWER:
            signs.append(("a long answer", 1))
        elif most <= SHORT_ANSWER:
            signs.append(("a short answer", -1))
    if size <= LONGEST_BYTES:
        signs += _said(call)
    return signs


def _said(call: Call) -> list[tuple[str, int]]:
    """What the messages themselves tell."""
    signs: list[tuple[str, int]] = []
    said = messages(call) or []
    if len(said) > MANY_TURNS:
        signs.append(("many turns", 1))
    if said and said[-1].shows:
        signs.append(("more than text", 1))
    prompt = plain(call, "prompt") if "prompt" in call.body else None
    asked = prompt if isinstance(prompt, str) else last_asked(said)
    if "```" in asked:
        signs.append(("code", 2))
    asked = asked[:LOOKED_AT]
    if any(sign in asked for sign in _MATHS):
        signs.append(("maths", 2))
    if words := _WORDS.intersection(asked.encode("ascii", "replace").translate(_TO_WORDS).split()):
        signs.append((f"words such as {min(words).decode()}", min(2 * len(words) - 1, 4)))
    return signs


def _stand_in(level: str, branches: dict[str, Service]) -> str:
    """The branch for `level`: its own, the next stronger, or the strongest."""
    stronger = LEVELS[LEVELS.index(level) :]
    return next(name for name in (*stronger, *reversed(LEVELS)) if name in branches)
