"""Acceptance rules: when `cascade` keeps the small model's answer.

Every rule first requires that the answer is `finished`: ended by the model itself, not by a limit
or a filter; not without content; and not a refusal, if the provider marks refusals (a refusal in
plain words looks like any answer; `re:` can search for those).

Rules are written ``"finished"``, ``"json"``, ``"re:PATTERN"`` and ``"logprob>-0.5"``.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Event, Finish, Token
from splitsecond.core.finish_reasons import meaning
from splitsecond.routing.machinery.settings import short_text

SEARCH_S = 0.02
"""How long a search for a pattern may take. A pattern that takes longer probably backtracks without
end."""
LONGEST_SEARCHED = 200_000
"""Characters."""

_OWN_END = ("stop", "tool_calls")
"""OpenAI's finish reasons of an answer that the model ended itself. Unknown ones do not count."""

EXPECTED = '"finished", "json", "re:PATTERN" or "logprob>-0.5"'


class DraftAnswer:
    def __init__(self) -> None:
        self.refused = False
        self._texts: list[str] = []
        self._calls: list[str] = []
        self._reasons: list[str] = []
        self._logprob = 0.0
        self._counted = 0

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Token(kind="text"):
                    if event.index == 0:
                        self._texts.append(event.text)
                case Token(kind="tool"):
                    self._calls.append(event.text)
                case Token(kind="refusal"):
                    self.refused = True
                case Finish():
                    self._reasons.append(event.reason)
            if isinstance(event, Token) and event.logprobs is not None:
                self._logprob += math.fsum(event.logprobs)
                self._counted += len(event.logprobs)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def calls(self) -> str:
        return "".join(self._calls)

    @property
    def reasons(self) -> list[str]:
        return self._reasons

    @property
    def logprob(self) -> float | None:
        return self._logprob / self._counted if self._counted else None


Rule = Callable[[DraftAnswer], str]


def finished(answer: DraftAnswer) -> str:
    if answer.refused:
        return "it refuses"
    if not answer.reasons:
        return "it does not say why it ended"
    if ended := [reason for reason in answer.reasons if meaning(reason) not in _OWN_END]:
        return f"it ended by {ended[0][:40]}"
    if not answer.text.strip() and not answer.calls:
        return "it says nothing"
    return ""


def acceptance(name: str, value: object) -> Rule:
    match value:
        case "finished":
            return finished
        case "json":
            return _json
        case str() if value.startswith("re:") and len(value) > 3:
            return _matching(name, value[3:])
        case str() if value.startswith("logprob>"):
            return _likely(name, value[8:])
    raise _bad(name, value, f"expected {EXPECTED}")


def wants_logprobs(value: str) -> bool:
    return value.startswith("logprob>")


def _json(answer: DraftAnswer) -> str:
    if why := finished(answer):
        return why
    try:
        msgspec.json.decode(answer.text)
    except (ValueError, RecursionError):
        return "it is not JSON"
    return ""


def _matching(name: str, text: str) -> Rule:
    # a late import: it takes milliseconds and megabytes, and few policies use patterns
    import regex

    try:
        pattern: Any = regex.compile(text)
    except (regex.error, OverflowError, RecursionError) as error:
        raise _bad(name, f"re:{text}", f"which is not a pattern: {error}") from None

    def rule(answer: DraftAnswer) -> str:
        if why := finished(answer):
            return why
        if len(answer.text) > LONGEST_SEARCHED:
            return "it is too long to be searched"
        try:
            return "" if pattern.search(answer.text, timeout=SEARCH_S) else "it does not match"
        except TimeoutError:
            return "the pattern took too long"

    return rule


def _likely(name: str, text: str) -> Rule:
    try:
        least = float(text)
    except ValueError:
        least = math.nan
    if not -100 <= least < 0:
        raise _bad(
            name, f"logprob>{text}", "expected a number from -100 to 0, such as logprob>-0.5"
        )

    def rule(answer: DraftAnswer) -> str:
        if why := finished(answer):
            return why
        if answer.logprob is None:
            return "it has no log-probabilities"
        return "" if answer.logprob > least else f"its log-probability is {answer.logprob:.2f}"

    return rule


def _bad(name: str, value: object, words: str) -> CallerFault:
    return CallerFault(f"{name} is {short_text(value)}, {words}", kind="bad_policy")
