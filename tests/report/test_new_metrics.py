"""One entry in the table of figures adds a metric to every output."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.report import with_new_metrics

from splitsecond.benchmark.rows.records import Run

pytestmark = pytest.mark.system

PROGRAM = Path(with_new_metrics.__file__)


@pytest.fixture(scope="module")
def outputs(system: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every output of a run in which two metrics were added."""
    folder = tmp_path_factory.mktemp("outputs")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PROGRAM.parents[2]), *sys.path])}
    ended = subprocess.run(
        [sys.executable, PROGRAM, folder], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return folder


def test_run_json_has_them(outputs: Path) -> None:
    rows: list[dict[str, Any]] = json.loads((outputs / "run.json").read_bytes())["conditions"]
    assert all(row["head_ms"]["n"] > 0 and row["head_ms"]["ci95"] for row in rows)
    assert all(row["error_share"] == row["errors"] / row["requests"] for row in rows)


def test_a_version_without_them_reads_the_same_file(outputs: Path) -> None:
    import msgspec

    run = msgspec.json.decode((outputs / "run.json").read_bytes(), type=Run)
    assert run.schema == "splitsecond.run/1"
    assert run.conditions[0].ttft_ms.p50 is not None


@pytest.mark.parametrize("name", ["run.txt", "compare.txt"])
def test_the_terminal_has_columns_for_them(outputs: Path, name: str) -> None:
    text = (outputs / name).read_text()
    assert text.count("time to headers p50") > 0
    # it names changes that were found
    assert (text.count("time to headers p95") > 0) or name == "compare.txt"
    assert "error" in text
    assert "share" in text


def test_the_page_lists_them(outputs: Path) -> None:
    page = (outputs / "report.html").read_text()
    for heading in (
        "time to headers p50, ms",
        "time to headers p95, ms",
        "time to headers p99, ms",
        "error share",
    ):
        assert f">{heading}</th>" in page, heading
    assert "From the first byte of the request to the response headers." in page
    assert "Failed requests divided by requests." in page


def test_compare_has_them(outputs: Path) -> None:
    comparison = json.loads((outputs / "compare.json").read_bytes())
    row = comparison["conditions"][0]
    assert {f["percentile"] for f in row["figures"] if f["figure"] == "head_ms"} == {
        "p50",
        "p95",
        "p99",
    }
    assert [t["figure"] for t in row["totals"]].count("error_share") == 1
    assert any("time to headers p50 went from" in sentence for sentence in comparison["statements"])


def test_gates_know_them(outputs: Path) -> None:
    breaches = (outputs / "gates.txt").read_text()
    assert "head_ms.p50 is " in breaches
    assert "error_share is " in breaches


def test_the_reference_page_and_the_data_frame_have_them(outputs: Path) -> None:
    page = (outputs / "figures.md").read_text()
    assert "| `head_ms` | time to headers | ms | lower |" in page
    assert "| `error_share` | error share | share | lower |" in page
    columns = json.loads((outputs / "columns.json").read_bytes())
    assert len(columns["head_ms"]) == len(columns["request_id"]) == len(columns["ttft_ms"]) > 0
    assert "itl_ms" not in columns  # it has many values per request
