"""docs/reference/articles.md is current, and its rows are what the commands print."""

import re
from collections import Counter

import pytest
from tests.cli.conftest import Split
from tests.cli.conftest import split as split  # a fixture
from tests.questions.documents import (
    DOCUMENTS,
    PUBLISHED,
    ROOT,
    UNCLEAR,
    VERDICTS,
    asked,
    page,
    published,
    rows,
    sections,
)


def test_the_page_is_current(request: pytest.FixtureRequest) -> None:
    written = ROOT / "docs/reference/articles.md"
    if request.config.getoption("--update-golden"):
        written.write_text(page(), encoding="utf-8")
    assert written.read_text(encoding="utf-8") == page(), "run this test with --update-golden"


def test_every_document_has_rows_with_command_output_and_verdict() -> None:
    found = rows()
    assert len(found) >= 143
    assert set(Counter(row.document for row in found)) == set(DOCUMENTS)
    assert [row for row in found if not (row.says and row.command and row.shows)] == []


def test_published_figures_are_printed_by_their_commands(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed: dict[str, str] = {}
    for row in published():
        assert row.verdict == PUBLISHED
        if row.command not in printed:
            printed[row.command] = split(*row.command.split()[1:]).words
        assert row.shows in printed[row.command], row.command


def test_each_question_is_answered_by_a_page_that_runs() -> None:
    answers = sections(ROOT / "docs/questions.md")
    titles = re.findall(r"\[([^]]+)\]\(", " ".join(row.shows for row in asked()))
    assert set(titles) <= set(answers)


def test_each_verdict_on_a_question_is_of_a_quote() -> None:
    quotes = [row.says for row in asked()]
    assert [start for start in VERDICTS if not any(q.startswith(start) for q in quotes)] == []


def test_claims_that_do_not_hold_are_there() -> None:
    verdicts = {row.says: row.verdict for row in rows()}
    assert verdicts["GPT-3.5 Turbo is 2 to 3 times as fast as GPT-4 Turbo"] == "less"
    assert verdicts["Gemini has the fastest TTFT of the cloud providers (180 ms)"] == "less"
    assert verdicts["Claude's batch performance lags OpenAI's"] == UNCLEAR
    assert verdicts["Doubling concurrency roughly halves TPS (Groq, 1 to 8)"] == "less"
    assert sum(verdict == "less" for verdict in verdicts.values()) >= 10
