"""Where pages of metrics are found, and what is wrong with addresses that a user gives."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.http_server import Received, Response, http_server
from tests.pages import ROOT

from splitsecond.benchmark.server_view import discovery
from splitsecond.benchmark.server_view.discovery import find_pages
from splitsecond.benchmark.server_view.engines import engines
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.spec import TargetSpec

PAGES = Path(__file__).parent / "pages"
READ = r"(?:of|and) ([\w. -]+?) \((http\S+)\)"
"""A page and its address, in the words of a run."""


def page(name: str) -> bytes:
    return (PAGES / f"{name}.txt").read_bytes()


@contextmanager
def serving(answers: Mapping[str, bytes], received: list[Received] | None = None) -> Iterator[str]:
    def respond(request: Received) -> Response:
        if received is not None:
            received.append(request)
        return Response(answers[request.path]) if request.path in answers else Response(status=404)

    with http_server(respond) as url:
        yield url


@pytest.fixture(autouse=True)
def _no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_has_gpus", lambda: False)


def spec(url: str, name: str = "mine", **more: object) -> TargetSpec:
    return TargetSpec(name=name, base_url=f"{url}/v1", model="m", **more)  # type: ignore[arg-type]


def test_page_beside_the_target_is_found() -> None:
    with serving({"/metrics": page("vllm")}) as url:
        found = find_pages({"mine": spec(url)})
        assert [(each.url, each.engines) for each in found.pages] == [(f"{url}/metrics", ("vllm",))]
        assert [(each.title, each.targets) for each in found.sources] == [("vLLM", ["mine"])]
        assert found.in_words() == [f"Reading the metrics of vLLM ({url}/metrics) once a second."]


def test_targets_of_one_server_share_its_page() -> None:
    with serving({"/metrics": page("sglang")}) as url:
        found = find_pages({name: spec(url, name) for name in ("a", "b")})
        assert [each.targets for each in found.sources] == [["a", "b"]]


def test_page_of_trtllm_serve_is_at_its_own_path() -> None:
    with serving({"/metrics": b"[]", "/prometheus/metrics": page("trtllm")}) as url:
        assert [each.url for each in find_pages({"mine": spec(url)}).pages] == [
            f"{url}/prometheus/metrics"
        ]


def test_examples_of_the_document_find_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    at: dict[str, bytes] = {}

    def fetch(url: str, **_: object) -> bytes:
        if url not in at:
            raise OSError("refused")
        return at[url]

    monkeypatch.setattr(discovery, "fetch", fetch)
    names = {engine.title: name for name, engine in engines().items()}
    text = (ROOT / "docs/server-view.md").read_text("utf-8")
    examples = re.findall(r"bench --base-url (\S+)/v1(?: --metrics (\S+))?\n(Reading .*)\n", text)
    assert len(examples) == 7
    for url, given, words in examples:
        at |= {place: page(names[title]) for title, place in re.findall(READ, words)}
        assert find_pages({"mine": spec(url)}, [given] if given else []).in_words() == [words]
        at.clear()


def test_no_page_is_found_where_there_is_none() -> None:
    with serving({"/metrics": b"splitsecond_requests_in_flight 1\n"}) as url:
        assert find_pages({"mine": spec(url)}).pages == []
    assert find_pages({"gone": spec("http://127.0.0.1:9")}).in_words() == []


def test_hosted_providers_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "fetch", lambda *_, **__: pytest.fail("it was asked"))
    assert (
        find_pages(
            {"hosted": TargetSpec(name="hosted", base_url="https://api.example/v1", model="m")}
        ).pages
        == []
    )


def test_key_goes_to_the_page_of_its_own_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "secret-of-the-test")
    received: list[Received] = []
    with (
        serving({"/metrics": page("llamacpp")}, received) as url,
        serving({"/gpus": page("dcgm")}, received) as other,
    ):
        found = find_pages({"mine": spec(url, api_key_env=("MINE",))}, [f"{other}/gpus"])
        assert {each.url: each.headers for each in found.pages} == {
            f"{other}/gpus": {},
            f"{url}/metrics": {"authorization": "Bearer secret-of-the-test"},
        }
        assert {
            each.path: each.headers.get("authorization")
            for each in received
            if each.path in ("/gpus", "/metrics")
        } == {
            "/gpus": None,
            "/metrics": "Bearer secret-of-the-test",
        }


def test_given_page_belongs_to_its_target_or_to_all() -> None:
    with serving({"/a": page("dcgm"), "/b": page("vllm")}) as url:
        specs = {
            name: TargetSpec(name=name, base_url="https://api.example/v1", model="m")
            for name in ("x", "y")
        }
        found = find_pages(specs, [f"{url}/a", f"y={url}/b"])
        assert [each.targets for each in found.sources] == [["x", "y"], ["y"]]


def test_address_with_a_password_is_refused_without_quoting_it() -> None:
    with pytest.raises(CallerFault, match="no user or password") as raised:
        find_pages(
            {"x": TargetSpec(name="x", base_url="https://h/v1", model="m")},
            ["http://me:word@h/metrics"],
        )
    assert "word@" not in str(raised.value)


def test_record_of_a_page_leaves_out_its_query() -> None:
    with serving({"/metrics?key=1": page("vllm")}) as url:
        specs = {"x": TargetSpec(name="x", base_url="https://api.example/v1", model="m")}
        assert [each.url for each in find_pages(specs, [f"{url}/metrics?key=1"]).sources] == [
            f"{url}/metrics"
        ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("localhost:8000/metrics", "expected the address of a page"),
        ("ftp://h/metrics", "expected the address of a page"),
        ("other=http://127.0.0.1:9/metrics", "the run has no target 'other'"),
        ("http://127.0.0.1:9/metrics", "cannot be read"),
    ],
)
def test_given_page_that_cannot_be_used_is_an_error(given: str, words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        find_pages(
            {"mine": TargetSpec(name="mine", base_url="https://api.example/v1", model="m")}, [given]
        )


def test_given_page_of_no_known_engine_is_an_error() -> None:
    with (
        serving({"/metrics": b"up 1\n"}) as url,
        pytest.raises(CallerFault, match=r"no metric that we know.*SGLang"),
    ):
        find_pages({"mine": spec(url)}, [f"{url}/metrics"])
