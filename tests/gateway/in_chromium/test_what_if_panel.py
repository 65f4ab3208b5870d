"""The latest answer of what-if on the dashboard, in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.conftest import ServedGateway, gateway, ready
from tests.gateway.in_chromium.devtools import Page, driven
from tests.store.records import answered

from splitsecond.log.store.kept_answer import keep_answer
from splitsecond.log.store.log import Log

pytestmark = pytest.mark.system

HOSTILE = 'hedge("a/m", "b/<img src=x onerror=1>")'
SECTION = "document.getElementById('what-if-section')"


def figure(
    name: str, today: float, what_if: float, half: float, p_value: float
) -> dict[str, object]:
    moved = what_if - today
    ci95 = [moved - half, moved + half]
    return {
        "name": name, "today": today, "what_if": what_if, "difference": moved, "ci95": ci95,
        "p_value": p_value,
    }  # fmt: skip


ANSWER = {
    "at": "2026-11-27T04:00:00Z",
    "answer": {
        "schema": "splitsecond.what-if/1", "route": "chat", "today": 'weighted("a/m", "b/m")',
        "calls": 4000, "replayed_calls": 4010, "logged_calls": 4010,
        "since_us": 1_795_000_000_000_000, "until_us": 1_795_700_000_000_000,
        "identity": {"differs": []},
        "answers": [
            {
                "policy": HOSTILE, "refused": "", "coverage": {"calls": 4000, "covered": 4000},
                "figures": [
                    figure("ttft_p95_ms", 452.0, 349.0, 6.0, 0.001),
                    figure("usd_per_1000", 0.62, 0.602, 0.02, 0.2),
                    figure("failed", 0.01, 0.002, 0.004, 0.001),
                    figure("a/m", 0.5, 1.0, 0.0, 0.0),
                ],
            },
            {
                "policy": 'race("a/m", "b/m")', "refused": "too little of it is known",
                "coverage": {"calls": 4000, "covered": 100}, "figures": [],
            },
        ],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def page(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with driven(tmp_path_factory.mktemp("browser")) as page:
        yield page


def test_the_latest_answer_is_shown(page: Page, served: ServedGateway, tmp_path: Path) -> None:
    settings = f"""
providers: {{sim: {{base_url: '{served.simulated.base_url}'}}}}
routes: {{chat: {{policy: sim/quick}}}}
log: sqlite:///{tmp_path}/log.db
"""
    (tmp_path / "splitsecond.yaml").write_text(settings)
    url = f"sqlite:///{tmp_path}/log.db"
    with Log.open(url) as log:
        log.put(answered(1, ago_s=60))
    with gateway(tmp_path) as process:
        address = ready(process).removesuffix("/v1")
        page.open(f"{address}/dashboard")
        page.wait("document.documentElement.dataset.shown")
        assert page.value(f"{SECTION}.hidden") is True
        keep_answer(url, json.dumps(ANSWER).encode())
        page.open(f"{address}/dashboard")
        page.wait(f"!{SECTION}.hidden && {SECTION}.querySelectorAll('td').length")
        text = page.value(f"{SECTION}.innerText")
        assert "4,000 calls" in text
        assert HOSTILE in text
        assert "−103 ms" in text
        assert "−0.8 points" in text
        assert "+50 points" in text
        assert "No answer: too little of it is known." in text
        assert page.value("document.querySelectorAll('#what-if img').length") == 0
        assert page.value("document.documentElement.dataset.wrong ?? ''") == ""
