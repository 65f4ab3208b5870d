"""Proxies: which one is used, whether one is used, and requests through it."""

import asyncio
import ssl
from contextlib import suppress

import pytest
import trustme
from tests.cases import each_case
from tests.transport.conftest import Run
from tests.transport.peers import GET, HELLO, Peer, Recorder, Script, close, stay

from splitsecond.core.errors import CallerFault, NetworkFault
from splitsecond.core.transport import Client, Origin
from splitsecond.core.transport.proxy import LOOPBACK, Proxies, Proxy, proxies_of_environment

API = Origin("https", "api.example.com", 443)
WHOLE_HELLO = [("head", 200), b"hello", "ended"]


@each_case(
    "no_proxy, url, goes_direct",
    [
        ("", "https://api.example.com", False),
        ("*", "https://api.example.com", True),
        ("example.com", "https://api.example.com", True),
        (".example.com", "https://api.example.com", True),
        ("*.example.com", "https://api.example.com", True),
        ("API.example.com", "https://api.example.com", True),
        ("ample.com", "https://api.example.com", False),
        ("api.example.com:443", "https://api.example.com", True),
        ("api.example.com:444", "https://api.example.com", False),
        ("a, localhost  b", "https://localhost:8000", True),
        ("127.0.0.1", "https://127.0.0.1:8000", True),
        ("127.0.0.0/8", "https://127.1.2.3", True),
        ("10.0.0.0/8", "https://127.1.2.3", False),
        ("::1", "https://[::1]:8000", True),
        ("[::1]", "https://[::1]:8000", True),
        ("fd00::/8", "https://[fd00::2]", True),
        ("10.0.0.0/8", "https://api.example.com", False),
    ],
)
def test_no_proxy_selects_direct_origins(no_proxy: str, url: str, goes_direct: bool) -> None:
    proxies = Proxies({"https": "http://proxy:3128", "no": no_proxy})
    assert (proxies.proxy_for(Origin.parse(url)[0]) is None) is goes_direct


def test_each_scheme_has_its_own_proxy() -> None:
    proxies = Proxies({"https": "proxy-a:1", "http": ""})
    assert proxies.proxy_for(Origin("http", "h", 80)) is None
    assert repr(proxies.proxy_for(API)) == "Proxy('http://proxy-a:1')"


def test_lower_case_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "http_proxy", "no_proxy", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert proxies_of_environment() == {"no": LOOPBACK}
    monkeypatch.setenv("HTTPS_PROXY", "http://upper")
    monkeypatch.setenv("HTTP_PROXY", "http://upper")
    monkeypatch.setenv("http_proxy", "http://lower")
    monkeypatch.setenv("NO_PROXY", "x")
    assert proxies_of_environment() == {
        "https": "http://upper",
        "http": "http://lower",
        "no": f"x,{LOOPBACK}",
    }
    assert Client() is not None


@pytest.mark.parametrize("host", ["localhost", "api.localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_loopback_never_uses_a_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    proxies = Proxies(proxies_of_environment())
    assert proxies.proxy_for(Origin("http", host, 8000)) is None
    assert proxies.proxy_for(Origin("http", "10.0.0.5", 8000)) is not None


@pytest.mark.parametrize("url", ["https://p:1", "socks5://p:1", "http://", "http://p:x"])
def test_unsupported_proxy_url_is_refused(url: str) -> None:
    with pytest.raises(CallerFault) as caught:
        Client(proxies={"https": url})
    assert caught.value.kind == "bad_proxy"


def test_credentials_are_sent_and_not_shown() -> None:
    proxy = Proxy("http://me:s%40cret@proxy:3128")
    assert proxy.authorization == "Proxy-Authorization: Basic bWU6c0BjcmV0\r\n"
    assert "cret" not in repr(proxy)


def tunnelling(asked: list[bytes]) -> Script:
    """A script: a proxy that opens a tunnel to wherever CONNECT says."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head)
        host, _, port = head.split()[1].decode().rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(pump(reader, far_writer))
                pumps.create_task(pump(far_reader, writer))
        finally:
            far_writer.close()

    return script


def test_https_goes_through_a_tunnel(run: Run) -> None:
    authority = trustme.CA()
    server, trust = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(trust)
    asked: list[bytes] = []

    async def story() -> None:
        async with Peer(stay(HELLO, HELLO), tls=server) as peer, Peer(tunnelling(asked)) as proxy:
            client = Client(trust=trust, proxies={"https": f"http://u:p@127.0.0.1:{proxy.port}"})
            for reused in (False, True):
                receiver = Recorder()
                exchange = await client.send(peer.origin, GET, receiver)
                await receiver.over.wait()
                assert receiver.story == WHOLE_HELLO
                assert exchange.connection.reused is reused
                assert exchange.connection.peer == f"127.0.0.1:{proxy.port}"
            there = f"127.0.0.1:{peer.port}"
            assert asked == [
                f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\nProxy-Authorization: Basic "
                f"dTpw\r\n\r\n".encode()
            ]
            asked.clear()
            client.close()

    run(story())


@each_case(
    "answer, why",
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "answered 407 .*USER:PASSWORD"),
        (b"HTTP/1.0 403 Forbidden\r\n\r\n<html>no</html>", "answered 403 .*NO_PROXY"),
        (b"HTTP/1.1 200\r\n\r\nhello", "extra bytes into the tunnel"),
        (b"SSH-2.0\r\n\r\n", "answered no HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "no complete response"),
        (b"", "no complete response"),
        (b"x" * 200_000, "no complete response"),
    ],
)
def test_refusal_of_a_proxy_is_a_network_fault(run: Run, answer: bytes, why: str) -> None:
    async def story() -> None:
        async with Peer(close(answer)) as proxy:
            client = Client(
                trust=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                proxies={"https": f"http://127.0.0.1:{proxy.port}"},
            )
            with pytest.raises(NetworkFault, match=why) as caught:
                await client.send(API, GET, Recorder())
            assert caught.value.kind == "proxy"
            assert caught.value.phase == "connect"
            assert f"http://127.0.0.1:{proxy.port}" in str(caught.value)

    run(story())


def test_http_request_to_a_proxy_names_the_whole_url(run: Run) -> None:
    heads: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(HELLO)
        await reader.read()

    async def story() -> None:
        async with Peer(script) as proxy:
            client = Client(proxies={"http": f"http://u:p@127.0.0.1:{proxy.port}"})
            receiver = Recorder()
            await client.send(Origin("http", "api.example.com", 8000), GET, receiver)
            await receiver.over.wait()
            assert receiver.story == WHOLE_HELLO
            assert heads.pop() == (
                b"GET http://api.example.com:8000/ HTTP/1.1\r\nHost: api.example.com:8000\r\n"
                b"Accept-Encoding: identity\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
            )
            client.close()

    run(story())
