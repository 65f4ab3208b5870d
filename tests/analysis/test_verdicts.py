"""The highest load at which a target meets the limits of a use."""

from typing import Any

import pytest
from tests.analysis.made import asked, failure, in_both_forms, request, row
from tests.golden import Golden

from splitsecond.benchmark.findings.verdicts import verdicts
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.row_fields import Goodput
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.core.timing.uses import USES
from splitsecond.core.wording import full
from splitsecond.log.statistics.summary import Summary


def judged(
    share: float,
    ci95: tuple[float, float],
    concurrency: int | None = 1,
    use: str = "voice",
    **changes: Any,
) -> ConditionFindings:
    goodput = Goodput(
        limits=USES[use].limits,
        use=use,
        met=round(share * 500),
        sent=500,
        fraction=share,
        per_s=None,
        ci95=ci95,
    )
    made: dict[str, Any] = {"requests": 500, "goodput": goodput}
    return row(concurrency=concurrency, **(made | changes))


def meets(concurrency: int | None = 1, **changes: Any) -> ConditionFindings:
    return judged(0.98, (0.962, 0.991), concurrency, **changes)


def misses(concurrency: int | None = 1, **changes: Any) -> ConditionFindings:
    return judged(0.9, (0.87, 0.925), concurrency, **changes)


def undecided(concurrency: int | None = 1, **changes: Any) -> ConditionFindings:
    return judged(0.96, (0.93, 0.98), concurrency, **changes)


def good(up_to: float | None, concurrency: int = 1) -> ConditionFindings:
    spread = Summary(n=500, p95=900.0, ci95={"p95": (800.0, up_to)})
    return meets(concurrency, use="chat", ttft_ms=spread)


def test_verdicts_in_sentences(golden: Golden) -> None:
    cases = {
        "up to a load": [misses(8), meets()],
        "undecided beyond": [meets(), undecided(8), meets(32)],
        "at every load": [meets(), meets(8)],
        "open loop": [meets(None, rate=4.0)],
        "trace": [meets(None)],
        "some never": [
            misses(),
            meets(8),
            misses(target="b/x"),
            meets(target="c/x"),
            undecided(target="d/x"),
        ],
        "good up to a load": [good(990), good(1100, 8)],
        "good nowhere": [good(None)],
        "good everywhere": [good(990)],
    }
    golden.check(
        "".join(f"{case}:\n{in_both_forms(verdicts(rows))}" for case, rows in cases.items())
    )


@pytest.mark.parametrize(
    ("within", "failed", "verdict"), [(500, 0, "meets"), (440, 60, "miss"), (30, 1, "decide on")]
)
def test_a_limit_is_met_by_the_share_of_all_requests_sent(
    within: int, failed: int, verdict: str
) -> None:
    sent = [request(1000 + 300 * i, name=str(i)) for i in range(within)]
    sent += [failure(1e6 + 300 * i) for i in range(failed)]
    rows = condition_rows([asked()], sent, [], slo=parse_slo("voice"))
    (sentence,) = full(verdicts(rows))
    assert verdict in sentence


def test_without_a_use_there_is_no_verdict() -> None:
    by_number = Goodput(limits={"ttft": 300.0}, met=1, sent=1, fraction=1.0, per_s=None)
    assert full(verdicts([row(requests=5), meets(goodput=by_number), meets(requests=0)])) == []
