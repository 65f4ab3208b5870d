"""Calls whose worker is killed: what they had reserved is charged, each is in the log, and standard
error says so."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest
from msgspec import structs
from tests.gateway.conftest import KEY, ServedGateway, gateway, heard, ready
from tests.gateway.limits import conservative_input_tokens, key_limits
from tests.gateway.test_allowance import limited
from tests.gateway.test_served import ASK
from tests.gateway.test_supervisor import workers
from tests.noon import noon as noon  # a fixture
from tests.noon import noon_of_processes as noon_of_processes  # a fixture
from tests.store.test_remote_writer import process as hub
from tests.waiting import WITHIN_S, until

from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.gateway.process.slot import SharedTables, WorkerSlot
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.gateway.records.journal import SLOT_BYTES, SLOTS, Journal, Reservation
from splitsecond.gateway.records.limits import today
from splitsecond.gateway.records.orphans import open_journal, settle
from splitsecond.gateway.records.reservation import ReservedTokens
from splitsecond.gateway.records.shared_counters import SharedCounters
from splitsecond.log.store.call_record import WORKER_DIED
from splitsecond.log.store.call_record import CallRecord as Record
from splitsecond.log.store.log import Past
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.construction.expression import parse

BEFORE = datetime(2000, 1, 1, tzinfo=UTC)
"""Some calls here begin at the boot of the machine, which may be long ago."""
DEAR = """
keys: [{{name: web, key: env:WEB_KEY, usd_per_day: 4}}]
providers: {{sim: {{base_url: {url}, price: {{input_usd: 0, output_usd: 1000}}}}}}
routes: {{fast: {{policy: '"sim/quick"'}}}}
log: sqlite:///log.db
"""
ENTRY = Reservation(
    call="r", client="web", route="fast", operation="chat", stream=True, start_ns=5, usd=0.25,
    usages=(ReservedTokens("a/x", 100, 20), ReservedTokens("b/x", 100, 0)),
)  # fmt: skip


def price(attempt: Observation) -> float:
    return (attempt.output_tokens or 0) / 100


@pytest.fixture
def slot() -> WorkerSlot:
    return WorkerSlot(
        workers=2, shared=SharedTables.create(2), journal=open_journal(None, 0, print)
    )


class SlotUser:
    """A worker in a slot that others had before: its counters, journal and limits."""

    def __init__(self, slot: WorkerSlot, number: int = 0) -> None:
        assert slot.shared is not None
        assert slot.journal is not None
        self.counters = SharedCounters(slot.shared.counters, workers=2, number=number)
        self.journal = Journal(open_journal(None, 1, print) if number else slot.journal, print)
        self.allowance = key_limits(
            [limited(usd=99.0)], price, counters=self.counters, journal=self.journal
        )

    def call(self, name: str, **body: Any) -> Any:
        return self.allowance.reserve(
            Call(id=name, client="web", body=body, start_ns=7), "fast", parse('"a/x"')
        )

    def settle(self) -> tuple[list[Record], list[str]]:
        records, said = list[Record](), list[str]()

        def keep(orphans: Sequence[Record]) -> bool:
            records.extend(orphans)
            return True

        settle(self.counters, self.journal, worker=0, keys=[limited()], keep=keep, say=said.append)
        return records, said


@pytest.mark.usefixtures("noon")
def test_calls_of_a_dead_worker_are_charged_logged_and_reported(slot: WorkerSlot) -> None:
    other, dead = SlotUser(slot, 1), SlotUser(slot)
    dead.call("over", max_tokens=900).release()
    dead.call("first", max_tokens=30)
    dead.call("second", max_tokens=10, n=2)
    other.call("elsewhere", max_tokens=70)
    assert other.allowance.reserved_usd("web") == pytest.approx(1.2)
    successor = SlotUser(slot)
    assert other.allowance.reserved_usd("web") == pytest.approx(1.2), "nothing is free in between"
    records, (said,) = successor.settle()
    assert other.allowance.reserved_usd("web") == pytest.approx(0.7), (
        "what lives elsewhere is still reserved"
    )
    assert other.allowance.spent_usd("web") == pytest.approx(0.5)
    assert "worker 0 died" in said
    assert "key 'web'" in said
    assert "0.500000 USD" in said
    assert {each.call: each.attempts[0].output_tokens for each in records} == {
        "first": 30,
        "second": 20,
    }
    first = next(each for each in records if each.call == "first")
    assert (first.client, first.route, first.start_ns, first.fault) == (
        "web",
        "fast",
        7,
        WORKER_DIED,
    )
    assert sum(price(each.attempts[0]) for each in records) == pytest.approx(0.5), (
        "as the log is read after a restart"
    )
    assert SlotUser(slot).settle() == ([], []), "once"


@pytest.mark.usefixtures("noon")
def test_calls_beyond_the_journal_are_charged_and_counted(slot: WorkerSlot) -> None:
    dead = SlotUser(slot)
    for number in range(SLOTS + 3):
        dead.call(f"r{number}", max_tokens=1)
    records, (said,) = SlotUser(slot).settle()
    assert len(records) == SLOTS
    assert dead.journal.missing == 3
    assert f"Calls in the log: {SLOTS:,}." in said
    assert SlotUser(slot).allowance.spent_usd("web") == pytest.approx((SLOTS + 3) / 100)


@pytest.mark.usefixtures("noon")
def test_reservation_of_a_removed_key_is_charged(slot: WorkerSlot) -> None:
    SlotUser(slot).counters.reserve("gone", 0.5)
    _, (said,) = SlotUser(slot).settle()
    assert "a key that is no longer in the configuration" in said
    assert SlotUser(slot).counters.spent_usd("gone", today()) == pytest.approx(0.5)


def test_journal_keeps_entries_until_they_are_erased(slot: WorkerSlot) -> None:
    journal = SlotUser(slot).journal
    first, second = journal.write(ENTRY), journal.write(ENTRY)
    assert first is not None
    assert second is not None
    journal.erase(first)
    again = SlotUser(slot).journal
    assert again.entries() == [ENTRY]
    again.clear()
    assert SlotUser(slot).journal.entries() == []


@pytest.mark.usefixtures("noon")
def test_orphaned_calls_survive_a_successor_that_dies(slot: WorkerSlot) -> None:
    SlotUser(slot).call("r", max_tokens=50)
    dying = SlotUser(slot)

    def dies(records: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settle(
            dying.counters,
            dying.journal,
            worker=0,
            keys=[limited()],
            keep=dies,
            say=lambda words: None,
        )
    records, _ = SlotUser(slot).settle()
    assert [each.call for each in records] == ["r"]


def test_entry_larger_than_a_slot_is_not_written(slot: WorkerSlot) -> None:
    journal = SlotUser(slot).journal
    long = Reservation(
        call="r",
        client="web",
        route="x" * SLOT_BYTES,
        operation="chat",
        stream=True,
        start_ns=5,
        usd=0.25,
        usages=(),
    )
    assert journal.write(long) is None
    assert journal.entries() == []
    assert journal.missing == 1


@pytest.mark.usefixtures("noon")
def test_new_worker_charges_and_logs_calls_of_its_predecessor(
    tmp_path: Path, slot: WorkerSlot, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = read(DEAR.format(url="http://127.0.0.1:9"), {"WEB_KEY": KEY}, folder=tmp_path)
    seat = structs.replace(slot, folder=str(tmp_path))
    call = Call(id="r", client="web", body={"max_tokens": 500})

    async def main() -> None:
        dead = SlotUser(slot)
        allowance = key_limits(
            settings.keys, lambda attempt: 0.5, counters=dead.counters, journal=dead.journal
        )
        allowance.reserve(call, "fast", settings.routes["fast"])
        worker = GatewayWorker(settings, seat)
        worker.close()
        assert dead.counters.spent_usd("web", today()) == pytest.approx(0.5)

    asyncio.run(main())
    assert "0.500000 USD" in capfd.readouterr().err
    ((_, record),) = Past.open(f"sqlite:///{tmp_path}/log.db").calls(BEFORE)
    assert (record.call, record.fault, record.attempts[0].output_tokens) == ("r", WORKER_DIED, 500)
    assert record.attempts[0].input_tokens == conservative_input_tokens(call)


@pytest.mark.usefixtures("noon")
def test_successor_killed_at_its_start_loses_no_orphaned_call(
    tmp_path: Path, slot: WorkerSlot
) -> None:
    """It has settled, and has not connected to the hub."""
    settings = read(DEAR.format(url="http://127.0.0.1:9"), {"WEB_KEY": KEY}, folder=tmp_path)
    seat = structs.replace(slot, folder=str(tmp_path), hub=str(tmp_path / "log"))
    SlotUser(slot).call("r", max_tokens=50)

    async def main() -> None:
        GatewayWorker(settings, seat)  # never closed

    asyncio.run(main())
    url = f"sqlite:///{tmp_path}/log.db"
    with hub(url, tmp_path / "log"):
        until(lambda: not [*tmp_path.glob("log.db.unwritten-*")], "the call is not written")
    ((_, record),) = Past.open(url).calls(BEFORE)
    assert (record.call, record.fault, record.attempts[0].output_tokens) == ("r", WORKER_DIED, 50)
    assert SlotUser(slot).settle() == ([], []), "once"


@pytest.mark.parametrize("stops", [False, True], ids=["a successor", "none"])
@pytest.mark.usefixtures("noon_of_processes")
@pytest.mark.system
def test_calls_in_flight_of_killed_workers_are_charged(
    tmp_path: Path, served: ServedGateway, stops: bool
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(DEAR.format(url=served.simulated.base_url))
    with gateway(tmp_path, "--workers", "2") as process:
        url = ready(process)
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
            create = client.chat.completions.create
            stream = iter(create(model="fast", messages=ASK, stream=True, max_tokens=5000))
            next(stream)
            if stops:  # so that nobody takes the place of those that are killed
                process.send_signal(signal.SIGTERM)
            for pid in workers(process):
                os.kill(pid, signal.SIGKILL)
            said = heard(process, "died with calls")
            assert (
                "The 5.000000 USD that they had reserved are charged. Calls in the log: 1." in said
            )
            if not stops:
                with pytest.raises(openai.RateLimitError, match="has spent its 4 USD for today"):
                    create(model="fast", messages=ASK, max_tokens=1)
                process.terminate()
        assert process.wait(WITHIN_S) == 0
    ((_, record),) = Past.open(f"sqlite:///{tmp_path}/log.db").calls(BEFORE)
    assert (record.client, record.fault, record.attempts[0].output_tokens) == (
        "web",
        WORKER_DIED,
        5000,
    )


@pytest.mark.parametrize("number", ["1", "2"])
@pytest.mark.usefixtures("noon_of_processes")
@pytest.mark.system
def test_calls_in_flight_of_a_killed_gateway_are_charged(
    tmp_path: Path, served: ServedGateway, number: str
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(DEAR.format(url=served.simulated.base_url))
    with (
        gateway(tmp_path, "--workers", number) as process,
        openai.OpenAI(
            base_url=ready(process), api_key=KEY, max_retries=0, timeout=WITHIN_S
        ) as client,
    ):
        next(
            iter(
                client.chat.completions.create(
                    model="fast", messages=ASK, stream=True, max_tokens=5000
                )
            )
        )
        children = workers(process) if number != "1" else []
        # a worker without calls in flight would end in order once its parent is dead
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait(WITHIN_S)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    assert len(list(tmp_path.glob("log.db.in-flight-*"))) == int(number)
    with gateway(tmp_path, "--workers", number) as process:
        assert "killed with 1 call of key 'web' in flight" in heard(process, "was killed")
        url = ready(process)
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
            refusal = eventually_refused(
                lambda: client.chat.completions.create(model="fast", messages=ASK, max_tokens=1)
            )
            assert "has spent its 4 USD for today" in refusal
        process.terminate()
        assert process.wait(WITHIN_S) == 0
    ((_, record), *_) = Past.open(f"sqlite:///{tmp_path}/log.db").calls(BEFORE)
    assert (record.client, record.fault, record.attempts[0].output_tokens) == (
        "web",
        WORKER_DIED,
        5000,
    )
    assert list(tmp_path.glob("log.db.in-flight-*")) == []


def eventually_refused(ask: Callable[[], object]) -> str:
    """Ask until the key has no money left (what was spent before the start is read after it);
    return the message."""

    def refusal() -> str:
        try:
            ask()
        except openai.RateLimitError as error:
            return str(error)
        return ""

    return until(refusal, "the key still has money")
