"""How an answer goes out: as a stream, or whole; what its head says, and what its end.

The end has what is known only then: why, the counts, and in some dialects where the provider's time went.
"""

from splitsecond import clock
from splitsecond.simulator.answer import Answer
from splitsecond.simulator.asgi import Send, respond, start
from splitsecond.simulator.asked import Asked
from splitsecond.simulator.connection import Connection
from splitsecond.simulator.content import content
from splitsecond.wire import anthropic, ollama, openai
from splitsecond.wire.dialect import Writer
from splitsecond.wire.limit_headers import Headers
from splitsecond.wire.openai.server_times import end_with_times, whole_with_times
from splitsecond.wire.server_times import PROCESSING_HEADER, Took

IN_STREAM_ERROR = ("the model failed while it answered (simulated)", "server_error", "simulated")


async def stream(asked: Asked, answer: Answer, writer: Writer, connection: Connection, send: Send) -> None:
    """Send it token by token, from the head to the end mark; or break it off as its outcome says."""
    fixed = [(b"content-type", asked.endpoint.content_type), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": [*fixed, *_said_at_once(asked)]})
    opening = writer.opening(usage=asked.usage()) if isinstance(writer, anthropic.StreamWriter) else writer.opening()
    if opening:
        await send({"type": "http.response.body", "body": opening, "more_body": True})
    answer.open()
    match await answer.ended():
        case "complete":
            answer.release()
            answer.stamp()  # what a dialect says only with the end
            await send({"type": "http.response.body", "body": _end(asked, writer, answer.took(asked.arrived_ns))})
        case "error_event":
            await send({"type": "http.response.body", "body": b""})
        case "cut":
            connection.transport.close()
        case _:
            connection.reset()


async def whole(asked: Asked, answer: Answer, connection: Connection, send: Send) -> None:
    """Send it all when its last token is due; or break it off as its outcome says."""
    outcome = await answer.ended()
    if outcome in ("closed_by_client", "abandoned"):
        connection.reset()
        return
    body = _all(asked, answer.took(asked.arrived_ns))
    if outcome == "error_event":
        body = asked.endpoint.dialect.error_body(200, *IN_STREAM_ERROR)
    answer.stamp()
    half = body[: len(body) // 2]
    if outcome == "cut":
        await start(send, 200, len(body), _said_at_once(asked))
        await send({"type": "http.response.body", "body": half, "more_body": True})
        connection.transport.close()
    else:
        await respond(send, 200, half if asked.fault_kind == "malformed" else body, _said_at_once(asked))


def _said_at_once(asked: Asked) -> Headers:
    """The headers of the answer's own."""
    headers = [(asked.endpoint.id_header, asked.request_id.encode("latin-1")), *asked.limit_headers]
    if asked.timings == "openai":
        took_ms = (clock.now_ns() - asked.arrived_ns) // clock.NS_PER_MS
        headers.append((PROCESSING_HEADER.encode(), b"%d" % took_ms))
    return headers


def _end(asked: Asked, writer: Writer, took: Took) -> bytes:
    """What a stream says when its last token has gone."""
    usage = asked.usage()
    finish = writer.finish(asked.finish)
    counts = writer.usage(usage) if asked.request.include_usage else b""
    end = finish + counts
    if asked.timings and asked.timings != "openai" and isinstance(writer, openai.StreamWriter):
        end = end_with_times(asked.timings, finish, counts, usage, took)
    if asked.fault_kind == "no_done":
        return end
    return end + (writer.done(ollama.durations(took)) if isinstance(writer, ollama.StreamWriter) else writer.done())


def _all(asked: Asked, took: Took) -> bytes:
    """An answer that is wanted whole."""
    dialect, usage, model, said = asked.endpoint.dialect, asked.usage(), asked.request.model, [content(asked)]
    if dialect is ollama:
        durations = ollama.durations(took)
        return ollama.whole("chat", model, said, usage, id=asked.answer_id, created=asked.created, timings=durations)
    body = dialect.whole(asked.endpoint.operation, model, said, usage, id=asked.answer_id, created=asked.created)
    if asked.timings and asked.timings != "openai" and dialect is openai:
        return whole_with_times(asked.timings, body, usage, took)
    return body
