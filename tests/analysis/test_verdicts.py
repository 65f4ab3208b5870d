"""Up to which load a target keeps to a use."""

from typing import Any

from tests.analysis.made import row

from splitsecond.analysis.findings import ConditionFindings, Goodput, Spread
from splitsecond.analysis.verdicts import verdicts
from splitsecond.timing.uses import USES


def judged(p95: float | None, concurrency: int | None = 1, use: str = "voice", **changes: Any) -> ConditionFindings:
    spread = Spread(n=100, p95=p95)
    goodput = Goodput(limits={"ttft": USES[use]}, use=use, met=0, sent=100, fraction=0.0, per_s=None)
    made: dict[str, Any] = {"ttft_ms": spread, "ttft_due_ms": spread, "requests": 100, "goodput": goodput}
    return row(concurrency=concurrency, **(made | changes))


def test_how_far_a_target_keeps_to_a_use() -> None:
    assert verdicts([judged(665, 8), judged(278)]) == [
        "a/x keeps to the 300 ms of voice at p95 up to concurrency 1 (p95 278 ms), not at concurrency 8 (p95 665 ms)."
    ]
    assert verdicts([judged(278), judged(300, 8)]) == [
        "a/x keeps to the 300 ms of voice at p95 up to concurrency 8 (p95 300 ms)."
    ]
    assert verdicts([judged(278, None, rate=4.0)]) == [
        "a/x keeps to the 300 ms of voice at p95 at 4 requests/s (p95 278 ms)."
    ]
    assert verdicts([judged(278, None)]) == ["a/x keeps to the 300 ms of voice at p95 on its trace (p95 278 ms)."]


def test_those_that_never_do_share_a_sentence() -> None:
    assert verdicts([judged(400), judged(250, 8), judged(301, target="b/x"), judged(299, target="c/x")]) == [
        "c/x keeps to the 300 ms of voice at p95 at concurrency 1 (p95 299 ms).",
        "Not within the 300 ms of voice at p95: a/x (p95 400 ms at concurrency 1) and b/x (p95 301 ms at "
        "concurrency 1).",
    ]


def test_chat_is_borne_or_good() -> None:
    assert verdicts([judged(900, use="chat"), judged(2900, 8, use="chat")]) == [
        "a/x keeps to the 3,000 ms of chat at p95 up to concurrency 8 (p95 2,900 ms), good "
        "(below 1,000 ms) up to concurrency 1."
    ]
    assert verdicts([judged(1100, use="chat")])[0].endswith("(p95 1,100 ms), good (below 1,000 ms) nowhere.")
    assert verdicts([judged(900, use="chat")])[0].endswith("(p95 900 ms), good (below 1,000 ms) throughout.")


def test_failures_miss() -> None:
    assert verdicts([judged(100), judged(100, 8, errors=6), judged(100, 32)]) == [
        "a/x keeps to the 300 ms of voice at p95 up to concurrency 1 (p95 100 ms), not at concurrency 8 (6 % failed)."
    ]
    assert "a/x (100 % failed at concurrency 1)" in verdicts([judged(None, errors=100)])[0]
    assert "up to concurrency 8" in verdicts([judged(100), judged(100, 8, errors=5)])[0]


def test_few_requests_are_said() -> None:
    few = judged(100, requests=16, ttft_ms=Spread(n=16, p95=100.0, needs={"p95": 72}))
    assert verdicts([few])[0].endswith("(p95 100 ms of only 16 requests).")


def test_without_a_use_there_is_no_verdict() -> None:
    by_number = Goodput(limits={"ttft": 300.0}, met=1, sent=1, fraction=1.0, per_s=None)
    assert verdicts([row(requests=5), judged(100, goodput=by_number), judged(None, requests=0)]) == []
