"""A client's own credentials, which go to the vendor whose API the client uses and nowhere else.

They are never stored or logged: the repr omits them, and `secrets` removes them from faults.
"""

from collections.abc import Mapping

from msgspec import Struct

from splitsecond.core.redaction import MIN_SECRET

_KEYS = (b"authorization", b"x-api-key", b"x-goog-api-key")
SUBSCRIPTION_HEADER = b"chatgpt-account-id"
"""Codex sends it with the credentials of a ChatGPT subscription."""
_BESIDE = (
    SUBSCRIPTION_HEADER, b"openai-organization", b"openai-project", b"openai-beta", b"originator",
    b"version",
    b"x-goog-user-project", b"x-goog-api-client", b"x-app", b"user-agent",
)  # fmt: skip
"""Headers that belong to the credentials: the account they are for, and the program, which some
vendors check for the tokens of a subscription."""
VENDORS: Mapping[str, str] = {
    "openai": "openai",
    "responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "ollama": "ollama",
}
"""The vendor of each API format whose clients' credentials can be passed on."""


KEYLESS = frozenset({"ollama"})
"""Vendors whose clients may have no credentials: the server is the user's own."""


class ClientCredentials(Struct, frozen=True):
    """`vendor`: whose API the client uses, one of the values of `VENDORS`. `headers`: what it
    sent."""

    vendor: str
    headers: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"ClientCredentials({self.vendor!r})"

    @property
    def secrets(self) -> list[str]:
        names = {name.decode() for name in _KEYS}
        values = [
            value.split()[-1] for name, value in self.headers if name in names and value.strip()
        ]
        return [value for value in values if len(value) >= MIN_SECRET]


def client_credentials(
    vendor: str, headers: Mapping[bytes, bytes], ours: frozenset[bytes] = frozenset()
) -> ClientCredentials | None:
    """Return the credentials in the `headers` of a request; None if there are none.

    `ours`: names of headers that hold a key of the gateway, which no vendor may get.
    """
    keys = [name for name in _KEYS if name in headers and name not in ours]
    if not keys:
        return None
    beside = [name for name in _BESIDE if name in headers]
    return ClientCredentials(
        vendor, tuple((name.decode(), headers[name].decode("latin-1")) for name in keys + beside)
    )
