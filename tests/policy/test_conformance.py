"""Every policy keeps the contract of a service, alone and inside another."""

import pytest
from tests.policy.test_expression import in_region

from splitsecond.policy.expression import POLICIES, build, parse
from splitsecond.testing.conformance import Subject, check_service
from splitsecond.testing.fake_service import FakeService, Script

EXPRESSIONS = [
    '"a/x"',
    'race("a/x", "b/x")',
    'hedge("a/x", "b/x")',
    'fallback("a/x", "b/x")',
    'fallback("a/x", "b/x", ttft="2s")',
    'deadline("a/x", total="30s", ttft="2s")',
    'deadline("a/x", total="30s")',
    'retry("a/x", times=1)',
    'limit("a/x", concurrency=8)',
    'limit("a/x", concurrency=2, queue=1)',
    'deadline(fallback(race("a/x", retry("b/x")), hedge(limit("c/x", concurrency=2), "a/x"), ttft="2s"), total="1m")',
    'fastest("a/x", "b/x")',
    'fastest("a/x", race("b/x", "c/x"), by="ttft", at=0.9)',
    'cheapest("a/x", "b/x")',
    'cheapest("a/x", "b/x", within="voice")',
    'weighted("a/x", "b/x", weights="2,1")',
    'sticky("a/x", "b/x")',
    'near("a/x", "b/x", region="eu")',
    'sticky(fastest("a/x", limit("b/x", concurrency=2)), near("c/x", "d/x", region="eu"), ttl="1m")',
    'race(race("a/x", "b/x"), fallback(limit("c/x", concurrency=2), "d/x"))',
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_contract_is_kept(text: str) -> None:
    def make(script: Script) -> Subject:
        fakes: list[FakeService] = []

        def target(name: str) -> FakeService:
            fakes.append(FakeService(script=lambda call: script, target=name))
            return fakes[-1]

        # Of several branches the losers are closed already; what is left open is the one reply.
        return Subject(build(parse(text), target, in_region()), lambda: sum(fake.left_open for fake in fakes))

    check_service(make)


def test_every_policy_is_among_them() -> None:
    assert all(any(f"{policy}(" in text for text in EXPRESSIONS) for policy in POLICIES)
