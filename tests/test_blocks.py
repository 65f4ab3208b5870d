"""Every fenced block of README and the documents is run, or left out with a reason: no new one
escapes."""

import re
from pathlib import Path

from tests.cases import each_case
from tests.pages import ELSEWHERE, NOT_RUN, ROOT, RUN, SHELL, Block, blocks, pages, untested
from tests.test_documents import DOCUMENTS

ALL = [block for page in pages() for block in blocks(page)]
KINDS = {*RUN, "yaml", "toml", "json"}


@each_case("page", pages(), ids=lambda page: page.name)
def test_every_block_is_found(page: Path) -> None:
    """A fence that is indented, of another form, or without a language would escape."""
    fences = re.findall(r"(?m)^[ >]*(?:`{3,}|~{3,}).*$", page.read_text("utf-8"))
    assert len(fences) == 2 * len(blocks(page)), fences
    assert {block.kind for block in blocks(page)} <= KINDS


def test_every_block_is_tested() -> None:
    assert len(ALL) > 150
    assert untested(ALL) == []


def test_a_new_block_is_not_tested_by_chance() -> None:
    added = Block("docs/gateway", "toml", "", "a = 1\n")
    assert untested([added]) == [added]
    assert (
        untested(
            [
                Block("docs/gateway", "toml", "a.toml", "a = 1\n"),
                Block("docs/new", "sh", "", "ls\n"),
            ]
        )
        == []
    )


def test_each_other_test_reads_the_page() -> None:
    assert ELSEWHERE.keys() - {(block.page, block.kind) for block in ALL} == set()
    for (page, _), test in ELSEWHERE.items():
        assert f"{page.rpartition('/')[2]}.md" in (ROOT / test).read_text("utf-8"), test


def test_left_out_parts_exist_and_their_commands_parse() -> None:
    used = {(block.page, entry) for block in ALL for entry in block.left_out.values()}
    assert used == {(page, entry) for page, entries in NOT_RUN.items() for entry in entries}
    targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"))
    for block in ALL:
        for part in block.left_out if block.kind in SHELL else ():
            assert ROOT / f"{block.page}.md" in DOCUMENTS
            assert not part.startswith("make ") or part.split()[1] in targets


def test_reasons_name_tests_that_exist() -> None:
    named = re.findall(
        r"tests/[\w/.]+\.py",
        " ".join(why for entries in NOT_RUN.values() for why in entries.values()),
    )
    assert named
    assert [each for each in named if not (ROOT / each).exists()] == []
