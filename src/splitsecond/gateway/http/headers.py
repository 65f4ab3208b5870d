"""Headers of clients' requests that policies see, and the headers of responses.

docs/reference/headers.md is generated from the two tables.
"""

from collections.abc import Mapping
from functools import lru_cache

from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.wire.client_format import ClientFormat, client_format
from splitsecond.routing.requests.error_response import Headers
from splitsecond.routing.router.call_tracker import OpenCall

REQUEST_HEADERS: Mapping[str, str] = {
    "authorization, x-api-key, x-goog-api-key": "The client's key, in the form of the client's "
    "library.",
    "x-splitsecond-key": "The same, where those headers hold the client's own "
    "credentials for a vendor "
    "(`credentials: client`).",
    "x-splitsecond-complexity": "simple, medium or complex: a hint for `by_complexity`.",
    "x-splitsecond-task": "A name: a hint for `by_task`.",
    "x-splitsecond-region": "A region: a hint for `near`.",
    "cache-control": "no-cache, no-store or max-age=60: for `cache`.",
    "x-splitsecond-allow": "session: a session that has reached a budget with `at_limit: ask` may "
    "use it once more.",
    "anthropic-beta, anthropic-version": "Passed on to targets of Anthropic's API format.",
}
RESPONSE_HEADERS: Mapping[str, str] = {
    "x-request-id": "The call's id in the log. Every response has it, refusals too.",
    "x-splitsecond-target": "The target that responded.",
    "x-splitsecond-tier": "The speed tier that served the request, in the provider's word. Only "
    "on responses that are "
    "not streamed, and only if the provider reports it.",
    "x-splitsecond-attempts": "The number of attempts.",
    "x-splitsecond-cache": "hit, shared or miss, if `cache` checked.",
    "x-splitsecond-chosen": "The reason, if a policy chose.",
    "x-splitsecond-session": "The id of the session that the call belongs to: see `splitsecond "
    "sessions`.",
    "x-splitsecond-left": "The target that answered the session's call before, if it is another "
    "one: its prompt cache "
    "is lost.",
    "x-splitsecond-dropped": "Dropped fields of the request. usage: streams of the target have no "
    "token counts "
    "(Replicate's).",
    "x-splitsecond-added": "A field that the target's API format requires and the request lacked. "
    "max_tokens=64000: "
    "the maximum of the model if it is known, otherwise 8192 and the budget of reasoning.",
    "x-splitsecond-estimated": "input_tokens: the count is estimated from the length. usage: the "
    "target reported no "
    "token counts, only some, or counts that cannot be true; the others are the estimates by "
    "which limits and costs "
    "are computed. Only on responses that are not streamed. message_start: this event of the "
    "stream has an estimate of "
    "the input tokens; message_delta has the target's count.",
    "x-splitsecond-cost-usd": "The cost of the call by tokens, losers of a race included. Only on "
    "responses that are "
    "not streamed, and only if the price of every attempted target is known.",
    "x-splitsecond-cost-low-usd": "The least that the call may cost, if the provider of a request "
    "that was closed "
    "early bills on, or its rule is not known.",
    "x-splitsecond-cost-high-usd": "The most that it may cost: that of an answer as long as "
    "`max_tokens`.",
    "x-splitsecond-session-budget": "What the session has used of its budget, from 80% on.",
    "x-splitsecond-loop": "The tool that the model has called at least three times in a row with "
    "the same arguments, "
    "and how often.",
    "retry-after": "Seconds until the next request has a chance.",
    "server-timing": "ttft: from the request's arrival to the first token. If the response is not "
    "streamed, also "
    "connect and upstream: the connection to the target, and from the target's request to its end.",
    "x-ratelimit-limit-requests": "The requests per minute that the client's key allows.",
    "x-ratelimit-remaining-requests": "What is left of them.",
    "x-ratelimit-reset-requests": "Seconds until all of them are available again.",
}
LONGEST_HINT = 1024
LONGEST_HEADER = 1024
HINTS = (
    (b"x-splitsecond-complexity", "complexity"),
    (b"x-splitsecond-task", "task"),
    (b"x-splitsecond-region", "region"),
    (b"cache-control", "cache"),
    (b"anthropic-beta", "betas"),
    (b"anthropic-version", "version"),
    (b"traceparent", "traceparent"),
)
"""Headers of the client that policies see, and the names that policies use for them."""
HINT_HEADERS = frozenset(name for name, _ in HINTS)


def response_headers(cycle: RequestCycle, open_call: OpenCall) -> Headers:
    headers = call_headers(cycle, open_call.call, open_call.first_token_ns, open_call.target)
    headers.append((b"x-splitsecond-target", header_value(open_call.target)))
    return headers


def server_timing(attempt: Observation) -> bytes:
    """Return the times of an attempt for `Server-Timing`: connecting, and from the request to the
    end."""
    sent_ns = attempt.sent_ns or attempt.start_ns
    connect_ms = (attempt.dns_ns + attempt.tcp_ns + attempt.tls_ns) / clock.NS_PER_MS
    return b"connect;dur=%.3f, upstream;dur=%.3f" % (
        connect_ms,
        (attempt.end_ns - sent_ns) / clock.NS_PER_MS,
    )


def id_headers(identity: bytes, form: ClientFormat) -> Headers:
    if form.id_header:
        return [(b"x-request-id", identity), (form.id_header, identity)]
    return [(b"x-request-id", identity)]


def call_headers(
    cycle: RequestCycle, call: Call, token_ns: int | None = None, target: str = ""
) -> Headers:
    """Return the headers about a call so far. `token_ns`: the time of its first token; `target`:
    the target that answers."""
    notes = call.notes
    waited_ms = ((token_ns or clock.now_ns()) - cycle.start_ns) / clock.NS_PER_MS
    headers = id_headers(call.id.encode(), client_format(call))
    headers.append((b"x-splitsecond-attempts", b"%d" % notes.attempts))
    headers.append((b"server-timing", b"ttft;dur=%.3f" % waited_ms))
    if notes.cache:
        headers.append((b"x-splitsecond-cache", header_value(notes.cache)))
    if notes.chosen:
        headers.append((b"x-splitsecond-chosen", header_value(notes.chosen)))
    if notes.session is not None:
        headers.append((b"x-splitsecond-session", notes.session.id.encode()))
        if notes.left:
            headers.append((b"x-splitsecond-left", header_value(notes.left)))
    if notes.dropped or target in notes.left_out:
        dropped = ", ".join([*notes.dropped, *notes.left_out.get(target, ())])
        headers.append((b"x-splitsecond-dropped", header_value(dropped)))
    if target in notes.added:
        headers.append((b"x-splitsecond-added", header_value(notes.added[target])))
    if target in notes.estimated:
        headers.append((b"x-splitsecond-estimated", b"message_start"))
    return headers


def hints(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the hints for policies in the client's headers, each cut to `LONGEST_HINT` bytes."""
    return {
        hint: headers[name][:LONGEST_HINT].decode("latin-1").strip()
        for name, hint in HINTS
        if name in headers
    }


def usd_value(amount: float) -> bytes:
    return f"{amount:.9f}".rstrip("0").rstrip(".").encode()


def header_value(text: str) -> bytes:
    """Return the first `LONGEST_HEADER` characters of `text` as the value of a header, "?" for what
    it may not hold."""
    # the cache must not contain long texts of clients
    return _cached_header_value(text[:LONGEST_HEADER])


@lru_cache(maxsize=1024)
def _cached_header_value(text: str) -> bytes:
    if text.isascii() and text.isprintable():
        return text.encode()
    return "".join(c if " " <= c <= "~" else "?" for c in text).encode()


def is_json(cycle: RequestCycle) -> bool:
    return cycle.header(b"content-type").lower().startswith(b"application/json")
