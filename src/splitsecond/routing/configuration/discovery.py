"""Lists of models of servers, and the discovery of servers on this machine by them."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import Struct

from splitsecond.core.catalog.model import CatalogModel
from splitsecond.core.catalog.provider import Provider
from splitsecond.core.errors import PARSER_ERRORS

PORTS = {8000: "vllm", 8080: "llamacpp", 11434: "ollama", 30000: "sglang"}
"""Ports where servers are looked for, and the catalogue's provider that usually listens there."""
OWNERS = {"vllm": "vllm", "llamacpp": "llamacpp", "library": "ollama", "sglang": "sglang"}
"""Providers by the owner that a server's list gives for its models."""
PROBE_S = 0.5
LONGEST_LIST = 1 << 20
MAX_NAME = 300
"""Characters of a model's name."""
LIST_ERRORS = (OSError, http.client.HTTPException, *PARSER_ERRORS)


class ListedModel(Struct):
    id: str
    owned_by: str = ""


class _ModelList(Struct):
    data: list[ListedModel]


def listed_models(
    base_url: str, *, timeout_s: float, headers: Mapping[str, str] | None = None
) -> list[ListedModel]:
    """Return the models that an OpenAI-compatible server lists, without those whose names no target
    can have.

    Raises one of `LIST_ERRORS`.
    """
    body = fetch(f"{base_url.rstrip('/')}/models", timeout_s=timeout_s, headers=headers)
    listed = msgspec.json.decode(body, type=_ModelList).data
    return [
        each
        for each in listed
        if 0 < len(each.id) <= MAX_NAME and each.id.isprintable() and " " not in each.id
    ]


def fetch(
    url: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    most: int = LONGEST_LIST,
) -> bytes:
    """Return up to `most` bytes of a page, without proxies and redirects. Raises one of
    `LIST_ERRORS`."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with direct.open(request, timeout=timeout_s) as answer:
            body: bytes = answer.read(most)
            return body
    except urllib.error.HTTPError as error:
        error.close()  # the error is also the open response
        raise


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because the request may hold a key."""

    def redirect_request(self, *_: object) -> None:
        """Follow nothing, so that the response is an error."""


def find_servers(ports: Iterable[int] = tuple(PORTS)) -> list[Provider]:
    """Return the servers of this machine that list models, with these. A server that is not at the
    port of its entry in the catalogue is ``local-PORT``."""
    with ThreadPoolExecutor() as pool:
        return [server for server in pool.map(_server, ports) if server is not None]


def _server(port: int) -> Provider | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    try:
        data = listed_models(base_url, timeout_s=PROBE_S)
    except LIST_ERRORS:
        return None
    if not data:
        return None
    owner = OWNERS.get(data[0].owned_by, "")
    name = owner if owner and PORTS.get(port) == owner else f"local-{port}"
    return Provider(
        name=name, title=name, base_url=base_url, models={each.id: CatalogModel() for each in data}
    )
