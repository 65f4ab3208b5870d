"""The paths at which a provider only counts tokens: Anthropic's, Gemini's, and that of OpenAI's Responses."""

import re
from collections.abc import Callable, Mapping

import msgspec

from splitsecond.simulator.endpoints import GEMINI, MESSAGES, RESPONSES, Endpoint
from splitsecond.wire import anthropic, gemini, responses
from splitsecond.wire.dialect import ServerRequest


class Counting(msgspec.Struct, frozen=True):
    """`parse` reads a request out of its body and its path, `write` says how many tokens it has.

    `endpoint` would answer it; errors have its form.
    """

    endpoint: Endpoint
    parse: Callable[[bytes, str], ServerRequest]
    write: Callable[[int], bytes]


_PATHS: Mapping[str, Counting] = {
    "/v1/messages/count_tokens": Counting(
        MESSAGES, lambda body, _path: anthropic.parse_count(body), anthropic.token_count
    ),
    "/v1/responses/input_tokens": Counting(
        RESPONSES, lambda body, _path: responses.parse_request("chat", body), responses.token_count
    ),
}
_GEMINI_PATH = re.compile(r"/v1(?:beta)?/models/[^/]+:countTokens")
_GEMINI = Counting(GEMINI, gemini.parse_count, gemini.token_count)


def counting_at(path: str) -> Counting | None:
    """What is counted at `path`, without its query; None: nothing is."""
    return _PATHS.get(path) or (_GEMINI if _GEMINI_PATH.fullmatch(path) else None)
