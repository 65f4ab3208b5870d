"""Origins out of URLs, and when a request goes out a second time."""

import asyncio
from typing import cast

import pytest
from tests.cases import each_case
from tests.transport.peers import Recorder

from splitsecond.core.errors import CallerFault, NetworkFault
from splitsecond.core.transport.exchange import Connected, Exchange, Origin


@each_case(
    "url, origin, path, authority",
    [
        (
            "https://api.example.com/v1",
            Origin("https", "api.example.com", 443),
            "/v1",
            "api.example.com",
        ),
        ("http://LOCALHOST:8000", Origin("http", "localhost", 8000), "/", "localhost:8000"),
        ("http://[::1]:8000/v1?x=1#y", Origin("http", "::1", 8000), "/v1?x=1", "[::1]:8000"),
        ("https://[2001:db8::1]/", Origin("https", "2001:db8::1", 443), "/", "[2001:db8::1]"),
        (
            " https://münchen.example/a%20b ",
            Origin("https", "xn--mnchen-3ya.example", 443),
            "/a%20b",
            None,
        ),
        ("http://h:80?q", Origin("http", "h", 80), "/?q", "h"),
    ],
)
def test_origin_of_a_url(url: str, origin: Origin, path: str, authority: str | None) -> None:
    assert Origin.parse(url) == (origin, path)
    assert origin.authority == (authority or origin.host)
    assert str(origin) == f"{origin.scheme}://{origin.authority}"


@each_case(
    "url, why",
    [
        ("api.example.com/v1", "got scheme ''"),
        ("ftp://h/", "got scheme 'ftp'"),
        ("http:///v1", "names no host"),
        ("http://h:99999/", "ort out of range"),
        ("http://h:x/", "ort could not be cast"),
        ("http://a..b/", "label"),
        ("http://[::1/", "IPv6"),
        ("http://user:secret@h/", "holds credentials"),
        ("http://h/a b", "position 2"),
        ("http://h/é", "Percent-encode"),
    ],
)
def test_urls_that_cannot_be_used(url: str, why: str) -> None:
    with pytest.raises(CallerFault) as caught:
        Origin.parse(url)
    assert why in str(caught.value)
    assert caught.value.kind == "bad_url"
    assert "secret" not in str(caught.value)


@each_case("reused", [True, False])
@each_case("answered", [True, False])
@each_case("resent", [True, False])
def test_request_is_resent_only_if_no_byte_was_answered(
    reused: bool, answered: bool, resent: bool
) -> None:
    reconnects: list[Exchange] = []

    def again(exchange: Exchange) -> asyncio.Task[None]:
        reconnects.append(exchange)
        return cast("asyncio.Task[None]", None)

    receiver = Recorder()
    exchange = Exchange(receiver, Connected(1, reused, 0, 0, 0, "127.0.0.1:1"), again)
    exchange.resent = resent
    exchange.finish(5, NetworkFault("lost", kind="reset", phase="head"), answered=answered)
    if reused and not answered and not resent:
        assert reconnects == [exchange]
        assert exchange.resent
        assert receiver.story == []
    else:
        assert reconnects == []
        assert receiver.story == ["reset"]
