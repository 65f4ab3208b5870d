"""Claims about optimisation: each case is judged by what the claim says about it, with an interval
of repeated runs."""

import pytest
from benchmarks.claims.__main__ import EXPERIMENTS, updated
from benchmarks.claims.judged import Measured, Part, repeated, section
from tests.cases import each_case

RANGE = Part(words="gain", unit="times", low=6, high=8)


@each_case(
    ("interval", "verdict"),
    [
        ((6.5, 7.5), "as claimed"),
        ((6.0, 8.0), "as claimed"),
        ((3.0, 5.9), "less"),
        ((8.1, 9.0), "more"),
        ((5.9, 6.5), "cannot tell"),
        ((5.0, 9.0), "cannot tell"),
    ],
)
def test_verdict_is_where_the_interval_lies(interval: tuple[float, float], verdict: str) -> None:
    assert RANGE.verdict(interval) == verdict


def test_claim_of_at_least_has_no_upper_end() -> None:
    least = Part(words="volume", unit="tokens", low=500)
    assert [least.verdict((value, value)) for value in (314.0, 500.0, 3275.0)] == [
        "less",
        "as claimed",
        "as claimed",
    ]


def test_baseline_has_no_verdict() -> None:
    runs = [
        [
            Measured(case="1 at a time", value=1.0, unit="times"),
            Measured(case="8", value=value, part=RANGE),
        ]
        for value in (6.9, 7.0, 7.1)
    ]
    alone, eight = repeated(runs)
    assert (alone.verdict, alone.interval) == ("–", (1.0, 1.0))
    assert eight.verdict == "as claimed"
    assert eight.value == pytest.approx(7)
    assert eight.interval == pytest.approx((7 - 0.248, 7 + 0.248), abs=0.001)
    page = section(EXPERIMENTS[0], [alone, eight])
    assert "| 1 at a time | – | 1 times | – | – |  |" in page
    assert "| 8 | gain: 6 to 8 | 7 times | 6.752 to 7.248 | **as claimed** |  |" in page


def test_a_section_replaces_only_its_own() -> None:
    first, second = (each.claim.title for each in EXPERIMENTS[:2])
    page = updated(f"# Old\n\n## {first}\n\nold\n\n## {second}\n\nkept\n", [f"## {first}\n\nnew\n"])
    assert "old" not in page.replace("# Old", "")
    assert page.index("new") < page.index("kept")
