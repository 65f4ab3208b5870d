"""The dashboard in a real browser, before a gateway that serves: what is shown, to whom, on which screens, and what
becomes of names that would like to be markup."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import KEY, Served, gateway, ready
from tests.gateway.in_chromium.devtools import Page, driven

HOSTILE_CLIENT = '<img src=x onerror="document.title=1">'
HOSTILE_TARGET = 'sim/<script>document.title="taken"</script>'
BACKWARDS = "sim/\u202emodel-that-runs-the-other-way/" + "and-does-not-end" * 12
SETTINGS = """
listen: {{metrics: key}}
keys:
  - {{name: {hostile}, key: env:WEB_KEY, requests_per_minute: 900}}
  - {{name: small, key: env:SMALL_KEY, routes: [fast]}}
providers:
  sim: {{base_url: '{url}', price: {{input: 1, output: 2}}}}
  slow: {{base_url: '{url}', headers: {{x-splitsecond-fault: 'slow_first_token; seconds=9'}}}}
  down: {{base_url: '{url}', headers: {{x-splitsecond-fault: '401'}}}}
routes:
  fast: {{policy: 'race("sim/quick", "slow/quick")'}}
  safe: {{policy: 'fallback("down/quick", "sim/quick")'}}
"""
SHOWN = "document.documentElement.dataset.shown"
TEXT = "document.body.innerText"


def ask(url: str, model: str, key: str = KEY) -> None:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    with suppress(urllib.error.HTTPError):  # of a model that the provider has not
        urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body, headers), timeout=20).close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with driven(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def address(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """That of a gateway whose dashboard takes a key, and which has served names that look like markup."""
    settings = SETTINGS.format(url=served.simulated.base_url, hostile=json.dumps(HOSTILE_CLIENT))
    folder = tmp_path_factory.mktemp("dashboard")
    (folder / "splitsecond.yaml").write_text(settings)
    with gateway(folder) as process:
        url = ready(process)
        for model in ("fast", "fast", "safe", HOSTILE_TARGET, BACKWARDS):
            ask(url, model)
        yield url.removesuffix("/v1")


def enter(page: Page, key: str) -> None:
    """Types a key, and sends it."""
    page.value(
        f"document.getElementById('key').value = {json.dumps(key)}; document.querySelector('form button').click()"
    )


def rows(page: Page, table: str) -> dict[str, list[str]]:
    """The texts of a table, by the first of each row."""
    found: list[list[str]] = page.value(
        f"[...document.querySelectorAll('#{table} tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return {first: others for first, *others in found}


def test_a_key_is_asked_for_and_stays_in_its_tab(page: Page, address: str) -> None:
    page.open(f"{address}/dashboard")
    page.value("sessionStorage.clear()")
    page.open(f"{address}/dashboard")
    page.wait("!document.getElementById('ask').hidden")
    assert page.value(SHOWN) is None
    for wrong in ("not-a-key-of-ours", KEY + "-2", "schlüssel"):  # the second is a client's, for one route
        enter(page, wrong)
        page.wait("!document.getElementById('ask').hidden && document.getElementById('trouble').textContent")
        assert page.value("document.getElementById('seen').hidden") is True
        page.value("document.getElementById('trouble').textContent = ''")
    enter(page, f" {KEY} ")
    page.wait(SHOWN)
    assert page.value("location.href") == f"{address}/dashboard"
    assert page.value("[document.getElementById('key').value, document.cookie, localStorage.length]") == ["", "", 0]
    page.open(f"{address}/dashboard")  # the same tab, anew
    page.wait(SHOWN)
    assert page.value("document.getElementById('ask').hidden") is True


def opened(page: Page, address: str) -> None:
    """The page as whoever has the key sees it."""
    page.open(f"{address}/dashboard")
    page.value(f"sessionStorage.setItem('splitsecond-key', {json.dumps(KEY)})")
    page.open(f"{address}/dashboard")
    page.wait(SHOWN)


def test_what_was_served_is_on_the_page_and_is_asked_for_again(page: Page, address: str) -> None:
    opened(page, address)
    targets = rows(page, "targets")
    assert [*targets][:3] == ["sim/quick", "slow/quick", "down/quick"]
    assert targets["sim/quick"][0] == "up"
    assert targets["down/quick"][0].startswith("locked")
    assert "http_401" in targets["down/quick"][0]
    assert targets["slow/quick"][7].startswith("100 %"), "it lost each race"
    asked = int(rows(page, "clients")[HOSTILE_CLIENT][1])
    assert asked >= 5
    (worker,) = rows(page, "workers").values()
    assert worker[1:2] == ["0"]
    assert 'fallback("down/quick", "sim/quick")' in page.value(TEXT)
    ask(f"{address}/v1", "fast")
    page.wait(f"document.querySelector('#clients tbody tr').cells[2].textContent === '{asked + 1}'")
    assert int(page.value(SHOWN)) > 1


def test_names_that_look_like_markup_are_text(page: Page, address: str) -> None:
    opened(page, address)
    assert HOSTILE_CLIENT in rows(page, "clients")
    assert {HOSTILE_TARGET, BACKWARDS} <= {*rows(page, "targets")}
    assert page.value("document.title") == "Splitsecond gateway"
    assert page.value("document.querySelectorAll('img, iframe, a').length") == 0
    assert page.value("document.scripts.length") == 1
    assert page.value("document.documentElement.dataset.wrong") is None
    assert not [each for each in page.messages if "Content Security Policy" in each or "exceptionDetails" in each]
    with pytest.raises(AssertionError, match="TrustedHTML"):  # had the script tried, the browser would have refused
        page.value("document.body.insertAdjacentHTML('beforeend', '<i>x</i>')")


@pytest.mark.parametrize("width", [1400, 700, 390])
@pytest.mark.parametrize(("theme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")])
def test_nothing_scrolls_sideways_in_either_theme(
    page: Page, address: str, width: int, theme: str, ground: str
) -> None:
    page.looks(width, theme)
    opened(page, address)
    seen: Any = page.value(
        "[innerWidth, document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]"
    )
    assert seen[0] == width
    assert seen[1] <= width
    assert seen[2] == ground
    other = "Light" if theme == "dark" else "Dark"
    assert page.value("document.getElementById('theme').textContent") == other
    page.value("document.getElementById('theme').click()")
    assert page.value("getComputedStyle(document.body).backgroundColor") != ground


def test_a_gateway_that_has_gone_is_said_to_have_and_is_shown_when_it_is_back(
    page: Page, served: Served, tmp_path: Path
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(f"providers: {{sim: {{base_url: '{served.simulated.base_url}'}}}}\n")
    with gateway(tmp_path) as process:
        url = ready(process)
        ask(url, "sim/quick")
        page.open(f"{url.removesuffix('/v1')}/dashboard")
        page.wait(f"{TEXT}.includes('1 since it began')")  # from this machine it takes no key
        assert "There are no routes" in page.value(TEXT)
    page.wait("document.getElementById('trouble').textContent.includes('does not answer')")
    assert page.value("document.getElementById('seen').className") == "stale"
    with gateway(tmp_path, "--port", url.removesuffix("/v1").rpartition(":")[2]) as process:
        ready(process)
        page.wait(f"{TEXT}.includes('0 since it began')")
        assert page.value("document.getElementById('trouble').hidden") is True
        assert page.value("document.getElementById('seen').className") == ""
    assert page.value("document.documentElement.dataset.wrong") is None
