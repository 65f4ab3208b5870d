"""Resolution of servers and of a gateway's providers to specs."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec import structs
from tests.http_server import Received, Response, http_server

from splitsecond.benchmark.runs.settings import Server
from splitsecond.benchmark.runs.targets import LocalServers, resolve, resolve_all
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.spec import TargetSpec, Timeouts


@dataclass
class ModelLists:
    """A server at `url`: /N/models lists N models, /moved/models redirects. `got`: the headers of
    each request."""

    url: str
    got: list[Mapping[str, str]]


@pytest.fixture
def lists() -> Iterator[ModelLists]:
    got: list[Mapping[str, str]] = []

    def respond(request: Received) -> Response:
        got.append(request.headers)
        first = request.path.split("/")[1]
        if first == "moved":
            return Response(status=302, headers={"location": f"{request.url}/1/models"})
        models = (
            [{"id": f"model-{number}"} for number in range(int(first))]
            if first.isdigit()
            else first
        )
        return Response(json.dumps({"data": models}).encode())

    with http_server(respond) as url:
        yield ModelLists(url, got)


def specs(*servers: Server) -> dict[str, TargetSpec]:
    with ExitStack() as started:
        return resolve([], servers, LocalServers(started))


def test_the_only_model_of_a_server_need_not_be_named(
    lists: ModelLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    found = specs(
        Server(base_url=f"{lists.url}/1", name="a", api_key_env="A_KEY"),
        Server(base_url=f"{lists.url}/1/", model="other"),
    )
    host = lists.url.split("/")[2]
    assert {name: spec.model for name, spec in found.items()} == {
        "a": "model-0",
        f"{host}/other": "other",
    }
    (got,) = lists.got
    assert got["authorization"] == "Bearer secret"


def test_run_lists_models_once_and_sends_the_headers(lists: ModelLists) -> None:
    with ExitStack() as started:
        found = resolve_all(
            [],
            [Server(base_url=f"{lists.url}/1")],
            {},
            LocalServers(started),
            headers={"x-team": "t"},
            timeouts=Timeouts(),
        )
    assert [spec.model for spec in found.specs.values()] == ["model-0"]
    assert [got["x-team"] for got in lists.got] == ["t"]


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        (0, "lists no model"),
        (2, "lists 2 models: model-0, model-1"),
        (99, "lists 99 models: model-0, .*model-19, …"),
        ("text", "does not list its models: Expected `array`"),
        ("moved", "does not list its models: HTTP Error 302"),
    ],
)
def test_a_server_without_exactly_one_model_is_refused(
    lists: ModelLists, path: object, complaint: str
) -> None:
    with pytest.raises(CallerFault, match=complaint) as raised:
        specs(Server(base_url=f"{lists.url}/{path}"))
    assert raised.value.hint.startswith("Name ")


def test_two_servers_of_one_name_are_refused() -> None:
    one = Server(base_url="http://127.0.0.1:1/v1", model="m")
    for other in (one, structs.replace(one, base_url="http://x", name="127.0.0.1:1/m")):
        with pytest.raises(CallerFault, match=r"127\.0\.0\.1:1/m is named twice"):
            specs(one, other)


CONFIG = """
providers:
  fast: {base_url: "http://127.0.0.1:1/v1", api_key: "env:A_KEY", headers: {x-key: "env:OTHER"}}
  groq: {base_url: "http://127.0.0.1:2/v1", price: {input_usd: 1, output_usd: 2}}
  filed: {base_url: "http://127.0.0.1:3/v1", api_key: "file:key"}
"""


def configured(tmp_path: Path, *names: str) -> tuple[dict[str, TargetSpec], set[str]]:
    path = tmp_path / "splitsecond.yaml"
    path.write_text(CONFIG)
    with ExitStack() as started:
        found = resolve_all(
            names,
            [],
            {},
            LocalServers(started),
            headers={},
            timeouts=Timeouts(total_ms=7),
            config=path,
        )
    return found.specs, {*found.prices}


def test_configured_providers_precede_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("A_KEY", "OTHER", "GROQ_API_KEY", "CEREBRAS_API_KEY"):
        monkeypatch.setenv(name, name.lower())
    found, priced = configured(tmp_path, "fast/m", "groq/m", "cerebras/m")
    assert [spec.base_url.split(":")[-1] for spec in found.values()][:2] == ["1/v1", "2/v1"]
    assert found["cerebras/m"].base_url.startswith("https://")
    # a worker process reads the key from its environment
    assert found["fast/m"].api_key_env == ("A_KEY",)
    assert found["fast/m"].headers["x-key"] == "other"
    assert {spec.timeouts.total_ms for spec in found.values()} == {7}
    assert priced == {"groq/m"}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("fast/m", "no key: A_KEY is not set|no value"),
        ("filed/m", "takes a key from a file"),
        ("nope/m", "unknown provider 'nope'"),
    ],
)
def test_uncallable_configured_provider_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, complaint: str
) -> None:
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(CallerFault, match=complaint):
        configured(tmp_path, name)
