"""Sessions on the dashboard: the data of its list and of one session."""

import asyncio
import json
from pathlib import Path

import msgspec
from tests.store.records import answered, in_session

from splitsecond.gateway.dashboard.log_process import LogQuestion
from splitsecond.gateway.dashboard.sessions import SessionPages
from splitsecond.log.production.sessions import TargetTimes
from splitsecond.log.store.log import Log, Past

ID = "00000000000000ab"
TIMES = TargetTimes(
    turns=50, fixed_s=0.1, new_s=1e-3, reused_s=1e-6, scale=0.1, token_s=0.01, token_scale=0.1
)


def test_the_data_are_a_list_and_one_session(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    asked: list[str] = []

    async def times(question: LogQuestion) -> bytes:
        asked.append(question.url)
        return msgspec.json.encode({"groq/fast": TIMES})

    with Log.open(url) as log:
        for number in range(3):
            log.put(answered(number, ago_s=90 - 30 * number, session=in_session(number + 1, ID)))
    pages, past = SessionPages(times), Past.open(url)

    async def main() -> list[bytes | None]:
        return [
            await pages.data(past, url, lambda target: None, each)
            for each in ("", ID, ID, "00000000000000ac")
        ]

    listed, one, again, unknown = asyncio.run(main())
    assert listed is not None
    assert one is not None
    assert [(each["id"], each["turns"]) for each in json.loads(listed)["sessions"]] == [(ID, 3)]
    found = json.loads(one)
    assert [turn["turn"] for turn in found["session"]["turns"]] == [1, 2, 3]
    assert found["statement"].startswith("You waited 1.5 s of ")
    assert again == one
    assert unknown is None
    assert asked == [url], "the times are fitted once in ten minutes"
