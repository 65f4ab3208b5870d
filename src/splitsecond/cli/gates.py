from collections.abc import Sequence
from functools import partial

from rich.console import Console

from splitsecond.benchmark.findings.gate import Equivalence, Gate, Unchecked, parse_gate
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.rows.round_spread import RoundSpread
from splitsecond.core.errors import CallerFault


def absolute_gates(texts: Sequence[str]) -> list[Gate]:
    gates = [parse_gate(text) for text in texts]
    for gate in gates:
        if gate.relative:
            raise CallerFault(
                f"the gate {gate.text!r} is a change, and one run has nothing to compare with",
                kind="bad_gate",
                hint="Give the limit in the figure's own unit, such as 'tps.p50 < 100', or use "
                "`splitsecond compare`.",
            )
    return gates


UNCHECKED = 3
"""Exit code if no gate is missed, and one cannot be checked."""


def passed(gates: Sequence[Gate], run: Run, console: Console) -> int:
    breaches = [breach for gate in gates for breach in gate.check(run.conditions)]
    close = run.spread if run.spread and not run.spread.claims else None
    return concluded(breaches, gates, (), console, close)


def concluded(
    breaches: Sequence[str],
    gates: Sequence[Gate],
    equivalences: Sequence[Equivalence],
    console: Console,
    close_rounds: RoundSpread | None = None,
) -> int:
    """Show the sentences about gates and return the exit code: 0, 1 if a gate is missed, or
    `UNCHECKED`."""
    unchecked = [breach for breach in breaches if isinstance(breach, Unchecked)]
    missed = [breach for breach in breaches if not isinstance(breach, Unchecked)]
    show = partial(console.print, markup=False, highlight=False)
    for breach in missed:
        show(f"FAILED: {breach}", style="bold red")
    for breach in unchecked:
        show(f"NOT CHECKED: {breach}", style="bold yellow")
    if gates or equivalences:
        if not breaches:
            show(f"Passed: {_conditions(gates, equivalences)}.", style="green")
        if close_rounds is not None:
            show(f"The gates judge {close_rounds.period()} only.", style="dim")
    return 1 if missed else UNCHECKED if unchecked else 0


def _conditions(gates: Sequence[Gate], equivalences: Sequence[Equivalence]) -> str:
    absent = ", ".join(gate.text for gate in gates)
    equivalent = ", ".join(each.text for each in equivalences)
    return "; ".join(filter(None, [absent and f"none of {absent}", equivalent]))
