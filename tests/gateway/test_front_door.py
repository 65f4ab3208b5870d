"""What comes in over sockets and is not as clients send it: other hosts, other spellings of a path,
what may not go on.

Nothing of it leads past a key, and nothing of ours or of another client's goes out.
"""

import json
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.conftest import EMBEDDINGS, KEY, ServedGateway, gateway, ready
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.system

BODY = json.dumps(
    {"model": "sim/quick", "messages": [{"role": "user", "content": "a-prompt-of-ours"}]}
).encode()


def said(base_url: str, request_line: str, *headers: str, body: bytes = BODY) -> tuple[int, bytes]:
    """The status and all of what a gateway answers to a request as it is written here."""
    place = urlsplit(base_url)
    head = [
        request_line,
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    if not any(header.startswith("host:") for header in headers):
        head.append("host: x")
    lines = "\r\n".join([*head, *headers, "", ""]).encode()
    with socket.create_connection(
        (place.hostname or "", place.port or 0), timeout=WITHIN_S
    ) as line:
        line.sendall(lines + body)
        answer = b""
        while data := line.recv(65536):
            answer += data
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_head_request_for_health_has_no_body(served: ServedGateway, path: str) -> None:
    status, whole = said(served.base_url, f"GET {path} HTTP/1.1", "host: x", body=b"")
    head, _, body = whole.partition(b"\r\n\r\n")
    assert (status, json.loads(body)["status"]) == (200, path.removeprefix("/health/"))
    status, headed = said(served.base_url, f"HEAD {path} HTTP/1.1", "host: x", body=b"")
    assert status == 200
    assert without_date(headed) == without_date(head + b"\r\n\r\n")
    assert (
        said(served.base_url, "HEAD /v1/chat/completions HTTP/1.1", "host: x", body=b"")[0] == 405
    )


def without_date(head: bytes) -> list[bytes]:
    return [line for line in head.split(b"\r\n") if not line.startswith(b"date:")]


def test_h2c_upgrade_is_ignored_and_answered_in_http_1_1(served: ServedGateway) -> None:
    """As Java's client does at first of every server without TLS."""
    wish = [
        "connection: upgrade, http2-settings",
        "upgrade: h2c",
        "http2-settings: AAMAAABkAAQAoAAAAAIAAAAA",
    ]
    key = f"authorization: Bearer {KEY}"
    status, whole = said(
        served.base_url, "POST /v1/chat/completions HTTP/1.1", "host: x", key, *wish
    )
    assert status == 200
    assert b'"content":' in whole


PATHS = [
    "/v1/chat/completions",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/chat/completions/",
    "/v1/./chat/completions",
    "/v1/x/../chat/completions",
    "/v1/%2e%2e/v1/chat/completions",
    "/v1%2fchat%2fcompletions",
    "/v1/chat%2Fcompletions",
    "/V1/chat/completions",
    "/v1/chat/completions;/health/live",
    "/v1/chat/completions?/health/live",
    "/v1/chat/completions%00",
    "/health/live/../../v1/chat/completions",
    "/metrics/../v1/chat/completions",
    "http://health/v1/chat/completions",
    "http://127.0.0.1/v1/chat/completions",
]
HOSTS = [
    "host: 127.0.0.1",
    "host: /health/live",
    "host: 127.0.0.1/health/live?",
    "host: x@127.0.0.1:1/v1/models#",
    "x-forwarded-host: health",
    "x-original-url: /health/live",
    "x-rewrite-url: /health/live",
    "x-forwarded-prefix: /health",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_spelling_of_a_path_bypasses_the_key(served: ServedGateway, path: str) -> None:
    status, answer = said(served.base_url, f"POST {path} HTTP/1.1", "host: x")
    assert status in (400, 401, 404)
    assert b'"choices"' not in answer
    with_key, _ = said(
        served.base_url, f"POST {path} HTTP/1.1", "host: x", f"authorization: Bearer {KEY}"
    )
    assert with_key == (200 if status == 401 else status)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "http://127.0.0.1/v1/chat/completions"])
def test_no_host_header_bypasses_the_key(served: ServedGateway, host: str, path: str) -> None:
    assert said(served.base_url, f"POST {path} HTTP/1.1", host)[0] == 401
    assert (
        said(served.base_url, f"POST {path} HTTP/1.1", host, f"authorization: Bearer {KEY}")[0]
        == 200
    )


def asked_of(
    served: ServedGateway, body: dict[str, Any], **headers: str
) -> tuple[Any, dict[str, str], Any]:
    """The answer to a request to the canned provider, and what that was asked: headers and body."""
    del served.asked[:]
    given = {"authorization": f"Bearer {KEY}", "content-type": "application/json", **headers}
    request = urllib.request.Request(
        f"{served.base_url}/chat/completions", json.dumps(body).encode(), given
    )
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        answer.read()
        ((sent_headers, sent_body),) = served.asked
        return answer, {name.lower(): value for name, value in sent_headers.items()}, sent_body


def test_client_headers_and_keys_are_not_forwarded(served: ServedGateway) -> None:
    body = {
        "model": "canned/m",
        "messages": [],
        "api_key": "sk-theirs",
        "api_base": "http://evil",
        "odd": [1],
    }
    answer, headers, sent = asked_of(
        served,
        body,
        **{"cookie": "session=1", "te": "trailers", "x-secret": "s", "x-forwarded-for": "10.1.1.1"},
    )
    assert headers["authorization"] == "Bearer sk-of-ours-123456"
    assert not {"cookie", "te", "x-secret", "x-forwarded-for"} & set(headers)
    assert KEY not in str(headers)
    assert (sent["odd"], set(sent) & {"api_key", "api_base"}) == ([1], set())
    assert answer.headers["x-splitsecond-dropped"] == "api_key, api_base"
    assert "set-cookie" not in answer.headers


def test_output_of_the_process_holds_no_key_or_prompt(
    tmp_path: Path, served: ServedGateway
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(
        "keys: [{name: web, key: env:WEB_KEY}]\n"
        f"providers: {{sim: {{base_url: '{served.simulated.base_url}'}}, gone: {{base_url: 'http://127.0.0.1:9/v1'}}}}"
    )
    authorization = f"authorization: Bearer {KEY}"
    with gateway(tmp_path) as process:
        url = ready(process)
        line = "POST /v1/chat/completions HTTP/1.1"
        assert said(url, line, "host: x", authorization)[0] == 200
        assert (
            said(url, line, "host: x", authorization, body=BODY.replace(b"sim/", b"gone/"))[0]
            == 502
        )
        assert said(url, line, "host: x", authorization, body=b"a-prompt-of-ours")[0] == 400
        assert said(url, line, "host: x", authorization + "x")[0] == 401
        said(url, "BAD LINE a-prompt-of-ours", authorization)
        process.terminate()
        out, err = process.communicate(timeout=WITHIN_S)
    for secret in (KEY.encode(), b"a-prompt-of-ours"):
        assert secret not in out + err


def test_embeddings_with_the_library_of_openai(served: ServedGateway) -> None:
    del served.asked[:]
    with openai.OpenAI(
        base_url=served.base_url, api_key=KEY, max_retries=0, timeout=WITHIN_S
    ) as client:
        raw = client.embeddings.with_raw_response.create(
            model="canned/m", input=["hi"], encoding_format="float"
        )
        found = raw.parse()
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="nope", input="hi")
    assert raw.http_response.content == EMBEDDINGS
    assert found.data[0].embedding == [0.25, 1.5]
    assert raw.headers["x-splitsecond-target"] == "canned/m"
    ((_, sent),) = served.asked
    assert sent == {"model": "m", "input": ["hi"], "encoding_format": "float"}


def test_routing_preferences_with_the_library_of_openai(served: ServedGateway) -> None:
    with openai.OpenAI(
        base_url=served.base_url, api_key=KEY, max_retries=0, timeout=WITHIN_S
    ) as client:
        for extra, target in (({"only": ["sim"]}, "sim/quick"), ({"order": ["sim"]}, "sim/quick")):
            answer = client.chat.completions.with_raw_response.create(
                model="safe",
                messages=[{"role": "user", "content": "hi"}],
                extra_body={"provider": extra},
            )
            assert answer.headers["x-splitsecond-target"] == target
            assert answer.headers["x-splitsecond-attempts"] == "1"
        with pytest.raises(openai.NotFoundError, match="matches the routing preferences"):
            client.chat.completions.create(
                model="safe",
                messages=[{"role": "user", "content": "hi"}],
                extra_body={"provider": {"only": ["cut"]}},
            )


def test_prometheus_can_parse_the_metrics(served: ServedGateway) -> None:
    assert (
        said(served.base_url, "POST /v1/chat/completions HTTP/1.1", f"authorization: Bearer {KEY}")[
            0
        ]
        == 200
    )
    with urllib.request.urlopen(
        served.base_url.removesuffix("/v1") + "/metrics", timeout=WITHIN_S
    ) as answer:
        families = {
            family.name: family for family in text_string_to_metric_families(answer.read().decode())
        }
    counted = {
        sample.labels["target"]: sample.value
        for sample in families["splitsecond_attempts"].samples
        if sample.labels["outcome"] == "ok"
    }
    assert counted["sim/quick"] >= 1
    buckets = families["splitsecond_target_ttft_seconds"].samples
    assert any(
        sample.labels.get("target") == "sim/quick" and sample.value >= 1 for sample in buckets
    )


def test_limits_of_a_key_hold_in_all_workers(tmp_path: Path, served: ServedGateway) -> None:
    (tmp_path / "splitsecond.yaml").write_text(
        "listen: {workers: 2}\n"
        "keys: [{name: web, key: env:WEB_KEY, requests_per_minute: 2}]\n"
        f"providers: {{sim: {{base_url: '{served.simulated.base_url}'}}}}"
    )
    with gateway(tmp_path) as process:
        url = ready(process)
        line, authorization = "POST /v1/chat/completions HTTP/1.1", f"authorization: Bearer {KEY}"
        statuses = [said(url, line, "host: x", authorization)[0] for _ in range(12)]
        status, answer = said(url, line, "host: x", authorization)
        process.terminate()
        try:
            process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
    assert statuses == [200] * 2 + [429] * 10
    assert status == 429
    assert b"x-ratelimit-remaining-requests: 0\r\n" in answer
    assert b"retry-after: " in answer
