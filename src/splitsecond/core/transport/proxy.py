"""HTTP proxies: which one applies to an origin, and how to open a tunnel through it.

For https the proxy opens a tunnel (CONNECT, RFC 9110 section 9.3.6) and sees nothing of the
traffic; for http it gets the whole URL. NO_PROXY is read as curl does: "*", a host, a domain with
all its subdomains, an address or a network; an entry with a port applies to that port only.
"""

import asyncio
import base64
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from splitsecond.core.errors import CallerFault, NetworkFault, excerpt
from splitsecond.core.transport.exchange import Origin

_MAX_HEAD_BYTES = 64 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r\n")


LOOPBACK = "localhost,127.0.0.0/8,::1"
"""Hosts that never use a proxy: one elsewhere cannot reach this machine's own servers."""


def proxies_of_environment() -> dict[str, str]:
    proxies = {
        key: os.environ.get(f"{key}_proxy") or os.environ.get(f"{key.upper()}_PROXY")
        for key in ("https", "http", "no")
    }
    proxies["no"] = f"{proxies['no']},{LOOPBACK}" if proxies["no"] else LOOPBACK
    return {key: value for key, value in proxies.items() if value}


class Proxy:
    """One HTTP proxy. Its repr and str hold no credentials."""

    def __init__(self, url: str) -> None:
        """Raises `CallerFault` unless `url` names an http proxy, as http://[USER:PASSWORD@]HOST[:PORT]."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _bad_proxy(str(error)) from error
        if parts.scheme != "http":
            raise _bad_proxy(f"got scheme {parts.scheme!r}, expected http")
        if not host:
            raise _bad_proxy("it names no host")
        self.origin = Origin("http", host, 80 if port is None else port)
        self.authorization = ""
        """The Proxy-Authorization header line; "" without credentials."""
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            token = base64.b64encode(credentials.encode()).decode()
            self.authorization = f"Proxy-Authorization: Basic {token}\r\n"

    def __repr__(self) -> str:
        return f"Proxy({str(self.origin)!r})"

    async def tunnel(self, sock: socket.socket, origin: Origin) -> None:
        loop = asyncio.get_running_loop()
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        target = f"{host}:{origin.port}"
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{self.authorization}\r\n"
        head = b""
        try:
            await loop.sock_sendall(sock, request.encode("latin-1"))
            while b"\r\n\r\n" not in head:
                data = await loop.sock_recv(sock, _MAX_HEAD_BYTES)
                if not data or len(head) > _MAX_HEAD_BYTES:
                    raise self._refused(
                        f"sent no complete response to CONNECT {target}, {len(head)} bytes", head
                    )
                head += data
        except OSError as error:
            raise self._refused(
                f"closed the connection during CONNECT {target}: {error.strerror or error}", head
            ) from error
        status = _STATUS_LINE.match(head)
        if status is None or not 200 <= int(status[1]) < 300:
            raise self._refused(
                f"answered {status[1].decode() if status else 'no HTTP'} to CONNECT {target}", head
            )
        if not head.endswith(b"\r\n\r\n"):
            raise self._refused(f"sent extra bytes into the tunnel to {target}", head)

    def _refused(self, what: str, head: bytes) -> NetworkFault:
        reply = f": {excerpt(head[:200])!r}" if head else ""
        hint = (
            "The proxy needs a user and password: http://USER:PASSWORD@HOST:PORT."
            if b" 407" in head[:12]
            else ""
        )
        return NetworkFault(
            f"the proxy {self.origin} {what}{reply}",
            kind="proxy",
            phase="connect",
            hint=hint or "Check HTTPS_PROXY, or list the host in NO_PROXY.",
        )


class Proxies:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self._by_scheme = {
            scheme: Proxy(settings[scheme]) for scheme in ("https", "http") if settings.get(scheme)
        }
        self._direct = [
            entry for entry in re.split(r"[,\s]+", settings.get("no", "").lower()) if entry
        ]

    def proxy_for(self, origin: Origin) -> Proxy | None:
        proxy = self._by_scheme.get(origin.scheme)
        return (
            None
            if proxy is None or any(_covers(entry, origin) for entry in self._direct)
            else proxy
        )


def _covers(entry: str, origin: Origin) -> bool:
    if entry == "*":
        return True
    name, colon, port = entry.rpartition(":")
    if colon and ":" not in name and port.isdigit():
        return int(port) == origin.port and _covers(name, origin)
    try:
        return ipaddress.ip_address(origin.host) in ipaddress.ip_network(
            entry.strip("[]"), strict=False
        )
    except ValueError:
        domain = entry.lstrip("*").lstrip(".")
        return origin.host == domain or origin.host.endswith(f".{domain}")


def _bad_proxy(why: str) -> CallerFault:
    return CallerFault(
        f"the proxy setting is unusable: {why}",
        kind="bad_proxy",
        hint="Set HTTPS_PROXY to http://HOST:PORT.",
    )
