"""The rankings of a simulated provider: Cohere's rerank, and the same of Jina and vLLM.

The score of a document is the share of the query's words that it has, so a test can tell the right
order.
"""

import re
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.core.errors import PARSER_ERRORS, CallerFault, parser_words
from splitsecond.core.service import Operation
from splitsecond.simulator.parsing import ServerRequest

MAX_DOCUMENTS = 1_000
_WORD = re.compile(r"\w+")


class RerankRequest(ServerRequest, frozen=True, kw_only=True):
    """A request to rank `documents`. `top_n`: how many to return, None for all. `counts`: the
    answer has the tokens."""

    query: str
    documents: tuple[str, ...]
    top_n: int | None = None
    counts: bool = True


class _Text(Struct):
    text: str = ""


class _Body(Struct):
    model: str
    query: str
    documents: list[str | _Text]
    top_n: int | None = None


class RerankFormat:
    """The form of requests and answers. `counts`: answers have the tokens; Cohere's have none."""

    def __init__(self, api_format: Any, *, counts: bool) -> None:
        self.StreamWriter = api_format.StreamWriter
        self.error_body = api_format.error_body
        self._counts = counts

    def parse_request(self, operation: Operation, body: bytes, path: str) -> ServerRequest:
        try:
            fields = msgspec.json.decode(body, type=_Body)
        except PARSER_ERRORS as error:
            raise CallerFault(f"the request's body is wrong: {parser_words(error)}") from error
        texts = tuple(each if isinstance(each, str) else each.text for each in fields.documents)
        if not texts or len(texts) > MAX_DOCUMENTS:
            raise CallerFault(
                f"the request has {len(texts):,} documents; from 1 to {MAX_DOCUMENTS:,} can be "
                f"ranked"
            )
        return RerankRequest(
            operation=operation,
            model=fields.model,
            stream=False,
            max_tokens=1,
            prompt_text="\n".join([fields.query, *texts]),
            fields={},
            query=fields.query,
            documents=texts,
            top_n=fields.top_n,
            counts=self._counts,
        )


def rerank_response(request: RerankRequest, prompt_tokens: int, response_id: str) -> bytes:
    query_words = set(_WORD.findall(request.query.lower()))
    scores = [_score(query_words, text) for text in request.documents]
    order = sorted(range(len(scores)), key=lambda at: -scores[at])[: request.top_n]
    results = [{"index": at, "relevance_score": scores[at]} for at in order]
    fields: dict[str, Any] = {"id": response_id, "results": results}
    if request.counts:
        fields |= {"model": request.model, "usage": {"total_tokens": prompt_tokens}}
    else:
        fields["meta"] = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    return msgspec.json.encode(fields)


def _score(query_words: set[str], text: str) -> float:
    return len(query_words & set(_WORD.findall(text.lower()))) / max(len(query_words), 1)
