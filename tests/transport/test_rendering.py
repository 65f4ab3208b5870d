"""Requests as bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.transport.exchange import Origin, Request
from splitsecond.core.transport.request_bytes import LONG_BODY, render

ORIGIN = Origin("http", "api.example.com", 8000)


def rendered(request: Request, origin: Origin, **how: Any) -> bytes:
    """The bytes of a request with a short body, which are one piece."""
    whole, rest = render(request, origin, **how)
    assert not rest
    return whole


def test_long_body_is_not_copied() -> None:
    short, long = b"x" * (LONG_BODY - 1), b"x" * LONG_BODY
    assert rendered(Request("POST", "/", (), short), ORIGIN).endswith(short)
    head, body = render(Request("POST", "/", (), long), ORIGIN)
    assert body is long
    assert head.endswith(b"Content-Length: 65536\r\n\r\n")


def test_a_post() -> None:
    request = Request(
        "POST",
        "/v1/chat?x=1",
        (
            ("Authorization", " Bearer k "),
            ("X-\x41", "é"),
        ),
        b"{}",
    )
    assert rendered(request, ORIGIN) == (
        b"POST /v1/chat?x=1 HTTP/1.1\r\nHost: api.example.com:8000\r\nAuthorization: Bearer "
        b"k\r\nX-A: \xe9\r\n"
        b"Accept-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}"
    )


def test_get_has_no_content_length_and_empty_post_has_zero() -> None:
    assert b"Content-Length" not in rendered(Request("GET", "/"), ORIGIN)
    assert b"Content-Length: 0\r\n\r\n" in rendered(Request("POST", "/"), ORIGIN)


def test_host_and_accept_encoding_may_be_given() -> None:
    request = Request(
        "GET",
        "/",
        (
            ("HOST", "other"),
            ("Accept-encoding", "gzip"),
        ),
    )
    assert (
        rendered(request, ORIGIN)
        == b"GET / HTTP/1.1\r\nHOST: other\r\nAccept-encoding: gzip\r\n\r\n"
    )


def test_through_a_proxy_the_request_line_names_the_whole_url() -> None:
    wire = rendered(
        Request("GET", "/a"), ORIGIN, via_proxy=True, extra="Proxy-Authorization: Basic eA==\r\n"
    )
    assert wire.startswith(
        b"GET http://api.example.com:8000/a HTTP/1.1\r\nHost: api.example.com:8000\r\n"
    )
    assert wire.endswith(b"\r\nProxy-Authorization: Basic eA==\r\n\r\n")


@each_case(
    "request_, kind",
    [
        (Request("GET /", "/"), "bad_request"),
        (Request("", "/"), "bad_request"),
        (Request("GET", "v1"), "bad_url"),
        (Request("GET", "/a b"), "bad_url"),
        (Request("GET", "/a\r\nX: y"), "bad_url"),
        (Request("GET", "/", (("X Y", ""),)), "bad_header"),
        (Request("GET", "/", (("X:", ""),)), "bad_header"),
        (Request("GET", "/", (("Content-Length", "3"),)), "bad_header"),
        (Request("GET", "/", (("transfer-encoding", "chunked"),)), "bad_header"),
        (Request("GET", "/", (("Authorization", "secret\nX: y"),)), "bad_header"),
        (
            Request("GET", "/", (("Authorization", "secret\N{RIGHT SINGLE QUOTATION MARK}"),)),
            "bad_header",
        ),
    ],
)
def test_invalid_requests_are_refused(request_: Request, kind: str) -> None:
    with pytest.raises(CallerFault) as caught:
        rendered(request_, ORIGIN)
    assert caught.value.kind == kind
    assert "secret" not in str(caught.value)


def test_own_headers_are_added_to_shared_headers() -> None:
    request = Request("POST", "/", (("A", "1"),), b"{}", fresh=(("B", " 2 "),))
    assert rendered(request, ORIGIN).endswith(b"\r\nB: 2\r\nContent-Length: 2\r\n\r\n{}")
    with pytest.raises(CallerFault, match="twice"):
        rendered(Request("POST", "/", (("A", "1"),), fresh=(("a", "2"),)), ORIGIN)


@given(
    method=st.text(max_size=8),
    path=st.text(max_size=20),
    name=st.text(max_size=8),
    value=st.text(max_size=20),
)
def test_no_method_path_or_header_adds_a_line(
    method: str, path: str, name: str, value: str
) -> None:
    try:
        wire = rendered(
            Request(method, path, ((name, value),), fresh=((f"{name}-2", value),)), ORIGIN
        )
    except CallerFault:
        return
    head, _, body = wire.partition(b"\r\n\r\n")
    assert body == b""
    assert head.count(b"\r\n") == head.count(b"\n") == head.count(b"\r") <= 5
