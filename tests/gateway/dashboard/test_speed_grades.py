"""The page of speed grades on the dashboard: what it contains, how often it is made, and what its
process answers."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.report.page import Page
from tests.store.records import answered

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.dashboard import speed_grades
from splitsecond.gateway.dashboard.speed_grades import (
    FRESH_NS,
    REST,
    SpeedPages,
    SpeedQuestion,
    made_by_process,
    speed_page,
)
from splitsecond.log.store.log import Log
from splitsecond.testing.virtual_time import run_virtual

HOUR_S = 3600.0


def log_of(folder: Path, requests: int) -> str:
    """Write a log of so many requests to each of two targets; another one was asked 20 days ago."""
    url = f"sqlite:///{folder}/log.db"
    calls = [answered(-1, target="old/m", ago_s=20 * 24 * HOUR_S)]
    for number in range(requests):
        ago_s = (requests - number) * 300 * HOUR_S / requests
        quick = answered(2 * number, target="groq/llama-70b", ago_s=ago_s)
        (attempt,) = quick.attempts
        calls.append(replace(quick, attempts=(replace(attempt, output_tokens=200),)))
        calls.append(answered(2 * number + 1, target="azure/gpt-4o", ago_s=ago_s))
    with Log.open(url) as log:
        for call in calls:
            log.put(call)
    return url


def bars(page: Page) -> list[str | None]:
    return [
        attributes["data-name"]
        for tag, attributes in page.tags
        if tag == "g" and "data-name" in attributes
    ]


def test_the_page_has_the_grades_of_the_log(tmp_path: Path) -> None:
    page = Page(
        speed_page(
            SpeedQuestion(url=log_of(tmp_path, 520), prices={"azure/gpt-4o": Price(output_usd=12)})
        )
    )
    assert bars(page) == ["groq/llama-70b", "azure/gpt-4o"]
    assert "1,040 requests, " in page.text
    assert "groq/llama-70b is the fastest: 399 total tokens/s, grade 1." in page.text
    assert "$2.00" in page.text  # 20 of 120 tokens at $12
    selects = [attributes.get("name") for tag, attributes in page.tags if tag == "select"]
    assert selects == ["model", "maker", "host"]


def test_targets_with_most_requests_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_grades, "MAX_ROWS", 3)
    url = f"sqlite:///{tmp_path}/log.db"
    with Log.open(url) as log:
        for number in range(10):
            for again in range(number + 1):
                log.put(answered(100 * number + again, target=f"made-up/{number}", ago_s=60))
    assert sorted(filter(None, bars(Page(speed_page(SpeedQuestion(url=url, prices={})))))) == [
        f"made-up/{n}" for n in (7, 8, 9)
    ]


def test_an_empty_log_has_no_speed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    Log.open(url).close()
    assert "No request has a speed." in speed_page(SpeedQuestion(url=url, prices={}))


def test_page_is_made_once_for_all_viewers_until_it_is_old() -> None:
    made: list[int] = []

    async def make(question: SpeedQuestion) -> bytes:
        await asyncio.sleep(5)
        made.append(clock.now_ns())
        return b"page %d" % len(made)

    async def question() -> SpeedQuestion:
        return SpeedQuestion(url="", prices={})

    async def main() -> None:
        pages = SpeedPages(make)
        assert await asyncio.gather(*(pages.page(question) for _ in range(3))) == [b"page 1"] * 3
        await asyncio.sleep(REST * 5 - 1)
        assert await pages.page(question) == b"page 1"
        await asyncio.sleep(1)
        assert await pages.page(question) == b"page 2"
        assert FRESH_NS < REST * 5 * clock.NS_PER_S

    run_virtual(main())


def test_a_page_that_cannot_be_made_is_tried_again() -> None:
    made: list[int] = []

    async def make(question: SpeedQuestion) -> bytes:
        made.append(1)
        if len(made) == 1:
            raise CallerFault("no database", kind="log_unavailable")
        return b"page"

    async def question() -> SpeedQuestion:
        return SpeedQuestion(url="", prices={})

    async def main() -> None:
        pages = SpeedPages(make)
        with pytest.raises(CallerFault, match="no database"):
            await pages.page(question)
        assert await pages.page(question) == b"page"

    run_virtual(main())


@pytest.mark.system
def test_process_returns_the_page_or_raises_503(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    question = SpeedQuestion(url=log_of(tmp_path, 10), prices={})
    page = asyncio.run(made_by_process(question)).decode()
    assert bars(Page(page)) == ["groq/llama-70b", "azure/gpt-4o"]
    with pytest.raises(CallerFault, match="ended with exit code 1") as caught:
        asyncio.run(made_by_process(SpeedQuestion(url=f"sqlite:///{tmp_path}/none.db", prices={})))
    assert caught.value.status == 503
    assert "none.db" in capfd.readouterr().err
