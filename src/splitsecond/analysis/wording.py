"""How findings are put into words: numbers, conditions, counts. Every sentence of this room uses these."""

from collections import Counter
from collections.abc import Iterable

from splitsecond.analysis.findings import ConditionFindings

Place = tuple[str, int | None, float | None, int]


def number(value: float) -> str:
    """Three digits are what a measurement is good for: 0.0123, 4.56, 78.9, 1,234."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def ratio(value: float) -> str:
    """How many times: 1.04, 12.3. Near 1 the hundredths matter, so they stay: 1.00."""
    return f"{value:.2f}" if value < 10 else number(value)


def percent(share: float) -> str:
    """A share of one as a percentage: 0.25 is "25 %"."""
    return f"{number(share * 100)} %"


def change(share: float) -> str:
    """A relative change with its sign: 0.25 is "+25 %"."""
    return f"{'+' if share >= 0 else '−'}{percent(abs(share))}"


def chance(p_value: float) -> str:
    """A p-value: "p = 0.03", or "p < 0.001"."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def evidence(moved: str, interval: tuple[str, str] | None, p_value: float | None) -> str:
    """What a difference rests on, in brackets: " (+20 %, 95 % interval +15 % to +25 %, p < 0.001)"; "" for nothing."""
    parts = [
        moved,
        f"95 % interval {interval[0]} to {interval[1]}" if interval else "",
        "" if p_value is None else chance(p_value),
    ]
    known = ", ".join(part for part in parts if part)
    return f" ({known})" if known else ""


def level(concurrency: int | None, rate: float | None) -> str:
    """The load of a row: "at concurrency 8", "at 5 requests/s"."""
    if concurrency is not None:
        return f"at concurrency {concurrency}"
    return "on its trace" if rate is None else f"at {rate:g} requests/s"


def row(findings: ConditionFindings) -> str:
    """A row by name: "groq/llama at concurrency 8"."""
    return f"{findings.target} {level(findings.concurrency, findings.rate)}"


def counted(counts: dict[str, int]) -> str:
    """Counts by kind, most first: "3 http_429, 1 refused"."""
    return ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def by_place(rows: Iterable[ConditionFindings]) -> dict[Place, ConditionFindings]:
    """Rows by what makes them the same row in another run: target and load, and which of several such it is."""
    seen: Counter[tuple[str, int | None, float | None]] = Counter()
    placed: dict[Place, ConditionFindings] = {}
    for findings in rows:
        place = findings.target, findings.concurrency, findings.rate
        placed[(*place, seen[place])] = findings
        seen[place] += 1
    return placed
