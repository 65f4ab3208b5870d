"""Proxies: which one stands between us and an origin, and how to get through it.

For https the proxy is asked to open a tunnel (CONNECT, RFC 9110 section 9.3.6), so it sees nothing of the traffic; for
http it is given the whole URL. Which hosts go direct follows curl's reading of NO_PROXY: "*", a host, a domain with
all below it, an address or a network; an entry with a port holds for that port only.
"""

import asyncio
import base64
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from splitsecond.errors import CallerFault, NetworkFault, excerpt
from splitsecond.transport.exchange import Origin

_MAX_HEAD_BYTES = 64 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r\n")


LOOPBACK = "localhost,127.0.0.0/8,::1"
"""Goes direct whatever the environment says: a proxy elsewhere cannot reach this machine's own servers."""


def proxies_of_environment() -> dict[str, str]:
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY as a mapping from "https", "http" and "no"; lower case names win."""
    found = {
        key: os.environ.get(f"{key}_proxy") or os.environ.get(f"{key.upper()}_PROXY") for key in ("https", "http", "no")
    }
    found["no"] = f"{found['no']},{LOOPBACK}" if found["no"] else LOOPBACK
    return {key: value for key, value in found.items() if value}


class Proxy:
    """One HTTP proxy. Its repr and str leave the credentials out."""

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
        """The Proxy-Authorization header line, or nothing."""
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            token = base64.b64encode(credentials.encode()).decode()
            self.authorization = f"Proxy-Authorization: Basic {token}\r\n"

    def __repr__(self) -> str:
        return f"Proxy({str(self.origin)!r})"

    async def tunnel(self, sock: socket.socket, origin: Origin) -> None:
        """Have the proxy connect `sock` through to `origin`. Raises `NetworkFault` of kind "proxy"."""
        loop = asyncio.get_running_loop()
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        there = f"{host}:{origin.port}"
        request = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{self.authorization}\r\n"
        head = b""
        try:
            await loop.sock_sendall(sock, request.encode("latin-1"))
            while b"\r\n\r\n" not in head:
                data = await loop.sock_recv(sock, _MAX_HEAD_BYTES)
                if not data or len(head) > _MAX_HEAD_BYTES:
                    raise self._refused(f"gave no complete answer to CONNECT {there}, {len(head)} bytes", head)
                head += data
        except OSError as error:
            raise self._refused(f"broke off CONNECT {there}: {error.strerror or error}", head) from error
        status = _STATUS_LINE.match(head)
        if status is None or not 200 <= int(status[1]) < 300:
            raise self._refused(f"answered {status[1].decode() if status else 'no HTTP'} to CONNECT {there}", head)
        if not head.endswith(b"\r\n\r\n"):
            raise self._refused(f"sent bytes of its own into the tunnel to {there}", head)

    def _refused(self, what: str, head: bytes) -> NetworkFault:
        said = f", saying {excerpt(head[:200])!r}" if head else ""
        hint = "It wants a user and password: http://USER:PASSWORD@HOST:PORT." if b" 407" in head[:12] else ""
        return NetworkFault(
            f"the proxy {self.origin} {what}{said}",
            kind="proxy",
            phase="connect",
            hint=hint or "Check HTTPS_PROXY, or list the host in NO_PROXY.",
        )


class Proxies:
    """Which proxy to use for which origin."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` maps "https" and "http" to a proxy's URL, and "no" to hosts that go direct."""
        self._by_scheme = {scheme: Proxy(settings[scheme]) for scheme in ("https", "http") if settings.get(scheme)}
        self._direct = [entry for entry in re.split(r"[,\s]+", settings.get("no", "").lower()) if entry]

    def between(self, origin: Origin) -> Proxy | None:
        """The proxy that stands between us and `origin`; None: go direct."""
        proxy = self._by_scheme.get(origin.scheme)
        return None if proxy is None or any(_covers(entry, origin) for entry in self._direct) else proxy


def _covers(entry: str, origin: Origin) -> bool:
    if entry == "*":
        return True
    name, colon, port = entry.rpartition(":")
    if colon and ":" not in name and port.isdigit():
        return int(port) == origin.port and _covers(name, origin)
    try:
        return ipaddress.ip_address(origin.host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        domain = entry.lstrip("*").lstrip(".")
        return origin.host == domain or origin.host.endswith(f".{domain}")


def _bad_proxy(why: str) -> CallerFault:
    return CallerFault(
        f"cannot use the proxy that is set: {why}", kind="bad_proxy", hint="Set HTTPS_PROXY to http://HOST:PORT."
    )
