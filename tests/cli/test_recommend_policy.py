"""`splitsecond recommend --policy`, with a log of two targets. One target is faster."""

from pathlib import Path

import pytest
from tests.cli.conftest import Split
from tests.replay.logs import alternating, write

TODAY = 'weighted("a/m", "b/m")'


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recommend-policy") / "log.db"
    write(f"sqlite:///{file}", alternating(500))
    return file


def test_the_better_policy_is_proposed_with_its_evidence(split: Split, log: Path) -> None:
    ended = split(
        "recommend", "--policy", "ttft-p50", "--log", log, "--today", TODAY, "--any-load",
        "--json", "-",
    )  # fmt: skip
    assert ended.code == 0
    assert ended.json["policy"].startswith('fallback("a/m", "b/m"')
    found = {each["policy"]: each["figures"] for each in ended.json["answer"]["answers"]}
    assert TODAY not in found, "today's policy is not in the family"
    assert len(found) >= 7
    (figure,) = (each for each in found[ended.json["policy"]] if each["name"] == "ttft_p50_ms")
    assert figure["what_if"] == pytest.approx(300, rel=0.03)
    assert figure["ci95"][1] < 0
    assert "surely improves TTFT p50 ms most for route chat" in " ".join(ended.err.split())


def test_nothing_is_proposed_if_the_best_is_there_already(split: Split, log: Path) -> None:
    ended = split("recommend", "--policy", "failures", "--log", log, "--today", TODAY, "--any-load")
    assert ended.code == 0
    assert "surely improves failed: keep today's." in ended.words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "speed"), "ttft-p50"),
        (("chat", "--policy", "cost"), "which recommends no targets"),
        (("--policy", "cost"), "Name it with --today"),
    ],
)
def test_wrong_use_says_what_is_expected(
    split: Split, log: Path, arguments: tuple[str, ...], words: str
) -> None:
    ended = split("recommend", *arguments, "--log", log)
    assert ended.code == 2
    assert words in ended.complaint
