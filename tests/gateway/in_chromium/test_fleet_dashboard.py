"""The dashboard of a gateway in a fleet, in a real browser: two gateways share a real PostgreSQL
server."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import ServedGateway, gateway, ready
from tests.gateway.in_chromium.devtools import Page, driven
from tests.gateway.in_chromium.test_dashboard import SHOWN, ask, rows
from tests.store.server import Server
from tests.store.server import server as server
from tests.store.server import started_server as started_server
from tests.waiting import WITHIN_S, until

pytestmark = pytest.mark.system
SETTINGS = """
listen: {{workers: 2}}
shared: {shared}
providers:
  sim: {{base_url: '{url}'}}
  down: {{base_url: '{url}', headers: {{x-splitsecond-fault: '500'}}}}
routes:
  safe: {{policy: 'fallback("down/quick", "sim/quick")'}}
"""


@pytest.fixture
def addresses(served: ServedGateway, server: Server, tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of two gateways of one fleet."""
    with ExitStack() as stack:
        started, shared = [], server.database()
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            settings = SETTINGS.format(
                url=served.simulated.base_url, shared=shared.replace(":unused-password", "")
            )
            (tmp_path / name / "splitsecond.yaml").write_text(settings)
            started.append(stack.enter_context(gateway(tmp_path / name)))
        yield [ready(process).removesuffix("/v1") for process in started]


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        found: bytes = answer.read()
    return found


def test_the_page_shows_the_gateways_and_what_each_has_found(
    addresses: list[str], tmp_path: Path
) -> None:
    one, two = addresses

    def fleet(address: str) -> Any:
        found = json.loads(read(f"{address}/dashboard/data"))["fleet"]
        return (
            found if found and all(len(each["sees"]) == 2 for each in found["gateways"]) else None
        )

    def knows() -> bool:
        ask(f"{one}/v1", "safe")
        targets = json.loads(read(f"{two}/dashboard/data"))["targets"]
        return any(
            each["name"] == "down/quick" and "another worker reports" in each["why"]
            for each in targets
        )

    seen = until(lambda: fleet(two), "the gateways do not see each other")
    assert [each["workers"] for each in seen["gateways"]] == [2, 2]
    assert seen["away"] is False
    until(knows, "the second gateway does not learn that the target is down")
    shown = read(f"{two}/metrics").decode()
    assert f'splitsecond_fleet_reports_invalid_total{{gateway="{seen["name"]}"}} 0.0' in shown
    assert shown.count("splitsecond_fleet_gateway_up{") == 2
    with driven(tmp_path) as page:
        look(page, two, tmp_path)


def look(page: Page, address: str, folder: Path) -> None:
    page.looks(1280, "light")
    page.open(f"{address}/dashboard")
    page.wait(SHOWN)
    page.wait("document.querySelectorAll('#fleet tbody tr').length === 2")
    found = rows(page, "fleet")
    assert [row[0] for row in found.values()] == ["up", "up"]
    assert any("down/quick" in row[5] for row in found.values())
    for width, theme in ((1280, "light"), (1280, "dark"), (390, "light")):
        page.looks(width, theme)
        assert page.value(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
        page.picture(folder / f"{theme}-{width}.png")
    assert not [each for each in page.messages if "exceptionDetails" in each]
