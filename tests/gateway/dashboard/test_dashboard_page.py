"""Access to the dashboard: everyone gets the page, its data needs the same rights as the metrics;
and its policy."""

import hashlib
import re
from base64 import b64encode
from typing import Any

import pytest
from tests.cases import each_case
from tests.gateway.test_metrics import KEY, key
from tests.gateway.visitor import Visitor, visitor
from tests.serving.fake_client import Transport

from splitsecond.core.pages.html import page_style
from splitsecond.routing.configuration.settings import Listen, MetricsFor
from splitsecond.testing.fake_service import FakeService
from splitsecond.testing.virtual_time import run_virtual

HERE = "127.0.0.1:8800"


class FakeDashboard:
    def __init__(self, answer: bytes | None = None) -> None:
        self._answer = answer

    async def data(self) -> bytes:
        return b'{"all":"of it"}'

    async def speeds(self) -> bytes:
        return b"<!doctype html>"

    async def sessions(self, identity: str) -> bytes | None:
        return {"": b"[]", "00000000000000ab": b"{}"}.get(identity)

    async def what_if(self) -> bytes | None:
        return self._answer


def asked(
    path: str,
    *keys: Any,
    peer: str = "127.0.0.1",
    headers: dict[str, str] | None = None,
    **settings: Any,
) -> Visitor:
    client = visitor(FakeService(), *keys, **{"dashboard": FakeDashboard(), **settings})
    client.transport = Transport(peer)
    run_virtual(
        client.asks(b"", path=path, method="GET", headers={"host": HERE, **(headers or {})})
    )
    return client


AS_OPERATOR = {"authorization": f"Bearer {KEY}"}


@each_case(
    ("given", "peer", "routes", "headers", "status"),
    [
        ("loopback", "127.0.0.1", None, {}, 200),
        ("loopback", "::1", ("*",), {"host": "localhost:8800"}, 200),
        ("loopback", "10.0.0.9", ("*",), {}, 401),
        ("loopback", "10.0.0.9", ("*",), AS_OPERATOR, 200),
        ("loopback", "10.0.0.9", ("*",), {"x-api-key": KEY}, 200),
        ("loopback", "10.0.0.9", ("fast",), AS_OPERATOR, 403),
        ("loopback", "10.0.0.9", None, {}, 403),
        ("loopback", "127.0.0.1", ("*",), {"x-forwarded-for": "8.8.8.8"}, 401),
        ("loopback", "127.0.0.1", ("*",), {"via": "1.1 proxy"}, 401),
        ("loopback", "127.0.0.1", ("*",), {"via": "1.1 proxy", **AS_OPERATOR}, 200),
        ("loopback", "127.0.0.1", None, {"host": "points-here.example:8800"}, 403),
        ("loopback", "127.0.0.1", ("*",), {"host": "points-here.example:8800"}, 401),
        ("loopback", "127.0.0.1", ("*",), {"host": "points-here.example:8800", **AS_OPERATOR}, 200),
        ("loopback", "127.0.0.1", None, {"origin": "https://stranger.example"}, 403),
        ("key", "127.0.0.1", ("*",), {}, 401),
        ("key", "127.0.0.1", ("*",), AS_OPERATOR, 200),
        ("key", "127.0.0.1", ("*",), {"authorization": "Bearer another"}, 401),
        ("off", "127.0.0.1", ("*",), AS_OPERATOR, 404),
    ],
)
def test_access_to_the_data(
    given: MetricsFor, peer: str, routes: Any, headers: dict[str, str], status: int
) -> None:
    keys = [] if routes is None else [key(*routes)]
    page = asked(
        "/dashboard/speed", *keys, peer=peer, headers=headers, listen=Listen(metrics=given)
    )
    assert page.status == status
    assert (page.body == b"<!doctype html>") is (status == 200)
    client = asked(
        "/dashboard/data", *keys, peer=peer, headers=headers, listen=Listen(metrics=given)
    )
    assert client.status == status
    assert (client.body == b'{"all":"of it"}') is (status == 200)
    if status == 200:
        assert client.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("given", ["loopback", "key", "off"])
def test_a_browser_gets_the_page_before_it_can_send_a_key(given: MetricsFor) -> None:
    client = asked("/dashboard", key("*"), peer="10.0.0.9", listen=Listen(metrics=given))
    assert client.status == (404 if given == "off" else 200)
    assert (b"<title>Splitsecond gateway" in client.body) is (given != "off")


def test_a_key_in_the_address_is_ignored() -> None:
    for query in (f"?key={KEY}", f"?authorization=Bearer+{KEY}", f"?x-api-key={KEY}"):
        assert (
            asked(f"/dashboard/data{query}", key("*"), listen=Listen(metrics="key")).status == 401
        )


def test_without_a_data_source_there_is_no_data() -> None:
    assert asked("/dashboard/data", dashboard=None).status == 404
    assert asked("/dashboard/speed", dashboard=None).status == 404


def test_the_page_of_speed_grades_cannot_be_framed() -> None:
    headers = asked("/dashboard/speed").headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["cache-control"] == "no-store"


def digest(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_page_may_run_its_own_script_and_nothing_else() -> None:
    client = asked("/dashboard")
    assert client.headers["content-type"] == "text/html; charset=utf-8"
    assert (client.headers["x-content-type-options"], client.headers["referrer-policy"]) == (
        "nosniff",
        "no-referrer",
    )
    directives = client.headers["content-security-policy"].split("; ")
    policy = {name: words for name, _, words in (each.partition(" ") for each in directives)}
    text = client.body.decode()
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        others = [page_style()] if tag == "style" else []  # that of the page of speed grades
        assert policy.pop(directive).split() == [
            f"'sha256-{digest(each)}'" for each in (content, *others)
        ]
    assert policy == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_the_page_loads_nothing_and_makes_no_markup_of_text() -> None:
    text = asked("/dashboard").body.decode()
    markup = re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.findall(r"<[^>]*\s(?:on\w+|style|src|href)=", markup)
    assert not re.findall(r"https?:(?!//www\.w3\.org/2000/svg)", text)
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "localStorage",
    ):
        assert way not in text, way


@each_case(
    ("query", "status"),
    [
        ("", 200),
        ("?id=00000000000000ab", 200),
        ("?id=00000000000000ac", 404),
        ("?id=00000000000000AB", 404),
        ("?id=../data", 404),
    ],
)
def test_sessions_are_read_by_their_id(query: str, status: int) -> None:
    assert asked(f"/dashboard/sessions{query}").status == status


def test_the_latest_answer_needs_the_rights_of_the_dashboard() -> None:
    kept = FakeDashboard(b"null")
    assert asked("/dashboard/what-if", dashboard=kept).body == b"null"
    assert asked("/dashboard/what-if", dashboard=kept, peer="10.0.0.9").status == 403
    assert asked("/dashboard/what-if").status == 404


def test_sessions_need_the_rights_of_the_dashboard() -> None:
    assert asked("/dashboard/sessions", peer="10.0.0.9").status == 403
    assert asked("/dashboard/sessions", dashboard=None).status == 404
