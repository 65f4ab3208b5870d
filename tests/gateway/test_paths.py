"""Paths beside those of calls: lists of models, unknown paths, WebSockets, and the id of a request
that is refused."""

import asyncio
import hashlib
from typing import Any

import pytest
from tests.gateway.visitor import CHAT, Visitor, head, visitor
from tests.serving.fake_client import ReceivedResponse

from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual


def got(
    path: str, *keys: ClientKey, method: str = "GET", body: Any = b"", **headers: str
) -> Visitor:
    """The client of a gateway with the one route "fast", after its request."""
    client = visitor(FakeService(), *keys)

    async def main() -> None:
        await client.asks(
            body,
            path=path,
            method=method,
            headers={n.replace("_", "-"): v for n, v in headers.items()},
        )

    run_virtual(main())
    return client


def test_list_of_models_has_the_clients_api_format() -> None:
    entry = {"id": "fast", "object": "model", "created": 0, "owned_by": "splitsecond"}
    assert got("/v1/models").json == {"object": "list", "data": [entry]}
    assert got("/v1/models/fast").json == entry
    found = got("/v1/models", anthropic_version="2023-06-01").json
    (model,) = found.pop("data")
    assert (model["type"], model["id"], model["display_name"]) == ("model", "fast", "fast")
    assert found == {"has_more": False, "first_id": "fast", "last_id": "fast"}
    assert got("/v1/models/fast", anthropic_version="2023-06-01").json == model


def test_an_unknown_model_is_refused_in_the_form_of_the_client() -> None:
    assert got("/v1/models/slow").json["error"]["code"] == "model_not_found"
    refused = got("/v1/models/slow", anthropic_version="2023-06-01")
    assert (refused.status, refused.json["type"]) == (404, "error")
    assert refused.json["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/fast"])
def test_models_require_a_key(path: str) -> None:
    assert got(path, ClientKey("web", hashlib.sha256(b"k").digest())).status == 401


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        (
            "/chat/completions",
            "The path is /v1/chat/completions: end the client's base URL in /v1.",
        ),
        ("/responses", "The path is /v1/responses: end the client's base URL in /v1."),
        ("/v1/v1/messages", "The path is /v1/messages: end the client's base URL without /v1."),
        ("/models", "The path is /v1/models: end the client's base URL in /v1."),
        ("/nowhere", ""),
    ],
)
def test_a_path_with_a_wrong_beginning_gets_a_hint(path: str, hint: str) -> None:
    client = got(path, method="POST", body=CHAT)
    assert client.status == 404
    message = client.json["error"]["message"]
    assert message.endswith(hint)
    assert ("base URL" in message) == bool(hint)


def test_errors_below_anthropics_paths_have_its_format() -> None:
    client = got("/v1/messages/batches", method="POST", body={})
    assert (client.status, client.json["type"]) == (404, "error")


def test_codes_of_errors_are_numbers_for_openrouters_clients() -> None:
    locked = ClientKey("web", hashlib.sha256(b"k").digest())
    client = got("/api/v1/chat/completions", locked, method="POST", body=CHAT)
    error = client.json["error"]
    assert (client.status, error["code"], error["metadata"]) == (
        401,
        401,
        {"error_type": "invalid_api_key"},
    )
    assert got("/api/v1/nowhere", method="POST", body={}).json["error"]["code"] == 404
    assert got("/api/v1/models").json == got("/v1/models").json
    assert isinstance(got("/api/nowhere", method="POST", body={}).json["error"], str)  # Ollama's


def test_lists_of_models_have_a_request_id() -> None:
    assert got("/v1/models").headers["x-request-id"].startswith("req-")
    found = got("/v1/models/fast", anthropic_version="2023-06-01").headers
    assert found["x-request-id"] == found["request-id"]


def test_unsupported_gemini_method_of_a_model_is_404() -> None:
    client = got("/v1beta/models/fast:predict", method="POST", body={})
    assert (client.status, client.json["error"]["status"]) == (404, "NOT_FOUND")
    assert got("/v1beta/models", method="POST", body={}).status == 405


HANDSHAKE = {
    "upgrade": "websocket",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
}
"""The headers of a client that wants a WebSocket, beside `Connection`."""


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
def test_a_websocket_is_refused_in_the_form_of_the_client(path: str) -> None:
    client = got(path, connection="keep-alive, Upgrade", **HANDSHAKE)
    assert (client.status, client.headers["upgrade"]) == (426, "HTTP/1.1")
    assert b"\r\nconnection: upgrade\r\n" in client.transport.written
    assert "has no WebSocket" in client.json["error"]["message"]
    assert (client.json.get("type") == "error") == (path == "/v1/messages")
    assert got("/v1/nowhere", connection="Upgrade", **HANDSHAKE).status == 404


def test_a_post_request_follows_a_refused_websocket() -> None:
    client = visitor(FakeService(script=lambda call: Script(tokens=2)))

    async def main() -> None:
        connection = client.connect()
        given = {"host": "127.0.0.1", "connection": "Upgrade"}
        connection.data_received(head("GET", "/v1/responses", given | HANDSHAKE))
        await asyncio.sleep(1)
        assert client.status == 426
        client.transport.writes.clear()
        body = b'{"model":"fast","input":"hi"}'
        sizes = {"content-type": "application/json", "content-length": str(len(body))}
        connection.data_received(head("POST", "/v1/responses", given | sizes) + body)
        await asyncio.sleep(60)
        assert ReceivedResponse(client.transport.written).status == 200
        client.leave()

    run_virtual(main())


def test_every_refusal_has_an_id() -> None:
    refused = [
        got("/nowhere"),
        got("/v1/chat/completions"),
        got("/v1/chat/completions", method="POST", body={"model": "slow"}),
        got("/v1/messages", method="POST", body={"model": "slow"}),
        got("/v1/chat/completions", ClientKey("web", b""), method="POST", body=CHAT),
    ]
    ids = [client.headers["x-request-id"] for client in refused]
    assert len(set(ids)) == len(ids)
    assert all(each.startswith("req-") for each in ids)
    assert refused[3].headers["request-id"] == ids[3]
