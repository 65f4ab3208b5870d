import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import Golden
from tests.report.invented import invented_run, priced
from tests.report.page import Page

from splitsecond.benchmark.report.run_page import render_run
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.rows.row_fields import Goodput
from splitsecond.core.observation import Observation
from splitsecond.core.pages.chart import target_entries
from splitsecond.core.pages.html import HtmlTable, TableCell, render

Invented = tuple[Run, Sequence[Observation]]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"

GOODPUT = Goodput(limits={"ttft": 300.0}, met=1, sent=2, fraction=0.5, per_s=1.0)


@pytest.fixture(scope="module")
def text(invented: Invented) -> str:
    """The page of the invented run."""
    return render_run(*invented)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    """The same, as a test reads it."""
    return Page(text)


@pytest.fixture(scope="module")
def small() -> Invented:
    """A run of fewer rows and requests."""
    return invented_run(concurrencies=(1,), requests=20)


def test_the_words_of_a_page(page: Page, golden: Golden) -> None:
    golden.check(page.words)
    golden.check(page.outline, "outline")


def test_page_is_one_small_file_without_external_resources(text: str, page: Page) -> None:
    assert len(text) < 280_000
    assert text.count("</script>") == 2
    tags = page.tags
    assert {tag for tag, _ in tags} & {"link", "img", "iframe", "object"} == set()
    assert {a["href"] for _, a in tags if "href" in a} == {
        *(f"#{a['id']}" for tag, a in tags if tag == "section"),
        *(f"#mark-{at}" for at in range(5)),
        "#invalid",
    }


def test_csp_allows_only_the_pages_own_script_and_style(text: str, page: Page) -> None:
    (policy,) = (
        a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    for tag, attributes in (("script", ""), ("style", "")):
        (content,) = re.findall(f"<{tag}{attributes}>(.*?)</{tag}>", text, re.DOTALL)
        assert f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'" in str(policy)
    assert str(policy).startswith("default-src 'none'; ")
    assert "unsafe" not in str(policy)
    assert not [a for _, a in page.tags if "style" in a]


def test_each_plot_is_in_the_page_with_a_description(page: Page) -> None:
    tags = page.tags
    charts = [attributes for tag, attributes in tags if attributes.get("class") == "chart"]
    assert [chart["id"] for chart in charts][:1] == ["plot-ttft-by-load"]
    assert len(charts) == 23
    ids = {attributes.get("id") for _, attributes in tags}
    for chart in charts:
        assert chart["role"] == "img"
        assert {*str(chart["aria-labelledby"]).split()} <= ids
    figures = [attributes for tag, attributes in tags if tag == "figure"]
    assert {str(figure["aria-labelledby"]) for figure in figures} <= ids


def test_tables_have_scopes_and_scroll_inside_themselves(page: Page) -> None:
    tags = page.tags
    assert {a.get("scope") for tag, a in tags if tag == "th"} == {"col", "row"}
    tables = [i for i, (tag, _) in enumerate(tags) if tag == "table"]
    assert all(tags[i - 1][1].get("class") == "scroll" for i in tables)


def test_every_text_from_outside_stays_text() -> None:
    run, observations = invented_run(
        ("groq/llama-3.1-70b-versatile",), concurrencies=(32,), requests=12
    )
    (condition,) = run.conditions
    condition.target = condition.token_source = HOSTILE
    condition.notes, condition.invalid = [HOSTILE], [HOSTILE + "2"]
    condition.error_kinds, condition.error_examples = {HOSTILE: 1}, {HOSTILE: HOSTILE}
    run.statements, run.invalid, run.id, run.version, run.began = (
        [HOSTILE],
        [HOSTILE],
        HOSTILE,
        HOSTILE,
        HOSTILE,
    )
    run.asked = {"command": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}}
    run.environment = {HOSTILE: [HOSTILE]}
    text = render_run(run, observations)
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in page.tags]
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.text.count(HOSTILE) >= 15


def test_run_without_successes_shows_its_failures(nothing_succeeded: Invented) -> None:
    page = Page(render_run(*nothing_succeeded))
    assert "; 6 failed." in page.text
    assert page.text.count("No request has the figures for this plot.") == 6
    assert page.text.count("HTTP 429: rate limit reached for model") == 2
    assert "figcaption" not in page.outline


def test_an_empty_run_has_a_page() -> None:
    page = Page(render_run(Run(id="r", began="2025-06-11T14:03:02Z", began_ns=0), []))
    assert "Nothing was measured." in page.text
    assert "This run was stopped before its end" in page.text


def test_figure_from_too_few_requests_is_grey_with_one_note() -> None:
    page = Page(render_run(*invented_run(concurrencies=(1,), requests=10)))
    assert page.text.count("All rows: too few requests for an interval of p95: use -n 150.") == 1
    assert ("td", {"data-label": "TTFT p95, ms", "class": "weak"}) in page.tags


def test_empty_columns_are_left_out(page: Page, small: Invented) -> None:
    assert " | goodput" not in page.words
    run, observations = small
    judged = [msgspec.structs.replace(c, goodput=GOODPUT) for c in run.conditions]
    assert (
        " | goodput"
        in Page(render_run(msgspec.structs.replace(run, conditions=judged), observations)).words
    )


def test_cost_has_a_column_and_a_section_with_price_sources(text: str, small: Invented) -> None:
    assert 'id="money"' not in text
    run, observations = small
    page = render_run(priced(run, observations), observations)
    assert '<th scope="col">$ per million tokens</th>' in page
    (section,) = re.findall(r'<section id="money">.*?</section>', page, re.DOTALL)
    words = Page(section).words
    assert (
        "Prices of the test, 2026-01-02: groq/llama-3.1-70b-versatile $0.59 in, $0.79 out per "
        "million tokens." in words
    )
    assert "The whole run cost $" in words
    assert "generalcompute/" in words.partition("The whole run cost $")[2]


def test_run_with_cache_reuse_has_a_prompt_cache_section(text: str, golden: Golden) -> None:
    assert 'id="cache"' not in text
    run, observations = invented_run(
        ("groq/llama-3.1-70b-versatile",), (1,), reuse=True, in_rounds=True
    )
    page = render_run(priced(run, observations), observations)
    golden.check(Page(page).words)
    (section,) = re.findall(r'<section id="cache">.*?</section>', page, re.DOTALL)
    (row,) = [line for line in Page(section).words.splitlines() if line.startswith("groq/")]
    assert row.split(" | ")[1] == "c=1"
    assert re.search(r"\| 93\.8 ?% \(in 80 of 80\) \| 0\.302 → 0\.0669 \(−0\.235\)$", row)
    assert [
        title
        for title in re.findall(r"<figcaption[^>]*>(.*?)</figcaption>", page)
        if "cache reuse" in title
    ] == [
        "Time to first token, cache reuse, ms",
        "TPS of one request, cache reuse, tokens/s",
        *["Concurrency 1, cache reuse"] * 4,
    ]


def test_server_times_are_shown_beside_measured_ones(page: Page, small: Invented) -> None:
    assert "reported" not in page.text
    run, observations = small
    first, *others = run.conditions
    reporting = [
        msgspec.structs.replace(first, server_ms={"queue": 3.0, "prompt_eval": 19.5}),
        *others,
    ]
    words = Page(render_run(msgspec.structs.replace(run, conditions=reporting), observations)).words
    assert "| TTFT, measured | E2E, measured | queue, reported | prompt eval, reported\n" in words
    assert "| 3.00 | 19.5\n" in words


def test_three_findings_need_no_click(page: Page, small: Invented) -> None:
    assert "more findings" in page.text
    run, observations = small
    short = msgspec.structs.replace(run, statements=run.statements[:3])
    assert "more finding" not in Page(render_run(short, observations)).text


PLAIN = HtmlTable(
    caption="x", head=["x", "x"], body=[[TableCell(text="x", notes=["x"], target=True), "x"]]
)
TEXT = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]))


@given(TEXT)
def test_any_text_stays_text(text: str) -> None:
    cell = TableCell(text=text, notes=[text], target=True)
    table = HtmlTable(
        caption=text, head=[text.replace("\n", " ")] * 2, body=[[cell, text]]
    )  # a heading may have two lines
    page, plain = (
        Page(
            render(
                "watch.html",
                [],
                {"targets": target_entries([each])},
                title=each,
                lead=each,
                statements=[each],
                last=found,
                failures=found,
                headings={},
                rule=dict.fromkeys(("days", "least", "early", "settles"), 1),
            )
        )
        for each, found in ((text, table), ("x", PLAIN))
    )
    assert [tag for tag, _ in page.tags if tag != "wbr"] == [tag for tag, _ in plain.tags]
    assert [a["aria-label"] for _, a in page.tags if "aria-label" in a] == [text, text]
    assert page.text.count(text) >= 12


def test_regions_have_a_column_and_the_machine_its_place() -> None:
    run, observations = invented_run(concurrencies=(1,), requests=20)
    run.conditions[0].region = "eastus"
    page = render_run(
        msgspec.structs.replace(run, environment={"location": "Frankfurt"}), observations
    )
    words = Page(page).words
    assert "errors | region" in words
    assert "| 0 | eastus" in words
    assert "Measured from: Frankfurt." in words


def test_the_lead_names_the_workloads() -> None:
    run, observations = invented_run(concurrencies=(1,), requests=20)
    for condition, workload in zip(run.conditions, ("512", "8k"), strict=False):
        condition.workload = workload
    assert (
        "at concurrency 1, workloads 512 and 8k; none failed."
        in Page(render_run(run, observations)).words
    )
