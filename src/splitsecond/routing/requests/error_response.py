"""Error responses: a `Fault` as status, headers, and a body in the client's API format. One table
decides the status.

If a provider rejects the *gateway's* key or account, the client gets 502, so that it does not
search for the error in its own key. A fault of the client keeps the provider's code and the name of
the field. If several targets failed, the first one decides, because the operator named it first;
targets that got no request, because they are down or their API format cannot express it, come last.
If several targets failed because all of them are down, the status is always 503, with the time
until one of them may be asked again.

Clients do not learn the addresses of targets: addresses and files stay in the fault, which the
observation keeps.
"""

from collections.abc import Mapping

from msgspec import Struct

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import (
    KEY_REFUSED,
    NO_CREDIT,
    USAGE_LIMIT,
    AllFailed,
    CallerFault,
    Fault,
    InternalFault,
    NetworkFault,
    Overloaded,
    ProviderFault,
    TimedOut,
)
from splitsecond.core.wire.client_format import OPENAI_CHAT, ClientFormat
from splitsecond.routing.construction.user_policies import PolicyFailed
from splitsecond.routing.machinery.fault_handling import BAD_KEY
from splitsecond.routing.router.call_tracker import decisive

Headers = list[tuple[bytes, bytes]]

BAD_GATEWAY = 502
_PROVIDER_STATUS: Mapping[int, int] = {408: 504, 425: 503, 429: 429, 503: 503, 504: 504, 529: 503}
"""The status for the client, by the status of the provider; 502 for all others."""
_OUR_ACCOUNT = frozenset({KEY_REFUSED, NO_CREDIT, USAGE_LIMIT})
QUOTA = "insufficient_quota"
"""OpenAI's type and code of an error for an account without credit."""
_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_NETWORK: Mapping[str, str] = {
    "refused": "the connection was refused",
    "dns": "its host name was not found",
    "reset": "the connection broke",
    "closed": "the connection was closed",
    "truncated": "the connection was closed before the end of the answer",
    "certificate": "its certificate is not trusted",
    "tls": "the TLS handshake failed",
    "proxy": "the proxy refused the connection",
    "file_limit": "the gateway has too many open files",
    "token_unreachable": "no access token was available",
}
"""Messages for network failures, by kind."""
_CONNECTING = frozenset({"dns", "connect", "tls"})
_WAITED_FOR = frozenset({429, 503})
DOWN_NS = 5 * NS_PER_S
"""When a client may ask again if all targets are down and no time is known: their first probes are
due then."""


class LimitReached(CallerFault):
    """A client's key has reached a limit. `retry_after_ns`: the time until its next request; None:
    not by waiting. `headers`: for the response."""

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        retry_after_ns: int | None,
        headers: Headers | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, kind=kind, status=429, hint=hint)
        self.retry_after_ns = retry_after_ns
        self.headers = headers or []


class ErrorResponse(Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes


def error_response(fault: Fault, form: ClientFormat = OPENAI_CHAT) -> ErrorResponse:
    first = decisive(fault)
    status = _status(first)
    headers = list(first.headers) if isinstance(first, LimitReached) else []
    wait_ns = (
        first.retry_after_ns
        if isinstance(first, ProviderFault | Overloaded | LimitReached)
        else None
    )
    if isinstance(fault, AllFailed) and _all_down(fault):
        status, wait_ns = 503, _least_wait_ns(fault)
    if wait_ns is not None and status in _WAITED_FOR:
        headers.append((b"retry-after", str(max(1, -(-wait_ns // NS_PER_S))).encode()))
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    if first.kind == QUOTA:
        kind = QUOTA
    code, param = (
        (first.code or first.kind, first.param)
        if isinstance(first, CallerFault)
        else (first.kind, "")
    )
    status = form.statuses.get(status, status)
    return ErrorResponse(
        status,
        headers,
        form.error_body(status, str(without_addresses(fault)), kind, code, param or None),
    )


def _all_down(fault: AllFailed) -> bool:
    """Return whether several targets failed, each because it is down, and not all of them by a rate
    limit."""
    names = [cause.target for cause in fault.causes]  # "" in faults of policies
    if len(names) == 1 or (names[0] and set(names) == {names[0]}):
        return False
    return all(map(_is_down, fault.causes)) and any(_status(cause) != 429 for cause in fault.causes)


def _is_down(cause: Fault) -> bool:
    if cause.phase in ("between tokens", "total"):
        return False
    match cause:
        case ProviderFault():
            return cause.kind not in _OUR_ACCOUNT and (
                cause.status in (408, 429) or cause.status >= 500
            )
        case Overloaded():
            return cause.status in _WAITED_FOR
        case _:
            return isinstance(cause, NetworkFault | TimedOut)


def _least_wait_ns(fault: AllFailed) -> int:
    """Return the time until the first of the targets may be asked again."""
    waits = [
        cause.retry_after_ns
        for cause in fault.causes
        if isinstance(cause, ProviderFault | Overloaded)
    ]
    return min(filter(None, waits), default=DOWN_NS)


def without_addresses(fault: Fault) -> Fault:
    """Return `fault` without addresses, ports and files of the gateway; the target's name and the
    kind remain."""
    match fault:
        case AllFailed():
            return AllFailed(
                [without_addresses(cause) for cause in fault.causes], target=fault.target
            )
        case NetworkFault():
            words = _NETWORK.get(fault.kind, "it cannot be reached")
            return NetworkFault(words, kind=fault.kind, phase=fault.phase, target=fault.target)
        case PolicyFailed():
            return PolicyFailed("the route's policy failed", kind=fault.kind, phase=fault.phase)
        case TimedOut() if fault.phase in _CONNECTING:
            words = f"no connection in {fault.after_ns // NS_PER_MS} ms"
            return TimedOut(
                words,
                kind=fault.kind,
                phase=fault.phase,
                target=fault.target,
                after_ns=fault.after_ns,
            )
        case CallerFault(kind=kind) if kind == BAD_KEY:
            return CallerFault(
                "the gateway has no key for it", kind=kind, phase=fault.phase, target=fault.target
            )
        case _:
            return fault


def _status(fault: Fault) -> int:
    match fault:
        case CallerFault(kind=kind) if kind == BAD_KEY:
            return BAD_GATEWAY
        case CallerFault():
            return fault.status if 400 <= fault.status < 500 else 400
        case ProviderFault():
            return (
                BAD_GATEWAY
                if fault.kind in _OUR_ACCOUNT
                else _PROVIDER_STATUS.get(fault.status, BAD_GATEWAY)
            )
        case Overloaded():
            return fault.status
        case TimedOut():
            return 504
        case PolicyFailed() | InternalFault():
            return 500
        case _:
            return BAD_GATEWAY
