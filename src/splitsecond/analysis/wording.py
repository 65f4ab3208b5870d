"""How findings are put into words: numbers, conditions, counts. Every sentence of this room uses these."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from splitsecond.analysis.findings import ConditionFindings

SIMULATED, ENGINE = "sim/", "engine/"
"""How the names of simulated targets begin, and of the real engine on this machine with a toy model."""

Place = tuple[str, int | None, float | None, bool, int]


class Loaded(Protocol):
    """Anything that was measured under a load: a row of findings, or the change of one."""

    @property
    def concurrency(self) -> int | None: ...

    @property
    def rate(self) -> float | None: ...

    @property
    def cache_reuse(self) -> bool: ...


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
    """A relative change with its sign, to a tenth of a percent: 0.25 is "+25 %", 0.0123 "+1.2 %"."""
    tenths = round(abs(share) * 100, 1)
    sign = "" if tenths == 0 else "+" if share > 0 else "−"
    return f"{sign}{f'{tenths:,.1f}'.removesuffix('.0')} %"


def counted_as(count: int, one: str, several: str) -> str:
    """A count with its word: "1 request", "2 requests"."""
    return f"{count:,} {one if count == 1 else several}"


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


def level(of: Loaded) -> str:
    """The load of a row: "at concurrency 8", "at 5 requests/s with cache reuse", "on its trace"."""
    return ("on " if of.concurrency is None and of.rate is None else "at ") + load(of)


def load(of: Loaded) -> str:
    """The same as a noun: "concurrency 8", "5 requests/s with cache reuse", "its trace"."""
    way = " with cache reuse" if of.cache_reuse else ""
    if of.concurrency is not None:
        return f"concurrency {of.concurrency}{way}"
    return ("its trace" if of.rate is None else f"{of.rate:g} requests/s") + way


def limits(of: Mapping[str, float]) -> str:
    """Limits that requests are held against: "TTFT ≤ 300 ms, TPS ≥ 50"."""
    return ", ".join(
        f"{name.upper()} {'≥' if name == 'tps' else '≤'} {number(limit)}{'' if name == 'tps' else ' ms'}"
        for name, limit in of.items()
    )


def row(findings: ConditionFindings) -> str:
    """A row by name: "groq/llama at concurrency 8"."""
    return f"{findings.target} {level(findings)}"


def counted(counts: dict[str, int]) -> str:
    """Counts by kind, most first: "3 http_429, 1 refused"."""
    return ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def listed(words: Sequence[str]) -> str:
    """A list in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])


def by_place(rows: Iterable[ConditionFindings]) -> dict[Place, ConditionFindings]:
    """Rows by what makes them the same row in another run: target, load and way, and which of several such it is."""
    seen: Counter[tuple[str, int | None, float | None, bool]] = Counter()
    placed: dict[Place, ConditionFindings] = {}
    for findings in rows:
        place = findings.target, findings.concurrency, findings.rate, findings.cache_reuse
        placed[(*place, seen[place])] = findings
        seen[place] += 1
    return placed
