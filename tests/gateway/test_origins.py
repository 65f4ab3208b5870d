"""Pages in a browser: allowed origins, preflight responses, and refusal of all origins by
default."""

from typing import Any

import pytest
from tests.cases import each_case
from tests.gateway.visitor import CHAT, visitor

from splitsecond.gateway.http.origins import addressed
from splitsecond.routing.configuration.settings import Listen
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

FRIEND = "https://app.example"


def service() -> FakeService:
    return FakeService(script=lambda call: Script())


@each_case(
    ("allowed", "origin", "may"),
    [
        ((FRIEND,), FRIEND, True),
        ((FRIEND + "/",), "HTTPS://app.example", True),
        ((FRIEND,), "https://app.example.evil.example", False),
        ((FRIEND,), "http://app.example", False),
        ((FRIEND,), "https://app.example:8443", False),
        ((FRIEND,), "null", False),
        (("*",), "https://anyone.example", True),
        ((), FRIEND, False),
    ],
)
def test_only_pages_of_configured_origins_are_served(
    allowed: tuple[str, ...], origin: str, may: bool
) -> None:
    async def main() -> None:
        asked = {"origin": origin, "access-control-request-method": "POST",
                 "access-control-request-headers": "authorization,content-type"}  # fmt: skip
        first = await visitor(service(), listen=Listen(cors=allowed)).asks(
            b"", method="OPTIONS", headers=asked
        )
        assert (first.status == 204) is may
        assert (first.headers.get("access-control-allow-origin") == origin) is may
        if may:
            assert first.headers["access-control-allow-methods"] == "POST"
            assert first.headers["access-control-allow-headers"] == "authorization,content-type"
            assert first.body == b""
        then = await visitor(service(), listen=Listen(cors=allowed)).asks(
            CHAT, headers={"origin": origin}
        )
        assert then.status == (200 if may else 403)
        assert (then.headers.get("access-control-allow-origin") == origin) is may
        assert "access-control-allow-credentials" not in then.headers

    run_virtual(main())


def test_error_responses_have_cors_headers_too() -> None:
    async def main() -> None:
        key = ClientKey("web", b"")
        for asking in ({"body": CHAT}, {"body": b"", "path": "/nowhere"}):
            client = visitor(service(), key, listen=Listen(cors=(FRIEND,)))
            given: dict[str, Any] = {"headers": {"origin": FRIEND}, **asking}
            await client.asks(**given)
            assert client.status in (401, 404)
            assert client.headers["access-control-allow-origin"] == FRIEND

    run_virtual(main())


@pytest.mark.parametrize("keys", [(), (ClientKey("web", b""),)])
def test_pages_are_refused_without_cors(keys: tuple[ClientKey, ...]) -> None:
    async def main() -> None:
        fake = service()
        for origin in ("http://rebound.example:8800", "null"):
            client = await visitor(fake, *keys).asks(
                CHAT, headers={"origin": origin, "host": "rebound.example:8800"}
            )
            assert client.status == (401 if keys else 403)
            assert "access-control-allow-origin" not in client.headers
        options = await visitor(fake, *keys).asks(b"", method="OPTIONS", headers={"origin": FRIEND})
        assert options.status in (403, 405)
        assert fake.calls == []

    run_virtual(main())


@each_case(
    ("host", "is_address"),
    [
        (b"127.0.0.1:8800", True),
        (b"127.0.0.1", True),
        (b"10.1.2.3:80", True),
        (b"[::1]:8800", True),
        (b"[::1]", True),
        (b"localhost", True),
        (b"LocalHost:8800", True),
        (b"", False),
        (b":8800", False),
        (b"evil.example", False),
        (b"evil.example:8800", False),
        (b"127.0.0.1.evil.example:8800", False),
        (b"localhost.evil.example", False),
        (b"evil.example:127.0.0.1", False),
        (b"[::1].evil.example:80", False),
        (b"127.0.0.1:80@evil.example", False),
        (b"\xff\xfe:1", False),
    ],
)
def test_only_ip_addresses_and_localhost_count_as_addresses(host: bytes, is_address: bool) -> None:
    assert addressed(host) is is_address
