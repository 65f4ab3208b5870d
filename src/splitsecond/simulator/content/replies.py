"""The replies that a user gives a simulated provider: ``[[replies]]`` in a profile, a JSONL file,
or added at run time.

Without one, a request that offers tools gets a call of the first, and a text once the conversation
ends with a tool's result; a request for structured output gets a value that fits its schema; any
other gets plain words.
"""

import fnmatch
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from splitsecond.core.errors import CallerFault, content_faults, file_faults
from splitsecond.core.service import WHOLE_OPERATIONS
from splitsecond.core.validation import converted
from splitsecond.simulator.content import faults
from splitsecond.simulator.content.wants import ConversationEnd, Wants
from splitsecond.simulator.parsing import ServerRequest

MATCH_S = 0.2
"""How long a pattern may search one prompt."""
MAX_ADDED = 1000
"""Rules that may be added at run time."""
_HINT = "docs/simulator.md shows all keys of a reply."


class RuleCall(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | None = None


class RuleError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[int, Meta(ge=400, le=599)]
    message: str = ""
    code: str = ""
    type: str = ""
    retry_after: Annotated[float, Meta(ge=0)] | None = None


class ReplyRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rule that gives some requests a reply.

    For requests that fit all of these: `prompt` is in the last message of the user, `pattern` (a
    regular expression) is found there; `model` is the model's name, with ``*`` for any part;
    `offers`: the request offers this tool, and the conversation does not end with a result;
    `after`: the conversation ends with a result of this tool. A rule with `calls` is only for
    requests that offer these tools, and not after a result unless `after` is given. `times`: how
    many requests it is for; then it is passed over.

    They get one of these: a `text`, the value `json`, tool `calls`, a `refusal`, an `error`;
    without one, the reply that they would get without the rule. `reasoning` comes before the reply,
    `finish` is its finish reason in OpenAI's words, and `fault` strikes it (as in the header
    ``x-splitsecond-fault``).
    """

    prompt: str | None = None
    pattern: str | None = None
    model: str | None = None
    offers: str | None = None
    after: str | None = None
    times: Annotated[int, Meta(ge=1)] | None = None
    text: str | None = None
    json: Any = None
    calls: tuple[RuleCall, ...] = ()
    refusal: str | None = None
    error: RuleError | None = None
    reasoning: str = ""
    finish: str = ""
    fault: str = ""

    def __post_init__(self) -> None:
        replies = {"json": self.json, "refusal": self.refusal, "error": self.error}
        kinds = [name for name, value in replies.items() if value is not None]
        kinds += (["calls"] if self.calls else []) + (
            ["text"] if self.text is not None and not self.calls else []
        )
        if len(kinds) > 1:
            raise ValueError(
                f"a reply is one of text, json, calls, refusal and error, not {' and '.join(kinds)}"
            )
        if self.fault:
            try:
                faults.from_header(self.fault)
            except CallerFault as fault:
                raise ValueError(fault.message) from fault
        if self.pattern is not None:
            _check_pattern(self.pattern)

    @property
    def has_content(self) -> bool:
        return (
            self.text is not None
            or self.json is not None
            or bool(self.calls)
            or self.refusal is not None
        )

    def fits(self, request: ServerRequest, wants: Wants, conversation: ConversationEnd) -> bool:
        if self.has_content and request.operation in WHOLE_OPERATIONS:
            return False
        return (
            self._fits_tools({tool.name for tool in wants.tools}, conversation.results)
            and (self.model is None or fnmatch.fnmatchcase(request.model, self.model))
            and (self.prompt is None or self.prompt in conversation.user_text)
            and (self.pattern is None or _is_found(self.pattern, conversation.user_text))
        )

    def _fits_tools(self, offered: Set[str], results: Sequence[str]) -> bool:
        if self.calls and (
            not offered >= {call.name for call in self.calls} or (results and self.after is None)
        ):
            return False
        if self.offers is not None and (self.offers not in offered or results):
            return False
        return self.after is None or self.after in results


def _check_pattern(pattern: str) -> None:
    import regex  # most simulated providers have no patterns

    try:
        regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from error


def _is_found(pattern: str, text: str) -> bool:
    import regex

    try:
        return regex.search(pattern, text, timeout=MATCH_S) is not None
    except TimeoutError as error:
        raise CallerFault(
            f"the pattern {pattern!r} of a reply takes too long", kind="bad_reply"
        ) from error


class ReplyRules:
    def __init__(self, rules: Sequence[ReplyRule]) -> None:
        self._given = tuple(rules)
        self._added: list[ReplyRule] = []
        self._used: dict[int, int] = {}  # by id of the rule

    def __bool__(self) -> bool:
        return bool(self._given or self._added)

    def add(self, rules: Iterable[ReplyRule]) -> None:
        self._added.extend(rules)
        if len(self._added) > MAX_ADDED:
            del self._added[MAX_ADDED:]
            raise CallerFault(f"a provider takes {MAX_ADDED:,} added replies", kind="bad_reply")

    def reset(self) -> None:
        self._added.clear()
        self._used.clear()

    def take(
        self, request: ServerRequest, wants: Wants, conversation: ConversationEnd
    ) -> ReplyRule | None:
        for rule in (*self._added, *self._given):
            used = self._used.get(id(rule), 0)
            if (rule.times is None or used < rule.times) and rule.fits(
                request, wants, conversation
            ):
                self._used[id(rule)] = used + 1
                return rule
        return None


def parse_rules(data: bytes, where: str) -> list[ReplyRule]:
    """Parse rules from JSON, one or a list. Raises `CallerFault`."""
    with content_faults(f"{where}: not JSON", kind="bad_reply", hint=_HINT):
        value = msgspec.json.decode(data)
    return [
        converted(where, each, ReplyRule, _bad)
        for each in (value if isinstance(value, list) else [value])
    ]


def load_rules(path: Path) -> list[ReplyRule]:
    with file_faults(f"cannot read the replies {path}", kind="bad_reply"):
        lines = path.read_bytes().splitlines()
    return [
        rule
        for number, line in enumerate(lines, 1)
        if line.strip()
        for rule in parse_rules(line, f"{path}:{number}")
    ]


def _bad(place: str, message: str, hint: str = "") -> CallerFault:
    return CallerFault(f"{place}: {message}", kind="bad_reply", hint=hint or _HINT)
