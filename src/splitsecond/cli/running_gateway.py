"""A gateway that runs: its address, and its answers to a command."""

import os
import urllib.error
import urllib.request
from http.client import HTTPException

import msgspec

from splitsecond.core.errors import PARSER_ERRORS, CallerFault
from splitsecond.core.validation import wrong
from splitsecond.routing.configuration.settings import GatewaySettings

WAIT_S = 5.0


def gateway_address(settings: GatewaySettings, url: str) -> str:
    """Return the address of the gateway without a path: `url`, or that of the configuration.

    Raises `CallerFault` if `url` is not an address.
    """
    if url:
        if not url.startswith(("http://", "https://")):
            raise wrong("--url", url, "an address that begins with http:// or https://")
        return url.rstrip("/").removesuffix("/v1")
    host = settings.listen.host
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.listen.port}"


def answer_of(address: str, path: str, key_env: str, *, post: bool = False) -> bytes | None:
    """Return the answer of the gateway at `address`; None if none answers. Raises `CallerFault` if
    it refuses.

    `key_env`: the variable with a client's key; "" for none.
    """
    headers = {"authorization": f"Bearer {os.environ.get(key_env, '')}"} if key_env else {}
    body = b"{}" if post else None
    headers["content-type"] = "application/json"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(f"{address}{path}", body, headers)
        with direct.open(request, timeout=WAIT_S) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(4000).decode("utf-8", "replace")
        raise CallerFault(
            f"the gateway at {address} refuses ({error.code}): {_message(text)}", kind="refused"
        ) from None
    except OSError:
        return None
    except (*PARSER_ERRORS, HTTPException):  # the address is invalid, or the answer is not HTTP
        raise not_a_gateway(address) from None


def not_a_gateway(address: str) -> CallerFault:
    words = f"the server at {address} is not a gateway of this version"
    return CallerFault(words, kind="no_gateway", hint="Name another with --url.")


def _message(body: str) -> str:
    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (*PARSER_ERRORS, KeyError, TypeError):
        return body[:200]
