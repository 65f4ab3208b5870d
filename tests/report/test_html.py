import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser

import msgspec
import pytest
from tests.report.invented import invented_run, priced

from splitsecond.analysis.findings import Goodput, Run
from splitsecond.report import html
from splitsecond.report.html import render
from splitsecond.timing.observation import Observation

Invented = tuple[Run, Sequence[Observation]]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"

GOODPUT = Goodput(limits={"ttft": 300.0}, met=1, sent=2, fraction=0.5, per_s=1.0)

OUTLINE = """\
h1 Inference speed of 5 targets
h2 INVALID: 1 of 15 rows
h2 Figures
h3 Concurrency 1
caption Figures at concurrency 1
h3 Concurrency 8
caption Figures at concurrency 8
h3 Concurrency 32
caption Figures at concurrency 32
h3 Waiting, ms
caption Waiting, ms
h3 Pace
caption Pace
h3 System
caption System
h3 Tokens of a request
caption Tokens of a request
h2 Time to first token
figcaption Concurrency 1
figcaption Concurrency 8
figcaption Concurrency 32
h2 What load does
figcaption Time to first token, ms
figcaption Speed of one request, tokens per second
h2 One user or many
figcaption System throughput against the speed of one request
h2 Where the time goes
figcaption Until the first token
figcaption The whole request
h3 Means of the stages, ms
caption Means of the stages, ms
h2 Single requests
figcaption Concurrency 1
figcaption Concurrency 8
figcaption Concurrency 32
h2 The instrument's own error
h3 The instrument in each condition, times in ms
caption The instrument in each condition, times in ms
h2 Errors
caption Errors by class
h2 What the figures mean
h2 To run it again
h3 Settings
caption Settings
h3 Environment
caption Environment
"""


class Page(HTMLParser):
    """What a browser would make of the page: its outline, its text, its tags, and that they nest."""

    VOID = frozenset({"meta", "br", "input", "wbr"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.outline = ""
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside in {"h1", "h2", "h3", "figcaption", "caption"}:
            self.outline += f"{inside} {data}\n"
        if inside not in {"script", "style"}:
            self.text += data


@pytest.fixture
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JavaScript of Vega takes a second and a megabyte, and is not what is tested."""
    monkeypatch.setattr(html, "_bundle", lambda: "")


def test_the_whole_page_is_one_file_that_loads_nothing(invented: Invented) -> None:
    text = render(*invented)
    assert Page(text).outline == OUTLINE
    assert "window.vegaEmbed" in text
    assert len(text) < 1_600_000
    assert text.count("</script>") == 3
    assert not re.search(r"<(link|img|iframe|object)\b", text.split("<script")[0])
    assert "default-src 'none'" in text


@pytest.mark.usefixtures("no_bundle")
def test_each_plot_has_a_place_of_known_height_and_words(invented: Invented) -> None:
    text = render(*invented)
    data = json.loads(text.split('type="application/json">')[1].split("</script>")[0])
    places = [attributes for tag, attributes in Page(text).tags if attributes.get("class") == "plot"]
    assert [place["id"] for place in places] == [f"plot-{name}" for name in data["specs"]]
    for place, spec in zip(places, data["specs"].values(), strict=True):
        assert place["role"] == "img"
        assert place["aria-label"]
        assert place["style"] == f"height:{spec['height']}px"
        assert "title" not in spec
    assert set(data["themes"]) == {"light", "dark"}


@pytest.mark.usefixtures("no_bundle")
def test_tables_have_scopes_and_scroll_inside_themselves(invented: Invented) -> None:
    tags = Page(render(*invented)).tags
    assert {a.get("scope") for tag, a in tags if tag == "th"} == {"col", "row"}
    tables = [i for i, (tag, _) in enumerate(tags) if tag == "table"]
    assert all(tags[i - 1][1].get("class") == "scroll" for i in tables)


@pytest.mark.usefixtures("no_bundle")
def test_what_comes_from_outside_stays_text() -> None:
    run, observations = invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(32,), requests=12)
    (condition,) = run.conditions
    condition.target = condition.token_source = HOSTILE
    condition.notes, condition.invalid = [HOSTILE], [HOSTILE + "2"]
    condition.error_kinds, condition.error_examples = {HOSTILE: 1}, {HOSTILE: HOSTILE}
    run.statements, run.invalid, run.id, run.version, run.began = [HOSTILE], [HOSTILE], HOSTILE, HOSTILE, HOSTILE
    run.asked = {"command": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}}
    run.environment = {HOSTILE: [HOSTILE]}
    text = render(run, observations)
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert "img" not in [tag for tag, _ in page.tags]
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.text.count(HOSTILE) >= 15
    data = json.loads(text.split('type="application/json">')[1].split("</script>")[0])
    assert HOSTILE in json.dumps(data).replace('\\"', '"')


@pytest.mark.usefixtures("no_bundle")
def test_a_run_in_which_nothing_succeeded_still_says_what_happened(nothing_succeeded: Invented) -> None:
    page = Page(render(*nothing_succeeded))
    assert "6 of them failed" in page.text
    assert page.text.count("No request gave the figures for this plot.") == 5
    assert page.text.count("HTTP 429: rate limit reached for model") == 2
    assert "figcaption" not in page.outline


@pytest.mark.usefixtures("no_bundle")
def test_an_empty_run_is_a_page_too() -> None:
    page = Page(render(Run(id="r", began="2025-06-11T14:03:02Z", began_ns=0), []))
    assert "Nothing was measured." in page.text
    assert "This run was stopped before its end" in page.text


@pytest.mark.usefixtures("no_bundle")
def test_a_figure_that_n_is_too_small_for_is_weak_and_once_is_said_what_it_needs() -> None:
    page = Page(render(*invented_run(concurrencies=(1,), requests=10)))
    assert page.text.count("Too few requests for p95 (needs 72).") == 1
    assert ("td", {"class": "weak"}) in page.tags


@pytest.mark.usefixtures("no_bundle")
def test_columns_that_nothing_fills_are_left_out(invented: Invented) -> None:
    run, observations = invented
    assert "goodput" not in Page(render(run, observations)).text
    judged = [msgspec.structs.replace(c, goodput=GOODPUT) for c in run.conditions]
    assert "goodput" in Page(render(msgspec.structs.replace(run, conditions=judged), observations)).text


@pytest.mark.usefixtures("no_bundle")
def test_money_stands_wherever_speed_does_and_says_whose_the_price_is(invented: Invented) -> None:
    run, observations = invented
    assert "What it cost" not in Page(render(run, observations)).text
    text = Page(render(priced(run, observations), observations)).text
    assert "$ a million tokens" in text
    assert "What it cost" in text
    assert "Prices of the test, 2026-01-02: groq/llama-3.1-70b-versatile $0.59 in, $0.79 out a million tokens." in text
    assert "The whole run cost $" in text
    assert "Without generalcompute/" in text.partition("The whole run cost $")[2]


@pytest.mark.usefixtures("no_bundle")
def test_a_run_of_both_ways_has_a_section_on_the_prompt_cache(invented: Invented) -> None:
    assert "What prompt caching saves" not in render(*invented)
    run, observations = invented_run(("groq/llama-3.1-70b-versatile",), (1,), reuse=True)
    page = render(run, observations)
    (section,) = re.findall(r'<section id="cache">.*?</section>', page, re.DOTALL)
    cells = [re.sub(r"<[^>]+>", " ", cell).split() for cell in re.findall(r"<td[^>]*>(.*?)</td>", section)]
    assert cells[0] == ["c=1"]
    assert cells[1][1] == "→"
    assert cells[3:] == [["93.8", "%", "in", "80", "of", "80"], ["0.302", "→", "0.0669", "−0.235"]]
    assert "by prompts that begin differently and by prompts that begin alike" in page
    assert [title for title in re.findall(r"<figcaption>(.*?)</figcaption>", page) if "cache reuse" in title] == [
        "Concurrency 1, cache reuse",
        "Time to first token, cache reuse, ms",
        "Speed of one request, cache reuse, tokens per second",
        "System throughput against the speed of one request, cache reuse",
        "Concurrency 1, cache reuse",
    ]


def test_what_servers_say_of_their_time_stands_beside_ours(invented: Invented) -> None:
    run, observations = invented
    assert "theirs" not in Page(render(run, observations)).text
    first, *others = run.conditions
    said = [msgspec.structs.replace(first, server_ms={"queue": 3.0, "prompt_eval": 19.5}), *others]
    text = Page(render(msgspec.structs.replace(run, conditions=said), observations)).text
    assert "TTFT, oursE2E, oursqueue, theirsprompt eval, theirs" in text
    assert "3.0019.5" in text


@pytest.mark.usefixtures("no_bundle")
def test_few_sentences_are_all_in_sight(invented: Invented) -> None:
    run, observations = invented
    assert "more findings" in Page(render(run, observations)).text
    short = msgspec.structs.replace(run, statements=run.statements[:2])
    assert "more finding" not in Page(render(short, observations)).text
