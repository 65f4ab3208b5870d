"""CSV and Markdown of the tables."""

import csv
import io

from tests.cases import each_case
from tests.golden import Golden
from tests.report.invented import invented_run

from splitsecond.benchmark.findings.compare import RunData, compare
from splitsecond.benchmark.report.exports import (
    change_records,
    csv_text,
    markdown_text,
    run_records,
)
from splitsecond.benchmark.report.terminal import comparison_table, run_table


def test_csv_has_every_figure_as_a_plain_number() -> None:
    run, _ = invented_run(concurrencies=(1, 32), in_rounds=True)
    found = list(csv.DictReader(io.StringIO(csv_text(run_records(run)))))
    assert [(row["target"], row["load"]) for row in found] == [
        (condition.target, f"c={condition.concurrency}") for condition in run.conditions
    ]
    spread = run.conditions[0].ttft_ms
    assert spread.p50 is not None
    assert float(found[0]["ttft_ms.p50"]) == spread.p50
    assert (float(found[0]["ttft_ms.p50.low"]), float(found[0]["ttft_ms.p50.high"])) == spread.ci95[
        "p50"
    ]
    assert found[0]["ttft_ms.p99"] == str(spread.p99)
    (invalid,) = (row for row in found if row["invalid"])
    assert "client overloaded" in invalid["invalid"]


def test_csv_of_a_comparison_has_a_record_for_each_change() -> None:
    run, observations = invented_run(concurrencies=(1,), requests=20)
    comparison = compare([RunData(run, observations)], [RunData(run, observations)])
    found = list(csv.DictReader(io.StringIO(csv_text(change_records(comparison)))))
    assert len(found) == sum(len(each.figures) + len(each.totals) for each in comparison.conditions)
    assert {row["figure"] for row in found} >= {"ttft_ms", "tps", "errors"}
    assert all(row["change"] in ("0.0", "") for row in found)


def test_nested_values_of_csv_are_plain_numbers() -> None:
    record = {
        "tps": {"p50": 1.5, "ci95": {"p50": (1, None)}},
        "ci95": (2.0, 3.0),
        "models": ("a", "b"),
        "needs": (),
    }
    assert csv_text([record]).splitlines() == [
        "tps.p50,tps.p50.low,tps.p50.high,ci95.low,ci95.high,models,needs",
        "1.5,1,,2.0,3.0,a; b,",
    ]


@each_case("begin", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])
def test_a_text_that_begins_a_formula_gets_an_apostrophe(begin: str) -> None:
    formula = f"{begin}1+1"
    record = {
        "target": formula,
        "tps": -1.5,
        "models": (formula, "b"),
        "change": (-1, None),
        formula: {formula: 1},
    }
    formula = formula.replace("\r", "\n")
    (found,) = csv.DictReader(io.StringIO(csv_text([record]), newline=""))
    assert found == {
        "target": f"'{formula}", "tps": "-1.5", "models": f"'{formula}; "
        f"b", "change.low": "-1", "change.high": "",
        f"'{formula}.{formula}": "1",
    }  # fmt: skip


def test_markdown_has_the_tables_and_sentences_of_the_terminal(golden: Golden) -> None:
    run, observations = invented_run(
        ("groq/llama-3.1-70b-versatile", "replicate/meta-llama-3-70b"), concurrencies=(1,)
    )
    run.conditions[1].target = "replicate/a|b"
    golden.check(markdown_text(lambda console: run_table(run, console)))
    comparison = compare([RunData(run, observations)], [RunData(run, observations)])
    text = markdown_text(lambda console: comparison_table(comparison, console))
    assert "| replicate/a\\|b |" in text
