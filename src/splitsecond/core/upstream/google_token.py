"""Access tokens of Google Cloud, which last an hour: given directly, or obtained with a file of
credentials.

`google-auth` obtains them, with the key file of a service account or a user's login (gcloud's
application_default_credentials.json). It blocks, so it runs in a thread. A token is renewed some
minutes before it expires: the first call in that time waits for the new token, and other calls
still use the old one.
"""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

from splitsecond.core import clock
from splitsecond.core.errors import PARSER_ERRORS, CallerFault, Fault, NetworkFault, parser_words

ASK_S = 10
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
RENEW_BEFORE_NS = 300 * clock.NS_PER_S


class GoogleToken:
    """Access token of one target. `key` is a token, or the path of a file of credentials."""

    def __init__(self, key: str) -> None:
        # no token of Google has a slash
        self._path = key if key.endswith(".json") or "/" in key else ""
        self._value = "" if self._path else key
        self._ends_ns = 0
        self._credentials: Any = None
        self._renewal: asyncio.Task[Fault | None] | None = None
        """The renewal in progress, with the fault that ends it or None. It goes on when the call
        that began it ends."""

    async def value(self) -> str:
        """Return a token that is valid for some minutes.

        Raises `CallerFault` for bad credentials and `NetworkFault` if Google cannot be reached,
        unless an older token is still valid.
        """
        while self._path and clock.now_ns() > self._ends_ns - RENEW_BEFORE_NS:
            valid = clock.now_ns() < self._ends_ns
            if self._renewal is None:
                self._renewal = asyncio.create_task(self._renew())
            elif valid:
                break
            fault = await asyncio.shield(self._renewal)
            if fault is not None:
                if not valid:
                    raise fault
                break
        return self._value

    async def _renew(self) -> Fault | None:
        """Renew the token. Return the fault if that fails: it is raised in all calls that wait for
        the token."""
        try:
            self._value, self._ends_ns = await asyncio.to_thread(self._fetch)
        except Fault as error:
            return error.without_traceback()
        finally:
            self._renewal = None
        return None

    def _fetch(self) -> tuple[str, int]:
        """Return a new token and its end on the monotonic clock. Blocks, so it runs in a thread."""
        try:
            from google.auth import exceptions
            from google.auth.transport.requests import Request
        except ImportError:
            raise CallerFault(
                "credentials of Google Cloud need google-auth, which is not installed",
                kind="bad_key",
                hint='pip install "splitsecond[vertex]", or give an access '
                "token instead of a file.",
            ) from None
        try:
            self._credentials = self._credentials or _read(self._path)
            self._credentials.refresh(partial(Request(), timeout=ASK_S))
        except exceptions.TransportError as error:
            raise NetworkFault(
                f"no access token: Google could not be reached: {error}",
                kind="token_unreachable",
                phase="connect",
            ) from error
        except (
            exceptions.GoogleAuthError,
            OSError,
            *PARSER_ERRORS,
            TypeError,
            AttributeError,
        ) as error:
            # google-auth does not check the types of a file's fields, hence the last two.
            raise CallerFault(
                f"no access token from the credentials in {self._path}: "
                f"{parser_words(error).rstrip('.')}",
                kind="bad_key",
            ) from error
        remaining = self._credentials.expiry - clock.wall_time().replace(tzinfo=None)
        return self._credentials.token, clock.now_ns() + round(
            remaining.total_seconds() * clock.NS_PER_S
        )


def _read(path: str) -> Any:
    """Read a file of credentials. Raises `OSError`, `ValueError` or a google-auth error if it
    contains none.

    Files of federated identities are refused, because they can name a command to run.
    """
    from google.oauth2 import credentials, service_account

    info = json.loads(Path(path).read_text("utf-8"))
    kind = info.get("type") if isinstance(info, dict) else None
    if kind == "service_account":
        return service_account.Credentials.from_service_account_info(info, scopes=SCOPES)  # type: ignore[no-untyped-call]
    if kind == "authorized_user":
        return credentials.Credentials.from_authorized_user_info(info)  # type: ignore[no-untyped-call]
    raise ValueError(
        f"got the type {kind!r}, expected service_account, or authorized_user as "
        "`gcloud auth application-default login` writes it"
    )
