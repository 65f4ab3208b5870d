"""The content of a reply that is not plain words: given by a rule, or made for the request, and cut
into tokens.

A text has one token for a word, and JSON one for every four characters. Reasoning and text end at
the request's limit, with the finish reason "length". A tool call is never cut off: if its arguments
are longer than the limit, its tokens are longer.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import TokenKind
from splitsecond.core.wire.api_format import CalledTool, ServerAnswer
from splitsecond.simulator.content.replies import ReplyRule, RuleCall
from splitsecond.simulator.content.schema import fill, is_open_object
from splitsecond.simulator.content.tokens import token_text
from splitsecond.simulator.content.wants import ConversationEnd, OfferedTool, Wants
from splitsecond.simulator.parsing import ServerRequest

_WORDS = re.compile(r"\s*\S{1,16}|\s+$")
_JSON_PIECES = re.compile(r".{1,4}", re.DOTALL)
WORDS_IN_JSON = 8


class Piece(Struct, frozen=True):
    text: str
    kind: TokenKind = "text"
    call: CalledTool | None = None


class ReplyScript(Struct, frozen=True):
    answer: ServerAnswer
    pieces: Sequence[Piece]
    stop_sequence: str | None = None

    @property
    def reasoning_tokens(self) -> int:
        return sum(piece.kind == "reasoning" for piece in self.pieces)


def given_answer(rule: ReplyRule, wants: Wants, reply_id: str) -> ServerAnswer:
    text = msgspec.json.encode(rule.json).decode() if rule.json is not None else rule.text or ""
    calls = tuple(
        _called(call, wants, f"{reply_id}_{number}") for number, call in enumerate(rule.calls)
    )
    return ServerAnswer(
        text=text,
        reasoning=rule.reasoning,
        refusal=rule.refusal or "",
        calls=calls,
        finish=rule.finish or ("tool_calls" if calls else "stop"),
    )


def made_answer(
    request: ServerRequest, wants: Wants, conversation: ConversationEnd, reply_id: str
) -> ServerAnswer | None:
    """Return the reply for what a request wants; None for plain words, alone or as the argument of
    a tool.

    Raises `CallerFault` for a schema that nothing fits.
    """
    tool = _tool_to_call(request, wants, conversation)
    if tool is not None:
        if is_open_object(tool.schema or {}):
            return None
        return ServerAnswer(calls=(_call(tool, None, reply_id),), finish="tool_calls")
    if wants.schema is None or request.tool:
        return None
    return ServerAnswer(text=_json_for(wants.schema))


def cut_off(answer: ServerAnswer) -> ServerAnswer:
    """Return the answer without the last character of its JSON."""
    calls = [replace(call, arguments=call.arguments[:-1]) for call in answer.calls]
    return replace(answer, text=answer.text[:-1], calls=tuple(calls))


def tool_name(request: ServerRequest, wants: Wants, conversation: ConversationEnd) -> str:
    tool = _tool_to_call(request, wants, conversation)
    return request.tool if tool is None else tool.name


def plain_script(
    tokens: int, reasoning_tokens: int, finish: str, stop: Sequence[str]
) -> ReplyScript:
    reasoning = [token_text(index) for index in range(reasoning_tokens)]
    words = [token_text(index) for index in range(tokens - reasoning_tokens)]
    answer = ServerAnswer(text="".join(words), reasoning="".join(reasoning), finish=finish)
    if any(each in answer.text for each in stop):
        return scripted(answer, stop, tokens)
    return ReplyScript(
        answer, [*(Piece(text, "reasoning") for text in reasoning), *map(Piece, words)]
    )


def scripted(answer: ServerAnswer, stop: Sequence[str], limit: int) -> ReplyScript:
    answer, sequence = _until_stop(answer, stop)
    pieces = [Piece(word, kind) for kind in _TEXTS for word in _words(getattr(answer, kind))]
    room = limit - len(answer.calls)
    if len(pieces) > room or room < 0:
        pieces = pieces[: max(room, 0)]
        cut: dict[str, str] = {
            kind: "".join(piece.text for piece in pieces if piece.kind == kind) for kind in _TEXTS
        }
        finish = answer.finish if answer.calls else "length"
        answer, sequence = replace(answer, **cut, finish=finish), None
    for number, call in enumerate(answer.calls):
        left = limit - len(pieces) - (len(answer.calls) - number - 1)
        fragments = _fragments(call.arguments, max(left, 1))
        pieces += [
            Piece(text, "tool", None if place else call) for place, text in enumerate(fragments)
        ]
    return ReplyScript(answer, pieces or [Piece("")], sequence)


def _until_stop(answer: ServerAnswer, stop: Sequence[str]) -> tuple[ServerAnswer, str | None]:
    """Return the answer up to the first of the stop sequences, and that sequence; of those at one
    place, the longest."""
    at, _, sequence = min(
        ((at, -len(each), each) for each in stop if (at := answer.text.find(each)) >= 0),
        default=(-1, 0, None),
    )
    if sequence is None:
        return answer, None
    return replace(answer, text=answer.text[:at], calls=(), finish="stop"), sequence


_TEXTS: tuple[TokenKind, ...] = ("reasoning", "text", "refusal")
"""Texts of an answer, in the order in which they are sent; each is a kind of token."""


def _words(text: str) -> list[str]:
    if text[:1] in ("{", "["):
        return _JSON_PIECES.findall(text)
    return _WORDS.findall(text)


def _fragments(arguments: str, most: int) -> list[str]:
    fragments = _JSON_PIECES.findall(arguments)
    if len(fragments) <= most:
        return fragments
    size = -(-len(arguments) // most)
    return [arguments[at : at + size] for at in range(0, len(arguments), size)]


def _tool_to_call(
    request: ServerRequest, wants: Wants, conversation: ConversationEnd
) -> OfferedTool | None:
    if request.tool:
        return next(
            (tool for tool in wants.tools if tool.name == request.tool),
            OfferedTool(request.tool, None),
        )
    return wants.tools[0] if wants.tools and not conversation.results else None


def _called(call: RuleCall, wants: Wants, call_id: str) -> CalledTool:
    tool = next(
        (tool for tool in wants.tools if tool.name == call.name), OfferedTool(call.name, None)
    )
    return _call(tool, call, call_id)


def _call(tool: OfferedTool, call: RuleCall | None, call_id: str) -> CalledTool:
    if call is not None and call.arguments is not None:
        arguments = call.arguments
    elif tool.schema is None or is_open_object(tool.schema):
        arguments = {}
    else:
        arguments = fill({"type": "object", **tool.schema})
    return CalledTool(call_id, tool.name, msgspec.json.encode(arguments).decode())


def _json_for(schema: object) -> str:
    if schema is True or is_open_object(schema):
        value: object = {"text": "".join(map(token_text, range(WORDS_IN_JSON)))}
    elif isinstance(schema, dict):
        value = fill(schema)
    else:
        raise CallerFault(
            f"the schema of the output is {type(schema).__name__}, not an object", kind="schema"
        )
    return msgspec.json.encode(value).decode()
