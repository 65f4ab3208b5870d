"""A `Fault` as an answer: status, headers, and body in the client's own format. One table decides.

The provider's refusal of *our* key or account is no fault of the client, who would look for it in its own key: 502.
What is the client's is said with the provider's own code, and with the field that it names. Of several failures the
first target's decides, as that is the one the operator named first; one that was not asked, because it is down or its
dialect has no words for the request, comes after those that were.

Where our targets are is nothing that a client needs to know: addresses and files stay in the fault, which the
observation keeps.
"""

from collections.abc import Mapping

from msgspec import Struct

from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.errors import AllFailed, CallerFault, Fault, NetworkFault, Overloaded, ProviderFault, TimedOut
from splitsecond.policy.remedy import BAD_KEY, UNSPOKEN, ejected
from splitsecond.service import Spoken
from splitsecond.wire import anthropic, openai
from splitsecond.wire.sse import encode_event

Headers = list[tuple[bytes, bytes]]

BAD_GATEWAY = 502
_PROVIDER_STATUS: Mapping[int, int] = {408: 504, 425: 503, 429: 429, 503: 503, 504: 504, 529: 503}
"""What the client is told where the provider answered with a status; 502 for all others."""
QUOTA = "insufficient_quota"
"""OpenAI's word, as type and as code, for money that has run out."""
_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_ANTHROPIC_STATUS: Mapping[int, int] = {503: 529}
"""Its own word for too much to do."""
_NETWORK: Mapping[str, str] = {
    "refused": "the connection was refused",
    "dns": "its host name was not found",
    "reset": "the connection broke",
    "closed": "the connection was closed",
    "truncated": "the connection was closed before the end of the answer",
    "certificate": "its certificate is not trusted",
    "tls": "no TLS connection came about",
    "proxy": "the proxy on the way refused",
    "file_limit": "the gateway has too many open files",
    "token_unreachable": "no access token could be had",
}
"""What a client is told of a failure of the network, by its kind."""
_CONNECTING = frozenset({"dns", "connect", "tls"})
_WAITED_FOR = frozenset({429, 503})


class LimitReached(CallerFault):
    """A client's key has used what it may. `retry_after_ns`: until it may ask again. `headers` go with the refusal."""

    def __init__(
        self, message: str, *, kind: str, retry_after_ns: int, headers: Headers | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, kind=kind, status=429, hint=hint)
        self.retry_after_ns = retry_after_ns
        self.headers = headers or []


class Refusal(Struct, frozen=True):
    """An answer that says no. `body` is JSON."""

    status: int
    headers: Headers
    body: bytes

    @property
    def event(self) -> bytes:
        """The same inside a stream that has begun."""
        return encode_event(self.body)


def refusal(fault: Fault, dialect: Spoken = "openai") -> Refusal:
    """What a client that speaks `dialect` is told of `fault`."""
    first = decisive(fault)
    status = _status(first)
    headers = list(first.headers) if isinstance(first, LimitReached) else []
    wait_ns = first.retry_after_ns if isinstance(first, ProviderFault | Overloaded | LimitReached) else None
    if wait_ns is not None and status in _WAITED_FOR:
        headers.append((b"retry-after", str(max(1, -(-wait_ns // NS_PER_S))).encode()))
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    if first.kind == QUOTA:
        kind = QUOTA
    if dialect == "anthropic":
        status = _ANTHROPIC_STATUS.get(status, status)
        return Refusal(status, headers, anthropic.error_body(status, str(shown(fault))))
    code, param = (first.code or first.kind, first.param) if isinstance(first, CallerFault) else (first.kind, "")
    return Refusal(status, headers, openai.error_body(status, str(shown(fault)), kind, code, param or None))


def shown(fault: Fault) -> Fault:
    """`fault` without addresses, ports and files of ours: the target's name and the kind say enough."""
    match fault:
        case AllFailed():
            return AllFailed([shown(cause) for cause in fault.causes], target=fault.target)
        case NetworkFault():
            words = _NETWORK.get(fault.kind, "it cannot be reached")
            return NetworkFault(words, kind=fault.kind, phase=fault.phase, target=fault.target)
        case TimedOut() if fault.phase in _CONNECTING:
            words = f"no connection in {fault.after_ns // NS_PER_MS} ms"
            return TimedOut(words, kind=fault.kind, phase=fault.phase, target=fault.target, after_ns=fault.after_ns)
        case CallerFault(kind=kind) if kind == BAD_KEY:
            return CallerFault("the gateway has no key for it", kind=kind, phase=fault.phase, target=fault.target)
        case _:
            return fault


def decisive(fault: Fault) -> Fault:
    """Of several failures the one that decides what the client is told."""
    if not isinstance(fault, AllFailed):
        return fault
    return next((cause for cause in fault.causes if not (ejected(cause) or cause.kind == UNSPOKEN)), fault.causes[0])


def _status(fault: Fault) -> int:
    match fault:
        case CallerFault(kind=kind) if kind == BAD_KEY:
            return BAD_GATEWAY
        case CallerFault():
            return fault.status if 400 <= fault.status < 500 else 400
        case ProviderFault():
            return _PROVIDER_STATUS.get(fault.status, BAD_GATEWAY)
        case Overloaded():
            return fault.status
        case TimedOut():
            return 504
        case _:
            return BAD_GATEWAY
