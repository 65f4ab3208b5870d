"""Ceilings of more keys than the table has places for."""

import pytest

from splitsecond.core.errors import CallerFault
from splitsecond.gateway.records.fleet_ceilings import FleetCeilings
from splitsecond.gateway.records.shared_counters import MAX_NAMES
from splitsecond.routing.configuration.client_keys import MAX_LIMITED
from splitsecond.routing.configuration.reading import read


def test_keys_beyond_the_table_size_have_no_ceiling() -> None:
    memory = FleetCeilings.create(1)
    process = FleetCeilings(memory, workers=1)
    worker = FleetCeilings(memory, workers=1, number=0)
    process.reach(5, 100, 7)
    names = [f"key-{number}" for number in range(MAX_NAMES + 3)]
    placed = [
        process.set("requests", name, ceiling=number + 1, share=number + 1, others=0)
        for number, name in enumerate(names)
    ]
    assert placed == [True] * (MAX_NAMES - 1) + [False] * 4
    for number, name in enumerate(names):
        assert worker.ceiling("requests", name, 0) == (number + 1 if placed[number] else 0)
    assert worker.offset_ns == 7
    for name in names:
        worker.refuse("requests", name)
    assert process.refused("requests", names[0]) == 1
    assert process.refused("requests", names[-1]) == 0


def test_absurd_ceilings_saturate_at_the_largest_number() -> None:
    process = FleetCeilings(FleetCeilings.create(1), workers=1)
    process.set("usd", "web", ceiling=10**40, share=10**40, others=-(10**40))
    process.set("requests", "web", ceiling=-1, share=10**40, others=0)
    assert process.held("usd", "web") == ((1 << 63) - 1, 0)
    assert process.others("usd", "web") == 0
    assert process.held("requests", "web") == (0, (1 << 63) - 1)


@pytest.mark.system
def test_more_keys_with_limits_than_a_fleet_can_hold_are_refused() -> None:
    def settings(number: int) -> str:
        keys = "\n".join(
            f"- {{name: k{each}, key: env:K{each}, requests_per_minute: 5}}"
            for each in range(number)
        )
        return f"shared: postgresql://splitsecond@db/fleet\nkeys:\n{keys}\n"

    environment = {f"K{each}": f"a-key-that-is-long-{each}" for each in range(MAX_LIMITED + 1)}
    assert len(read(settings(2), environment).keys) == 2
    with pytest.raises(CallerFault, match=f"{MAX_LIMITED + 1:,} keys have limits"):
        read(settings(MAX_LIMITED + 1), environment)
