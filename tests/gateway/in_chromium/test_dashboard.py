"""The dashboard of a running gateway in a real browser: its figures, its key form, its widths, and
names that look like markup."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.axe import violations
from tests.gateway.conftest import KEY, ServedGateway, gateway, ready
from tests.gateway.in_chromium.devtools import Page, driven
from tests.store.records import answered
from tests.waiting import WITHIN_S

from splitsecond.log.store.log import Log

pytestmark = pytest.mark.system

HOSTILE_CLIENT = '<img src=x onerror="document.title=1">'
HOSTILE_TEAM = "<b>team</b>"
HOSTILE_TARGET = 'sim/<script>document.title="taken"</script>'
BACKWARDS = "sim/\u05de\u05d5\u05d3\u05dc/" + "and-does-not-end" * 12
SETTINGS = """
listen: {{metrics: key}}
keys:
  - {{name: {hostile}, key: env:WEB_KEY, requests_per_minute: 900}}
  - {{name: small, key: env:SMALL_KEY, routes: [fast], team: {team}}}
teams: {{{team}: {{usd_per_month: 5}}}}
providers:
  sim: {{base_url: '{url}', price: {{input_usd: 1, output_usd: 2}}}}
  slow: {{base_url: '{url}', headers: {{x-splitsecond-fault: 'slow_first_token; seconds=9'}}}}
  down: {{base_url: '{url}', headers: {{x-splitsecond-fault: '401'}}}}
routes:
  fast: {{policy: 'race("sim/quick", "slow/quick")'}}
  safe: {{policy: 'fallback("down/quick", "sim/quick")'}}
"""
GRADED = [
    "groq/llama-3.3-70b-versatile",
    "azure/gpt-4o",
    "openai/gpt-4o",
    "anthropic/claude-3-haiku-20240307",
]
SHOWN = "document.documentElement.dataset.shown"
TEXT = "document.body.innerText"


def ask(url: str, model: str, key: str = KEY) -> None:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/chat/completions", body, headers)
    try:
        urllib.request.urlopen(request, timeout=WITHIN_S).close()
    except urllib.error.HTTPError as error:  # for a model that the provider does not have
        error.close()


@pytest.fixture(scope="module")
def page(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with driven(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def address(served: ServedGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway whose dashboard needs a key and which has served names that look
    like markup."""
    settings = SETTINGS.format(
        url=served.simulated.base_url,
        hostile=json.dumps(HOSTILE_CLIENT),
        team=json.dumps(HOSTILE_TEAM),
    )
    folder = tmp_path_factory.mktemp("dashboard")
    (folder / "splitsecond.yaml").write_text(settings)
    with gateway(folder) as process:
        url = ready(process)
        for model in ("fast", "fast", "safe", HOSTILE_TARGET, BACKWARDS):
            ask(url, model)
        yield url.removesuffix("/v1")


def enter(page: Page, key: str) -> None:
    """Type a key and submit it."""
    page.value(
        f"document.getElementById('key').value = {json.dumps(key)}; document.querySelector('form "
        f"button').click()"
    )


def rows(page: Page, table: str) -> dict[str, list[str]]:
    """Return the rows of a table as texts, by the first cell of each."""
    found: list[list[str]] = page.value(
        f"[...document.querySelectorAll('#{table} tbody tr')].map(row => [...row.cells].map(cell "
        f"=> cell.textContent))"
    )
    return {first: others for first, *others in found}


def test_key_is_requested_and_stays_in_its_tab(page: Page, address: str) -> None:
    page.open(f"{address}/dashboard")
    page.value("sessionStorage.clear()")
    page.open(f"{address}/dashboard")
    page.wait("!document.getElementById('key-form').hidden")
    assert page.value(SHOWN) is None
    # the second is a client's, for one route
    for wrong in ("not-a-key-of-ours", KEY + "-2", "schlüssel"):
        enter(page, wrong)
        page.wait(
            "!document.getElementById('key-form').hidden && "
            "document.getElementById('problem').textContent"
        )
        assert page.value("document.getElementById('overview').hidden") is True
        page.value("document.getElementById('problem').textContent = ''")
    enter(page, f" {KEY} ")
    page.wait(SHOWN)
    assert page.value("location.href") == f"{address}/dashboard"
    assert page.value(
        "[document.getElementById('key').value, document.cookie, localStorage.length]"
    ) == ["", "", 0]
    page.open(f"{address}/dashboard")  # the same tab, anew
    page.wait(SHOWN)
    assert page.value("document.getElementById('key-form').hidden") is True


def opened(page: Page, address: str) -> None:
    """Open the page with the key stored."""
    page.open(f"{address}/dashboard")
    page.value(f"sessionStorage.setItem('splitsecond-key', {json.dumps(KEY)})")
    page.open(f"{address}/dashboard")
    page.wait(SHOWN)


def test_the_page_shows_what_was_served_and_polls(page: Page, address: str) -> None:
    opened(page, address)
    page.wait("Number(document.querySelector('#clients tbody tr').cells[2].textContent) >= 5")
    targets = rows(page, "targets")
    assert [*targets][:3] == ["sim/quick", "slow/quick", "down/quick"]
    assert targets["sim/quick"][0] == "up"
    assert targets["down/quick"][0].startswith("locked")
    assert "key_refused" in targets["down/quick"][0]
    assert targets["slow/quick"][7].startswith("100%"), "it lost each race"
    asked = int(rows(page, "clients")[HOSTILE_CLIENT][1])
    (worker,) = rows(page, "workers").values()
    assert worker[1:2] == ["0"]
    assert 'fallback("down/quick", "sim/quick")' in page.value(TEXT)
    ask(f"{address}/v1", "fast")
    page.wait(f"document.querySelector('#clients tbody tr').cells[2].textContent === '{asked + 1}'")
    assert int(page.value(SHOWN)) > 1


def test_names_that_look_like_markup_are_text(page: Page, address: str) -> None:
    opened(page, address)
    assert HOSTILE_CLIENT in rows(page, "clients")
    assert rows(page, "teams") == {
        HOSTILE_TEAM: ["1", "0", "no limit", "$0", "$0$5.00 left of $5.00"]
    }
    assert {HOSTILE_TARGET, BACKWARDS} <= {*rows(page, "targets")}
    assert page.value("document.title") == "Splitsecond gateway"
    assert page.value("document.querySelectorAll('img, iframe, a').length") == 0
    assert page.value("document.scripts.length") == 1
    assert page.value("document.documentElement.dataset.wrong") is None
    assert not [
        each
        for each in page.messages
        if "Content Security Policy" in each or "exceptionDetails" in each
    ]
    # had the script tried, the browser would have refused
    with pytest.raises(AssertionError, match="TrustedHTML"):
        page.value("document.body.insertAdjacentHTML('beforeend', '<i>x</i>')")


@pytest.mark.parametrize("width", [1400, 700, 390])
@pytest.mark.parametrize(
    ("theme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")]
)
def test_nothing_scrolls_sideways_in_either_theme(
    page: Page, address: str, width: int, theme: str, ground: str
) -> None:
    page.looks(width, theme)
    opened(page, address)
    seen: Any = page.value(
        "[innerWidth, document.documentElement.scrollWidth, "
        "getComputedStyle(document.body).backgroundColor]"
    )
    assert seen[0] == width
    assert seen[1] <= width
    assert seen[2] == ground
    other = "Light" if theme == "dark" else "Dark"
    assert page.value("document.getElementById('theme').textContent") == other
    page.value("document.getElementById('theme').click()")
    assert page.value("getComputedStyle(document.body).backgroundColor") != ground


def test_stopped_gateway_is_reported_until_it_is_back(
    page: Page, served: ServedGateway, tmp_path: Path
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(
        f"providers: {{sim: {{base_url: '{served.simulated.base_url}'}}}}\n"
    )
    with gateway(tmp_path) as process:
        url = ready(process)
        ask(url, "sim/quick")
        page.open(f"{url.removesuffix('/v1')}/dashboard")
        page.wait(f"{TEXT}.includes('1 since start')")  # from this machine it takes no key
        assert "No routes are configured" in page.value(TEXT)
    page.wait("document.getElementById('problem').textContent.includes('does not answer')")
    assert page.value("document.getElementById('overview').className") == "stale"
    with gateway(tmp_path, "--port", url.removesuffix("/v1").rpartition(":")[2]) as process:
        ready(process)
        page.wait(f"{TEXT}.includes('0 since start')")
        assert page.value("document.getElementById('problem').hidden") is True
        assert page.value("document.getElementById('overview').className") == ""
    assert page.value("document.documentElement.dataset.wrong") is None


def overview(address: str) -> dict[str, Any]:
    """Return the data of a gateway, as its page gets them."""
    asked = urllib.request.Request(
        f"{address}/dashboard/data", headers={"authorization": f"Bearer {KEY}"}
    )
    with urllib.request.urlopen(asked, timeout=WITHIN_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def given(page: Page, address: str, data: dict[str, Any], history: object = None) -> None:
    """Open the page with other data than those of its gateway."""
    script = (
        f"const data = {json.dumps(data)}, past = {json.dumps(history)}; let at = data.at_s; "
        "const answer = url => url.includes('history') ? past : {...data, at_s: at += 2}; "
        "window.fetch = async url => ({ok: true, status: 200, json: async () => answer(url)})"
    )
    added = page.says("Page.addScriptToEvaluateOnNewDocument", source=script)
    opened(page, address)
    page.says("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])


def test_state_of_each_target_is_shown_correctly(page: Page, address: str) -> None:
    data = overview(address)
    up = data["targets"][0]
    base = up | {
        "state": "up",
        "attempts": {},
        "faults": {},
        "ttft_p50_ms": None,
        "priced": True,
        "free": False,
        "output_tokens": 0,
    }
    data["targets"] = [
        base | {"name": "fine/x", "attempts": {"ok": 95, "failed": 2}},
        base
        | {"name": "failing/x", "state": "degraded", "why": "30% of the last 50 attempts failed"},
        base | {"name": "new/x", "state": "untested"},
        base | {"name": "unpriced/x", "attempts": {"ok": 3}, "priced": False, "per_hour_usd": None},
        base | {"name": "free/x", "attempts": {"ok": 3}, "free": True},
    ]
    data |= {"usd": 0, "usd_today": 0}
    data["clients"] = [each | {"priced": False, "usd": 0} for each in data["clients"]]
    given(page, address, data)
    targets = rows(page, "targets")
    assert targets["fine/x"][0] == "up"
    assert targets["failing/x"][0] == "degraded30% of the last 50 attempts failed"
    assert targets["new/x"][0] == "untested"
    assert targets["unpriced/x"][8] == "no price"
    assert targets["free/x"][8] == "free"
    tile = (
        "[...document.querySelectorAll('.tile')].find(each => "
        "each.textContent.startsWith('Token cost'))"
    )
    assert page.value(f"{tile}.querySelector('.value').textContent") == "no price"
    assert "1 target without a price" in page.value(f"{tile}.textContent")
    # of calls before those that the page has seen
    given(page, address, data | {"usd": 2.5, "usd_today": 2.5})
    page.wait(f"{tile}.querySelector('.value').textContent === 'no price'")
    assert "$2.50 today, without 1 target without a price" in page.value(f"{tile}.textContent")
    assert rows(page, "clients")[HOSTILE_CLIENT][6] == "no price"


def test_calls_and_failures_are_shown_with_their_attempts(page: Page, address: str) -> None:
    opened(page, address)
    page.wait("document.querySelectorAll('#failures tbody tr').length")
    reasons = [cells[2] for cells in rows(page, "failures").values()]
    assert any(reason.startswith("key_refused") for reason in reasons), reasons
    calls = page.value(
        "[...document.querySelectorAll('#calls tbody tr')].map(row => row.textContent)"
    )
    safe = next(text for text in calls if "safe" in text and "down/quick" in text)
    assert "key_refused" in safe
    assert "sim/quick" in safe
    assert page.value("document.querySelectorAll('#calls .attempt rect').length") > 5


def test_the_period_can_be_chosen_and_charts_have_times(page: Page, address: str) -> None:
    given(page, address, overview(address) | {"logged": True}, history(80))
    charts = "[...document.querySelectorAll('#history figure')].map(each => each.textContent)"
    assert page.value(PRESSED) == "1"
    live = page.value(charts)
    assert len(live) == 4
    assert all(":" in text for text in live), "times of the day"
    page.value("document.querySelector('#ranges [data-hours=\"24\"]').click()")
    page.wait(
        "document.getElementById('history-note').textContent === 'From "
        "the log, in periods of 20 min.'"
    )
    assert [text.split(",")[0] for text in page.value(charts)][2] == "TTFT"
    assert page.value(PRESSED) == "24"


def test_the_axis_of_a_young_log_begins_at_its_first_call(page: Page, address: str) -> None:
    given(page, address, overview(address) | {"logged": True}, history(12))
    page.value("document.querySelector('#ranges [data-hours=\"24\"]').click()")
    page.wait(
        "document.getElementById('history-note').textContent === 'From "
        "the log, in periods of 20 min.'"
    )
    line = "document.querySelector('#history .line')"
    # of the 300 of the chart; 41 on an axis of a day
    assert page.value(f"{line}.getBBox().width") > 200
    assert page.value(f"{line}.getAttribute('d').split('L').length") == 12


def test_log_without_a_whole_period_is_not_the_default_view(page: Page, address: str) -> None:
    given(page, address, overview(address) | {"logged": True}, history(0))
    assert page.value(PRESSED) == "0"
    page.value("document.querySelector('#ranges [data-hours=\"24\"]').click()")
    page.wait(
        "document.getElementById('history-note').textContent.endsWith('no "
        "whole period with calls yet.')"
    )
    assert page.value("document.documentElement.dataset.wrong") is None


PRESSED = "document.querySelector('#ranges [aria-pressed=true]').dataset.hours"


def history(count: int) -> dict[str, Any]:
    """Return a log with calls in the last `count` whole periods of 20 minutes."""
    last = int(time.time()) // 1200
    figures = {"calls": 10, "failed": 1, "ttft_ms": 90.0, "output_tokens": 60}
    return {
        "period_s": 1200,
        "periods": [{"at_s": 1200 * at, **figures} for at in range(last - count, last)],
    }


@pytest.mark.parametrize("width", [1280, 1121, 1120])
def test_no_column_is_cut(page: Page, address: str, width: int) -> None:
    page.looks(width, "light")
    opened(page, address)
    tables = "[...document.querySelectorAll('table')]"
    assert (
        page.value(
            f"{tables}.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.id)"
        )
        == []
    )
    assert page.value("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def logged(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway whose log has calls to four targets, and which needs no key."""
    folder = tmp_path_factory.mktemp("speeds")
    with Log.open(f"sqlite:///{folder}/log.db") as log:
        for number, target in enumerate(GRADED):
            for again in range(505):
                call = answered(1000 * number + again, target=target, ago_s=600 * (505 - again))
                (attempt,) = call.attempts
                tokens = msgspec.structs.replace(attempt, output_tokens=20 * (number + 1))
                log.put(msgspec.structs.replace(call, attempts=(tokens,)))
    (folder / "splitsecond.yaml").write_text(
        "log: sqlite:///log.db\nroutes: {fast: {policy: '\"sim/groq\"'}}\n"
    )
    with gateway(folder) as process:
        yield ready(process).removesuffix("/v1")


def bars(page: Page) -> list[str]:
    """Return the names of the bars that are shown, from the top."""
    found: list[str] = page.value(
        "[...document.querySelectorAll('#speeds .row:not(.gone)')].map(row => "
        "[row.getBoundingClientRect().top, "
        "row.querySelector('[data-name]').dataset.name]).sort((a, b) => a[0] - b[0]).map(each => "
        "each[1])"
    )
    return found


def test_speed_grades_of_the_log_and_their_filters(page: Page, logged: str) -> None:
    page.messages.clear()
    page.open(f"{logged}/dashboard")
    page.wait("!!document.querySelector('#speeds .row')")
    # as in `GRADED`, each writes more than the one before in the same time
    assert bars(page) == GRADED[::-1]
    text = page.value("document.getElementById('speeds').innerText")
    assert f"{GRADED[-1]} is the fastest: 160 total tokens/s, grade 1." in text
    assert text.startswith("Speed grades")
    page.value("document.querySelector('#speeds select[name=maker]').value = 'OpenAI'")
    page.value("document.querySelector('#filters').dispatchEvent(new Event('input'))")
    assert bars(page) == ["openai/gpt-4o", "azure/gpt-4o"]
    assert page.value("document.querySelector('#filters output').value") == "2 of 4 shown"
    page.value("document.querySelector('#filters input[value=\"2\"]').click()")
    assert bars(page) == ["openai/gpt-4o"]  # the other has grade 2
    assert page.value("document.documentElement.dataset.wrong") is None
    assert not [
        each
        for each in page.messages
        if "Content Security Policy" in each or "exceptionDetails" in each
    ]
    assert page.value("[document.scripts.length, document.querySelectorAll('style').length]") == [
        1,
        1,
    ]


def test_axe_finds_no_violations(page: Page, address: str, logged: str) -> None:
    opened(page, address)
    page.wait("document.querySelectorAll('#calls tbody tr').length")
    assert violations(page) == []
    page.open(f"{logged}/dashboard")
    page.wait("!!document.querySelector('#speeds .row')")
    assert violations(page) == []
    page.open(f"{logged}/dashboard/speed")
    assert violations(page) == []


def test_the_form_for_the_key_has_no_violations(page: Page, address: str) -> None:
    page.open(f"{address}/dashboard")
    page.value("sessionStorage.clear()")
    page.open(f"{address}/dashboard")
    page.wait("!document.getElementById('key-form').hidden")
    assert violations(page) == []


def test_without_a_log_there_are_no_speed_grades(page: Page, address: str) -> None:
    opened(page, address)
    assert page.value("document.getElementById('speeds-section').hidden") is True
