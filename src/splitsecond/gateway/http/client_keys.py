"""The keys of clients: which one a request presents, and the client's own credentials beside it."""

import hashlib
import hmac
from collections.abc import Sequence

from splitsecond.core import clock
from splitsecond.core.client_credentials import VENDORS, ClientCredentials, client_credentials
from splitsecond.core.errors import CallerFault
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.wire.client_format import ClientFormat
from splitsecond.gateway.http.wrong_keys import WrongKey
from splitsecond.routing.router.settings import ClientKey

MAX_CACHED_KEYS = 4096
"""Authorization headers that were valid, cached with their keys to save a hash for each request."""
LONGEST_CACHED_KEY = 1024
"""Longer headers are not cached: any number of spaces may precede a key."""
_KEY_HEADERS = (b"authorization", b"x-splitsecond-key", b"x-api-key", b"x-goog-api-key")


class ClientKeys:
    """Finds the key of a request. `unnamed`: the client of all requests if there are no `keys`.

    `limited`: the clients whose keys or teams have limits. `teams`: the teams of clients, by name.
    """

    def __init__(self, keys: Sequence[ClientKey], unnamed: str) -> None:
        self._keys = {digest: key for key in keys for digest in key.digests}
        self._cached: dict[bytes, ClientKey] = {}
        self._unnamed = unnamed
        self.limited = {key.name for key in keys if key.bearers}
        self.teams = {key.name: key.team.name for key in keys if key.team is not None}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def key(self, cycle: RequestCycle) -> ClientKey | None:
        """Return the key of a request, and note its client; None if no keys are configured. Raises
        `CallerFault` if none is valid.

        Valid headers are cached in a dictionary, whose hashes are not known outside this process.
        Two values are compared only if their hashes are equal, so the time this takes reveals
        nothing about a key.
        """
        if not self._keys:
            cycle.client = self._unnamed
            return None
        authorization = cycle.headers.get(b"authorization", b"")
        key = self._cached.get(authorization) or self._presented(cycle, authorization)
        if key is None:
            hint = "Send it as Authorization: Bearer KEY, or as x-api-key: KEY."
            kind = WrongKey if any(name in cycle.headers for name in _KEY_HEADERS) else CallerFault
            raise kind("no valid key", kind="invalid_api_key", status=401, hint=hint)
        cycle.client = key.name
        return key

    def _presented(self, cycle: RequestCycle, authorization: bytes) -> ClientKey | None:
        """Return the key in the `authorization` header, or in another of `_KEY_HEADERS`; None if
        none is valid."""
        key = self._find(_secret(authorization))
        if key is None:
            return self._find(
                next(
                    (cycle.headers[name] for name in _KEY_HEADERS[1:] if name in cycle.headers), b""
                )
            )
        if key.former:  # a former key may expire, so it is looked up again
            return key
        if len(self._cached) < MAX_CACHED_KEYS and len(authorization) <= LONGEST_CACHED_KEY:
            self._cached[authorization] = key
        return key

    def _find(self, presented: bytes) -> ClientKey | None:
        """Return the client key for a secret, looked up by its hash and compared in constant time,
        so that the time this takes reveals nothing about a key."""
        digest = hashlib.sha256(presented.strip()).digest()
        key = self._keys.get(digest)
        if key is None or hmac.compare_digest(key.digest, digest):
            return key
        now_s = clock.wall_time().timestamp()
        valid = (
            hmac.compare_digest(each.digest, digest)
            and (each.until_s is None or now_s < each.until_s)
            for each in key.former
        )
        return key if any(valid) else None

    def credentials(self, cycle: RequestCycle, form: ClientFormat) -> ClientCredentials | None:
        """Return the client's own credentials for the vendor of its API; never a key of this
        gateway."""
        ours = [
            name for name in _KEY_HEADERS if self._keys and self._find(_secret(cycle.header(name)))
        ]
        return client_credentials(
            VENDORS.get(form.vendor) or VENDORS[form.name], cycle.headers, frozenset(ours)
        )


def _secret(value: bytes) -> bytes:
    return value[7:] if value[:7].lower() == b"bearer " else value
