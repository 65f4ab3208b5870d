"""The quick scenarios of `benchmarks.failover`, against the real gateway, and its verdicts."""

from benchmarks.failover import SCENARIOS, WORDS, Attempt, Outcome, Seen, Verdict, main, verdict
from tests.cases import each_case

QUICK = "S01,S02,S03,S04,S05,S08,S10,S11,S12,S13,S14,S16"


def test_quick_scenarios_have_the_documented_results(system: None) -> None:
    assert main(["--runs", "1", "--only", QUICK]) == 0


WHOLE, PART = " ".join(WORDS), " ".join(WORDS[:40])
FIRST = (Attempt("x", 0.0), Attempt("x", 2.0))


@each_case(
    "scenario, outcome, first, expected",
    [
        ("S01", Outcome(WHOLE, "", 3.0), FIRST, "pass"),
        ("S01", Outcome(WHOLE, "", 1.0), FIRST[:1], "partial"),
        (
            "S01",
            Outcome(WHOLE, "", 1.0),
            [Attempt("x", 0.1 * number) for number in range(3)],
            "fail",
        ),
        ("S08", Outcome(None, "cut", 1.0), FIRST[:1], "safe"),
        ("S08", Outcome(PART, "", 1.0), FIRST[:1], "fail"),
        ("S08", Outcome(None, "", 40.0, hung=True), FIRST[:1], "fail"),
        ("S13", Outcome(None, "400 content_policy_violation", 1.0), FIRST[:1], "pass"),
        ("S13", Outcome(WHOLE, "", 1.0), FIRST[:1], "partial"),
        ("S15", Outcome(WHOLE, "", 1.0), (*FIRST, Attempt("x", 64.0, served=True)), "pass"),
        ("S15", Outcome(WHOLE, "", 1.0), FIRST, "fail"),
    ],
)
def test_outcome_and_attempts_determine_the_verdict(
    scenario: str, outcome: Outcome, first: list[Attempt], expected: Verdict
) -> None:
    (judged,) = [each for each in SCENARIOS if each.id == scenario]
    assert verdict(judged, Seen([outcome], list(first), [], alive=True)) == expected
