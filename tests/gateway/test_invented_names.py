"""Text that clients choose: whatever they send, metrics can be parsed, the dashboard works, and no
line is forged."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from prometheus_client.parser import text_string_to_metric_families
from tests.examples import examples
from tests.gateway.visitor import CHAT, Visitor, visits

from splitsecond.core.errors import CallerFault, say
from splitsecond.gateway.http import headers
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.gateway.records import metrics as metrics_room
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router import routing_preferences

HERE = {"host": "127.0.0.1:8800"}
SETTINGS = """
providers: {sim: {base_url: "http://127.0.0.1:9/v1", price: {input_usd: 1, output_usd: 1}}}
routes: {fast: {policy: '"sim/quick"'}}
"""
MAX_ECHOED = 4096
NASTY = [
    "\0",
    "\n",
    "\r\n",
    '"',
    "\\",
    "\x1b[31m",
    "\x7f",
    "\x85",
    "\u2028",
    "\ud800",
    "\u202e",
    "a" * 300,
    "b" * 5000,
]
texts = st.lists(st.sampled_from(NASTY) | st.text(max_size=8), max_size=4).map("".join)
models = st.builds(
    "{}{}".format, st.sampled_from(["", "sim/", "fast", "fast:", "none/", "other"]), texts
)


class Played:
    """A worker whose provider cannot be reached, and the loop that it runs in."""

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self.worker = self.runner.run(self._made(folder))

    async def _made(self, folder: Path) -> GatewayWorker:
        return GatewayWorker(read(SETTINGS, {}, folder=folder))

    def ask(self, body: Any = b"", **how: Any) -> Visitor:
        return self.runner.run(visits(self.worker.gateway).asks(body, **how))

    def look(self, path: str) -> Visitor:
        self.worker._dashboard._cached = b""  # the data of the dashboard are kept for a second
        return self.ask(path=path, method="GET", headers=HERE)

    def check(self) -> None:
        """Check that the operator can still read the metrics and the dashboard."""
        metrics = self.look("/metrics")
        assert metrics.status == 200
        text = metrics.body.decode()
        assert all(c.isprintable() or c == "\n" for c in text)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                assert all(len(each) <= MAX_ECHOED for each in sample.labels.values())
        dashboard = self.look("/dashboard/data")
        assert dashboard.status == 200, dashboard.body
        assert dashboard.json["routes"][0]["name"] == "fast"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics_room, "MAX_TARGETS", 5)
        found = Played(tmp_path_factory.mktemp("names"))
        yield found
        found.runner.run(asyncio.sleep(0))
        found.worker.close()
        found.runner.close()


def test_dashboard_works_with_more_unknown_models_than_labels(played: Played) -> None:
    for number in range(8):
        assert played.ask(CHAT | {"model": f"sim/invented-{number}"}).status == 502
    played.check()
    names = [each["name"] for each in played.look("/dashboard/data").json["targets"]]
    assert metrics_room.OTHER in names


@pytest.mark.parametrize("name", ["sim/\0", "sim/a\nb", "sim/\x1b[31m", "sim/\u2028"])
def test_a_model_with_a_control_character_is_refused(played: Played, name: str) -> None:
    refused = played.ask(CHAT | {"model": name})
    assert refused.status == 404
    assert refused.json["error"]["code"] == "model_not_found"
    assert repr(name)[1:-1] in refused.json["error"]["message"]
    played.check()


slow = settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])


@slow
@given(models)
def test_any_unknown_model_gets_a_short_printable_error(played: Played, model: str) -> None:
    answer = played.ask(CHAT | {"model": model})
    assert answer.status >= 400
    assert len(answer.body) <= 4 * MAX_ECHOED
    assert answer.body.decode().isprintable()
    explained = played.look(f"/explain?route={quote(model.encode('utf-8', 'replace'))}")
    assert explained.status in (200, 400, 404)
    assert len(explained.body) <= 4 * MAX_ECHOED or explained.status == 200
    played.check()


HEADERS = [
    "x-splitsecond-complexity", "x-splitsecond-task", "x-splitsecond-region", "cache-control",
    "anthropic-beta",
    "origin", "authorization", "x-api-key", "access-control-request-headers", "x-forwarded-for",
    "content-type",
]  # fmt: skip
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=40)


@slow
@given(
    st.dictionaries(st.sampled_from(HEADERS), values), st.sampled_from(["POST", "OPTIONS", "GET"])
)
def test_any_header_value_gets_printable_response_headers(
    played: Played, headers: Mapping[str, str], method: str
) -> None:
    answer = played.ask(CHAT, headers=headers, method=method)
    assert all(value.isprintable() for _, value in answer.answer.pairs)
    assert answer.status < 600
    played.check()


@slow
@given(texts, st.sampled_from(["GET", "POST"]))
def test_any_unknown_path_gets_a_short_error(played: Played, text: str, method: str) -> None:
    answer = played.ask(
        CHAT,
        path="/unknown/" + quote(text.encode("utf-8", "replace"), safe="")[:2000],
        method=method,
    )
    assert answer.status >= 400
    assert len(answer.body) <= MAX_ECHOED
    played.check()


@slow
@given(st.dictionaries(texts, texts, max_size=3))
def test_any_unknown_preference_gets_a_short_error(played: Played, fields: dict[str, str]) -> None:
    answer = played.ask(CHAT | {"model": "fast", "provider": fields} | fields | {"model": "fast"})
    assert answer.status >= 400
    assert len(answer.body) <= 4 * MAX_ECHOED
    played.check()


def test_invalid_preference_is_shortened_in_the_message() -> None:
    with pytest.raises(CallerFault) as caught:
        routing_preferences.read("fast", Raw(json.dumps({"x" * 100_000: 1}).encode()))
    assert len(str(caught.value)) < 1000


def test_line_breaks_are_escaped_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    say("no model 'x\nsplitsecond: all is well\x1b[2J\ud800'")
    assert (
        capsys.readouterr().err
        == "splitsecond: no model 'x\\nsplitsecond: all is well\\x1b[2J\\ud800'\n"
    )


def test_long_header_values_are_not_cached() -> None:
    before = headers._cached_header_value.cache_info().currsize
    for number in range(3):
        assert len(headers.header_value("x" * 10_000 + str(number))) == headers.LONGEST_HEADER
    assert headers._cached_header_value.cache_info().currsize <= before + 1
