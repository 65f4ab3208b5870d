"""What a gateway reports as spent, if its wall clock and that of the database show different
days."""

import pytest

from splitsecond.core import clock
from splitsecond.gateway.fleet.database import Answer
from splitsecond.gateway.fleet.member import FleetMember
from splitsecond.gateway.fleet.settings import FleetSettings, LimitedKey
from splitsecond.gateway.records.fleet_ceilings import NANO, FleetCeilings
from splitsecond.gateway.records.session_budgets import SessionCounters
from splitsecond.gateway.records.shared_counters import SharedCounters

DAY_NS = 86_400 * clock.NS_PER_S


@pytest.mark.parametrize("day", [19, 20, 21])
def test_a_wall_clock_past_midnight_frees_no_spending_of_a_fleet(day: int) -> None:
    settings = FleetSettings(
        url="postgresql://nobody@127.0.0.1:9/none",
        gateway="g",
        instance="1",
        counters=SharedCounters.create(1),
        ceilings=FleetCeilings.create(1),
        budgets=SessionCounters.create(1),
        workers=1,
        keys=(LimitedKey("web", usd_per_day=5.0),),
    )
    with clock.using(lambda: 0, lambda: day * DAY_NS):
        process = FleetMember(settings, print)
        process._counters.spend("web", 20, 2.0)
        process._counters.reserve("web", 0.5)
        process._answer = Answer({}, (), frozenset(), wall_s=20.5 * 86_400, at_ns=0)
        (holder,) = process._holders.values()
        assert process._use(holder).used == round(2.5 * NANO)
