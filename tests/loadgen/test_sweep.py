"""Several workloads in one run: their names, their files, and blocks that alternate."""

from pathlib import Path

import pytest

from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.load.sweep import (
    BUILT_IN,
    NamedWorkload,
    check_workloads,
    merged,
    plain,
    read_workloads,
    swept,
)
from splitsecond.benchmark.workload.workload import Workload, WorkloadVariant
from splitsecond.core.errors import CallerFault

SWEEP = Workload(
    run="r",
    variants={
        "8k": WorkloadVariant(input_tokens=8000),
        "x": WorkloadVariant(input_tokens=5, output_tokens=7),
    },
)


def test_a_target_under_a_workload_has_its_lengths() -> None:
    assert plain(swept("groq/m", "8k"), SWEEP) == ("groq/m", "8k")
    assert plain("groq/m#of-its-own", SWEEP) == ("groq/m#of-its-own", "")
    found, length = SWEEP.of_target("groq/m#x", 512)
    assert (length, found.output_tokens) == (5, 7)
    assert SWEEP.of_target("groq/m#8k", 512)[0].output_tokens == 512
    assert SWEEP.of_target("groq/m", 512) == (SWEEP, 512)


def test_blocks_of_workloads_alternate() -> None:
    loads = [PlannedLoad(concurrency=1)], [PlannedLoad(rate=2.0)]
    plans = [
        make_plan({swept("a/m", name): "http://h/v1"}, load, PlanSettings(requests=200, blocks=4))
        for name, load in zip(("short", "long"), loads, strict=True)
    ]
    found = merged(plans)
    (lane,) = found.lanes
    assert [block.target for block in lane] == ["a/m#short", "a/m#long"] * 4
    assert [each.condition for each in found.conditions] == ["a/m#short@c1", "a/m#long@r2"]


def test_workloads_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "workloads.toml"
    file.write_text("[search]\ninput_tokens = 3000\noutput_tokens = 100\nrate = 2.5\n")
    search = NamedWorkload(name="search", input_tokens=3000, output_tokens=100, rate=2.5)
    assert read_workloads(file) == {"search": search}


UNREADABLE = [
    "[a]\noutput_tokens = 3",
    "[a]\ninput_tokens = 'x'",
    "a = 3",
    "[a",
    "[a]\ninput_tokens = 1\nspeed = 1",
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_unreadable_workload_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(text)
    with pytest.raises(CallerFault, match=r"w.toml: "):
        read_workloads(tmp_path / "w.toml")
    with pytest.raises(CallerFault, match="cannot read the workloads"):
        read_workloads(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "workloads",
    [
        [NamedWorkload(name="a", input_tokens=1), NamedWorkload(name="a", input_tokens=2)],
        [NamedWorkload(name="a#b", input_tokens=1)],
        [NamedWorkload(name="a", input_tokens=0)],
        [NamedWorkload(name="a", input_tokens=1, rate=0)],
    ],
)
def test_workloads_that_make_no_sense(workloads: list[NamedWorkload]) -> None:
    with pytest.raises(CallerFault):
        check_workloads(workloads)


def test_the_built_in_workloads_make_sense() -> None:
    check_workloads(list(BUILT_IN.values()))
