"""Every kind of page, judged by axe-core: no violation of any impact."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.analysis.test_spending import PRICES, attempt, ledger_of
from tests.axe import violations
from tests.gateway.in_chromium.devtools import Page, driven
from tests.report.invented import invented_run, priced
from tests.report.searched import searched_run
from tests.report.test_compare_page import comparison
from tests.report.test_speed_page import speed_page
from tests.report.test_watch import history

from splitsecond.benchmark.report.compare_page import render_comparison
from splitsecond.benchmark.report.cost_page import render_cost
from splitsecond.benchmark.report.run_page import render_run
from splitsecond.benchmark.report.watch_page import render_watch
from splitsecond.log.production.speed_and_price import PricedSpeed, SpeedAndPrice

pytestmark = pytest.mark.system


def bench_page() -> str:
    run, observations = invented_run(in_rounds=True, reuse=True)
    return render_run(priced(run, observations), observations)


def cost_page() -> str:
    ledger = ledger_of(
        PRICES.get,
        [attempt("a/x")],
        [attempt("b/y"), attempt("a/x", role="loser")],
        [attempt("c/free")],
    )
    points = [
        PricedSpeed(target=target, tps=tps, usd_per_million=price, frontier="yes")
        for target, tps, price in (("a/x", 200, 1), ("b/y", 300, 2))
    ]
    found = SpeedAndPrice(targets=points, correlation=None, ci95=(None, None), needs=5)
    rows, total = ledger.rows(3600), ledger.total(3600)
    return render_cost(
        rows,
        total,
        found,
        ["a/x is cheap."],
        by="target",
        period="one hour",
        outlook="It costs $1.",
    )


PAGES: dict[str, Callable[[], str]] = {
    "bench": bench_page,
    "capacity": lambda: render_run(*searched_run(spoilt=True)),
    "compare": lambda: render_comparison(comparison(0.25, (1, 8))),
    "watch": lambda: render_watch(history("a/x", "b/y").findings(3600)),
    "watch, too early": lambda: render_watch(history("a/x", rounds=2).findings(3600)),
    "speed": speed_page,
    "cost": cost_page,
}


@pytest.fixture(scope="module")
def browser_page(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with driven(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_has_no_violations(kind: str, browser_page: Page, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGES[kind](), "utf-8")
    browser_page.open((tmp_path / "page.html").as_uri())
    assert violations(browser_page) == []


def test_a_violation_is_found(browser_page: Page, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGES["speed"](), "utf-8")
    browser_page.open((tmp_path / "page.html").as_uri())
    browser_page.value("document.querySelector('h1').style.color = '#ccc'")
    browser_page.value("document.body.append(document.createElement('img'))")
    found = " ".join(violations(browser_page))
    assert "serious color-contrast" in found
    assert "critical image-alt" in found
