"""Every policy keeps the contract of a service, alone and inside another."""

from tests.cases import each_case, sampled_cases
from tests.policies.test_expression import in_region

from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.construction.expression import parse
from splitsecond.testing.conformance import Subject, check_service
from splitsecond.testing.fake_service import FakeService, Script

EXPRESSIONS = [
    '"a/x"',
    'race("a/x", "b/x")',
    'race("a/x", "b/x", spend="0.60/h")',
    'hedge("a/x", "b/x")',
    'fallback("a/x", "b/x", resume="off")',
    'fallback("a/x", "b/x", ttft="2s", resume="off")',
    'fallback("a/x", "b/x", stall="10s", resume="off")',
    'deadline("a/x", total="30s", ttft="2s")',
    'deadline("a/x", total="30s")',
    'retry("a/x", times=1)',
    'limit("a/x", concurrency=8)',
    'limit("a/x", concurrency=2, queue=1)',
    'deadline(fallback(race("a/x", retry("b/x")), hedge("c/x", "a/x"), resume="off"), total="1m")',
    'fastest("a/x", "b/x")',
    'fastest("a/x", race("b/x", "c/x"), by="ttft", at=0.9)',
    'cheapest("a/x", "b/x")',
    'cheapest("a/x", "b/x", within="voice")',
    'weighted("a/x", "b/x", weights="2,1")',
    'split("a/x", "b/x", share=0.5)',
    'sticky("a/x", "b/x")',
    'near("a/x", "b/x", region="eu")',
    'sticky(fastest("a/x", limit("b/x", concurrency=2)), near("c/x", "d/x", region="eu"), '
    'ttl="1m")',
    'race(race("a/x", "b/x"), fallback(limit("c/x", concurrency=2), "d/x", resume="off"))',
    'pipeline("a/x", "b/x")',
    'pipeline("a/x", "b/x", early="300ms")',
    'pipeline("a/x", "b/x", early=True)',
    'by_complexity(simple="a/x", complex="b/x")',
    'by_task(code="a/x", default="b/x")',
    'cap("a/x", max_tokens=5)',
    'cache("a/x")',
    'cache("a/x", sampled=True)',
    'cache(race("a/x", limit("b/x", concurrency=9)), ttl="1m", size="1MB", sampled=True)',
]
HOLDING = [
    'fallback("a/x", "b/x")',
    'fallback("a/x", "b/x", ttft="2s")',
    'deadline(fallback(race("a/x", retry("b/x")), hedge(limit("c/x", concurrency=2), "a/x"), '
    'ttft="2s"), total="1m")',
    'race(race("a/x", "b/x"), fallback(limit("c/x", concurrency=2), "d/x"))',
    'cascade("a/x", "b/x")',
    'cascade("a/x", "b/x", accept="json", hold="300ms")',
    'cascade("a/x", fallback("b/x", "c/x"), judge="d/x")',
    'cache(cascade(limit("a/x", concurrency=9), pipeline("b/x", "c/x"), accept="re:no such"), '
    "sampled=True)",
    'cascade(cache("a/x", sampled=True), "b/x")',
    'resume("a/x", "b/x")',
    'resume(fastest("a/x", "b/x"))',
    'resume("a/x", race("b/x", "c/x"), stall="10s")',
    'fallback("a/x", "b/x", "c/x", resume="replay", stall="5s")',
    'resume("a/x", "b/x", floor="8tok/s", over="10s")',
    'fallback("a/x", "b/x", resume="replay", floor="8tok/s")',
    'cache(resume(cascade("a/x", "b/x"), "c/x"), sampled=True)',
    'fallback(resume("a/x", resume("b/x", "c/x")), "d/x", resume="replay")',
]


@sampled_cases(2)
@each_case("text", [*EXPRESSIONS, *HOLDING])
def test_every_policy_passes_the_conformance_kit(text: str) -> None:
    def make(script: Script) -> Subject:
        fakes: list[FakeService] = []

        def target(name: str) -> FakeService:
            fakes.append(FakeService(script=lambda call: script, target=name))
            return fakes[-1]

        # Losing branches are closed already; only the one reply is open.
        service = build(parse(text), target, in_region(), make_encoder=continuation_encoder)
        return Subject(
            service, lambda: sum(fake.left_open for fake in fakes), holds=text in HOLDING
        )

    check_service(make)


def test_conformance_cases_include_every_policy() -> None:
    assert all(
        any(f"{policy}(" in text for text in [*EXPRESSIONS, *HOLDING]) for policy in POLICIES
    )
