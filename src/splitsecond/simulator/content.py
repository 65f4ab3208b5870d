"""What an answer says: thoughts first, if the profile has any, then words, or a call of the tool that was asked for.

Each is written token by token in the answer's dialect, and put together for an answer that is wanted whole. A tool
call's first token is its name with the beginning of its arguments; its arguments are an object with one text.
"""

from collections.abc import Callable

from splitsecond.simulator.asked import Asked
from splitsecond.simulator.words import token_text
from splitsecond.wire.dialect import Answer, CalledTool, Writer


def renderer(asked: Asked, writer: Writer) -> Callable[[int], bytes]:
    """What makes the bytes of each token of the answer, asked for from 0 on, in order. Some dialects send none yet."""
    thoughts, tool = asked.reasoning_tokens, asked.request.tool

    def render(index: int) -> bytes:
        if index < thoughts:
            return writer.token(token_text(index), "reasoning")
        if not tool:
            return writer.token(token_text(index - thoughts))
        begun = writer.tool_call(tool, asked.call_id) if index == thoughts else b""
        return begun + writer.token(_fragment(asked, index), "tool")

    return render


def content(asked: Asked) -> Answer:
    """All of the answer."""
    thoughts, tool, total = asked.reasoning_tokens, asked.request.tool, asked.output_tokens
    calls: tuple[CalledTool, ...] = ()
    if tool:
        arguments = "".join(_fragment(asked, index) for index in range(thoughts, total))
        calls = (CalledTool(asked.call_id, tool, arguments),)
    return Answer(
        text="" if tool else "".join(map(token_text, range(total - thoughts))),
        reasoning="".join(map(token_text, range(thoughts))),
        calls=calls,
        finish=asked.finish,
    )


def _fragment(asked: Asked, index: int) -> str:
    """Token `index` of a tool call."""
    first, last = asked.reasoning_tokens, asked.output_tokens - 1
    return ('{"text":"' if index == first else "") + token_text(index - first) + ('"}' if index == last else "")
