"""The responses of a simulated provider: their content, and how they are sent, as a stream or
whole.

A response is reasoning first, if the profile has any, and then plain words, alone or as the one
argument of a tool call, or the content of its script. The first token of a tool call is its name
with the beginning of its arguments.

The end of a response carries what is known only then: the finish reason, the usage and, in some API
formats, the provider's own timings.
"""

from collections.abc import Callable, Mapping
from math import ceil

from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.serving.request_cycle import JSON, RequestCycle, content_headers
from splitsecond.core.wire import gemini, openai
from splitsecond.core.wire.api_format import AnswerWriter, CalledTool, ServerAnswer, ServerTimes
from splitsecond.core.wire.rate_limits import PROCESSING_HEADER
from splitsecond.simulator.content.embeddings import EmbeddingRequest, embedding_response
from splitsecond.simulator.content.logprobs import with_logprobs
from splitsecond.simulator.content.rerank import RerankRequest, rerank_response
from splitsecond.simulator.content.script import ReplyScript
from splitsecond.simulator.content.tokens import token_text
from splitsecond.simulator.endpoints import ApiEndpoint
from splitsecond.simulator.rate_limit import Headers
from splitsecond.simulator.request import RejectedRequest, SimulatedRequest
from splitsecond.simulator.sender import ResponseSender

IN_STREAM_ERROR = ("the model failed while it answered (simulated)", "server_error", "simulated")
_ERROR_TYPES: Mapping[int, str] = {
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


def renderer(request: SimulatedRequest, writer: AnswerWriter) -> Callable[[int], bytes]:
    """Return the function that encodes token 0, 1, 2, … of the response, in order.

    Some API formats send no bytes for a token until a later one.
    """
    reasoning, tool = request.reasoning_tokens, request.tool
    if request.script is not None:
        return _script_renderer(request.script, writer, request)

    def render(index: int) -> bytes:
        if index < reasoning:
            return writer.token(token_text(index), "reasoning")
        if not tool:
            return writer.token(token_text(index - reasoning))
        begin = writer.tool_call(tool, request.tool_call_id) if index == reasoning else b""
        return begin + writer.token(_argument_fragment(request, index), "tool")

    return render


def _script_renderer(
    script: ReplyScript, writer: AnswerWriter, request: SimulatedRequest
) -> Callable[[int], bytes]:
    choices, top = request.parsed.n, request.top_logprobs

    def render(index: int) -> bytes:
        piece = script.pieces[index]
        parts: list[bytes] = []
        for choice in range(choices):
            if piece.call is not None:
                parts.append(writer.tool_call(piece.call.name, piece.call.id, choice))
            parts.append(writer.token(piece.text, piece.kind, choice))
        data = b"".join(parts)
        return (
            with_logprobs(data, [piece.text], top)
            if top is not None and piece.kind == "text"
            else data
        )

    return render


async def send_stream(
    request: SimulatedRequest, sender: ResponseSender, writer: AnswerWriter, cycle: RequestCycle
) -> None:
    """Send the response token by token, from the headers to the end marker, or break it off as its
    outcome demands."""
    cycle.begin_stream(_headers(request), kind=request.endpoint.content_type)
    cycle.flush()
    usage = request.usage()
    opening = b"".join(writer.opening(choice, usage) for choice in range(request.parsed.n))
    if opening and (request.early_role or request.endpoint.api_format is not openai):
        await cycle.send(opening)
        opening = b""
    sender.open(opening)
    match await sender.ended():
        case "complete":
            sender.release()
            sender.stamp()  # for tokens that the API format sends only with the end
            await cycle.send(_end(request, writer, sender.times(request.arrived_ns)), last=True)
        case "error_event":
            await cycle.send(b"", last=True)
        case "cut":
            cycle.cut()
        case _:
            cycle.reset()


async def send_whole(
    request: SimulatedRequest, sender: ResponseSender, writer: AnswerWriter, cycle: RequestCycle
) -> None:
    """Send the whole response when its last token is due, or break it off as its outcome
    demands."""
    outcome = await sender.ended()
    if outcome in ("closed_by_client", "abandoned"):
        cycle.reset()
        return
    if outcome == "error_event":
        message, kind, code = IN_STREAM_ERROR
        raise RejectedRequest(500, message, code=code, type=kind)
    body = _whole(request, writer, sender.times(request.arrived_ns))
    sender.stamp()
    half = body[: len(body) // 2]
    if outcome == "cut":
        cycle.begin(200, [*content_headers(JSON, body), *_headers(request)])
        await cycle.send(half)
        cycle.cut()
    else:
        await cycle.answer(
            200, half if request.fault_kind == "malformed" else body, _headers(request)
        )


async def send_error(
    cycle: RequestCycle, rejected: RejectedRequest, endpoint: ApiEndpoint | None
) -> None:
    """Send an error in the API format of `endpoint`, or in OpenAI's for an unknown path."""
    kind = rejected.type or _ERROR_TYPES.get(
        rejected.status, "invalid_request_error" if rejected.status < 500 else "server_error"
    )
    headers, wait_s = rejected.headers, rejected.retry_after
    if endpoint is not None and endpoint.retry_in_body:
        body = gemini.error_body(rejected.status, rejected.message, retry_after_s=wait_s)
    else:
        error_body = endpoint.api_format.error_body if endpoint else openai.error_body
        body = error_body(rejected.status, rejected.message, kind, rejected.code)
        if wait_s is not None:
            headers = [(b"retry-after", b"%d" % ceil(wait_s)), *headers]
    await cycle.answer(rejected.status, body, headers)


def _headers(request: SimulatedRequest) -> Headers:
    headers = [
        (request.endpoint.id_header, request.request_id.encode("latin-1")),
        *request.limit_headers,
    ]
    if request.timings == "openai":
        took_ms = (clock.now_ns() - request.arrived_ns) // clock.NS_PER_MS
        headers.append((PROCESSING_HEADER.encode(), b"%d" % took_ms))
    return headers


def _end(request: SimulatedRequest, writer: AnswerWriter, times: ServerTimes) -> bytes:
    _report_times(request, writer, times)
    end = writer.end(
        request.finish,
        request.usage(),
        choices=request.parsed.n,
        counts=request.parsed.include_usage,
        marker=request.fault_kind != "no_done",
    )
    return _with_all_logprobs(end, request) if writer.repeats_text else end


def _whole(request: SimulatedRequest, writer: AnswerWriter, times: ServerTimes) -> bytes:
    if isinstance(request.parsed, EmbeddingRequest):
        return embedding_response(request.parsed, request.prompt_tokens, request.response_id)
    if isinstance(request.parsed, RerankRequest):
        return rerank_response(request.parsed, request.prompt_tokens, request.response_id)
    _report_times(request, writer, times)
    return _with_all_logprobs(
        writer.whole([_content(request)] * request.parsed.n, request.usage()), request
    )


def _report_times(request: SimulatedRequest, writer: AnswerWriter, times: ServerTimes) -> None:
    """Report the times in the response, unless they are in its headers."""
    writer.report_times(
        times, request.timings if request.timings and request.timings != "openai" else None
    )


def _with_all_logprobs(data: bytes, request: SimulatedRequest) -> bytes:
    """Return `data` with the log-probabilities of all tokens of the text, if the request wants
    them."""
    if request.top_logprobs is None or request.script is None:
        return data
    texts = [piece.text for piece in request.script.pieces if piece.kind == "text"]
    return with_logprobs(data, texts, request.top_logprobs)


def _content(request: SimulatedRequest) -> ServerAnswer:
    if request.script is not None:
        return replace(request.script.answer, finish=request.finish)
    reasoning, tool, total = request.reasoning_tokens, request.tool, request.output_tokens
    calls: tuple[CalledTool, ...] = ()
    if tool:
        arguments = "".join(_argument_fragment(request, index) for index in range(reasoning, total))
        calls = (CalledTool(request.tool_call_id, tool, arguments),)
    return ServerAnswer(
        text="" if tool else "".join(map(token_text, range(total - reasoning))),
        reasoning="".join(map(token_text, range(reasoning))),
        calls=calls,
        finish=request.finish,
    )


def _argument_fragment(request: SimulatedRequest, index: int) -> str:
    first, last = request.reasoning_tokens, request.output_tokens - 1
    return (
        ('{"text":"' if index == first else "")
        + token_text(index - first)
        + ('"}' if index == last else "")
    )
