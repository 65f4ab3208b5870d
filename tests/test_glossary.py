"""docs/glossary.md defines each term once, in one sentence, in alphabetical order."""

import re
from pathlib import Path

GLOSSARY = Path(__file__).parents[1] / "docs/glossary.md"


def tables() -> list[list[tuple[str, str]]]:
    """Return the rows of each table: a term and its meaning."""
    parts = GLOSSARY.read_text("utf-8").split("|---|---|\n")[1:]
    return [
        re.findall(r"^\| (.+?) \| (.+) \|$", part.partition("\n\n")[0], re.MULTILINE)
        for part in parts
    ]


def test_each_term_is_defined_once() -> None:
    terms = [term for table in tables() for term, _ in table]
    assert len(terms) > 100
    assert len(set(terms)) == len(terms)


def test_terms_are_in_order_and_meanings_are_one_sentence() -> None:
    for table in tables():
        terms = [term.casefold() for term, _ in table]
        assert terms == sorted(terms)
        assert [meaning for _, meaning in table if re.search(r"\.( |$)", meaning)] == []


def test_the_standard_metrics_are_defined() -> None:
    terms = {term for table in tables() for term, _ in table}
    assert {"TTFT", "TPS", "TPOT", "ITL", "E2E", "goodput", "system tokens/s"} <= terms
