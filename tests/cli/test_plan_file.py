"""A benchmark's options in a file, and what a verdict on a use needs."""

from pathlib import Path

import pytest
from tests.cases import each_case

from splitsecond.cli.commands.bench import FIRST_OPTIONS, BenchOptions, bench, planned_for
from splitsecond.cli.commands.capacity import CapacityOptions
from splitsecond.cli.commands.watch import WatchOptions
from splitsecond.cli.plan_file import is_plan, plan_text, planned, with_plan
from splitsecond.core.errors import CallerFault


def read(folder: Path, text: str, options: BenchOptions | None = None) -> BenchOptions:
    path = folder / "plan.toml"
    path.write_text(text)
    return with_plan(options or BenchOptions(targets=[str(path)]), path)


def test_written_plan_gives_the_same_options(tmp_path: Path) -> None:
    asked = BenchOptions(
        targets=["a/x", "https://h:1/v1"],
        concurrency="1,8",
        requests=30,
        quick=True,
        use="voice",
        prompts=Path("p.jsonl"),
        fail_if=["tps.p50 < 100", "errors > 0"],
        timeout=9.5,
        out=Path("runs/x"),
        header=["A: secret"],
    )
    text = plan_text(asked, "bench")
    assert "secret" not in text
    assert 'for = "voice"' in text
    found = read(tmp_path, text)
    assert plan_text(found, "bench") == text
    assert (found.prompts, found.timeout, found.out, found.header) == (
        Path("p.jsonl"),
        9.5,
        None,
        None,
    )


def test_watch_and_capacity_read_the_plans_that_they_write(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    watched = WatchOptions(
        targets=["a/x", "b/x"], every="3h", times=4, fail_if=["errors > 0"], out=Path("mine")
    )
    path.write_text(plan_text(watched, "watch"))
    assert "accept" not in plan_text(WatchOptions(accept=True), "watch")
    again = planned(WatchOptions(targets=[str(path)], times=1))
    assert (again.targets, again.every, again.times) == (["a/x", "b/x"], "3h", 1)
    assert again.out == Path("watch")
    searched = CapacityOptions(target="a/x", by_rate=True, first=0.5, last=16, slo="chat")
    path.write_text(text := plan_text(searched, "capacity"))
    assert text.startswith("# Repeat with: splitsecond capacity plan.toml\n")
    assert {"from = 0.5", "to = 16"} < set(text.splitlines())
    assert planned(CapacityOptions(target=str(path))) == searched


def test_numbers_and_lists_are_what_options_take_as_text(tmp_path: Path) -> None:
    found = read(tmp_path, 'targets = "a/x"\nconcurrency = [1, 8]\ninput-tokens = 512\n')
    assert (found.targets, found.concurrency, found.input_tokens) == (["a/x"], "1,8", "512")


def test_command_line_comes_before_the_file(tmp_path: Path) -> None:
    given = BenchOptions(targets=["plan.toml"], requests=10)
    found = read(tmp_path, 'targets = ["a/x"]\nrequests = 99\nquick = true\n', given)
    assert (found.targets, found.requests, found.quick) == (["a/x"], 10, True)


@each_case(
    ("text", "says"),
    [
        ("concurency = 1", "concurency is no option of a plan. Did you mean concurrency?"),
        ('header = ["A: b"]', "header is no option of a plan"),
        ('requests = "many"', "plan.toml: requests: Expected `int | null`"),
        ("requests = ", "plan.toml: "),
    ],
)
def test_wrong_plan_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(CallerFault) as refused:
        read(tmp_path, text)
    assert says in str(refused.value)


def test_profile_of_the_simulator_is_no_plan() -> None:
    assert [is_plan(each) for each in ("plan.toml", "runs/x/"
    "plan.toml", "sim/mine.toml", "http://h/v1.toml")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_use_plans_its_limits_and_enough_requests() -> None:
    voice = planned_for(BenchOptions(targets=["a/x"]), "voice")
    assert (voice.slo, voice.requests, voice.concurrency) == ("voice", 150, "")
    completion = planned_for(BenchOptions(targets=["a/x"]), "completion")
    assert (completion.requests, completion.concurrency) == (150, "1")
    own = planned_for(BenchOptions(requests=20, slo="ttft=1s", rate="5"), "completion")
    assert (own.requests, own.slo, own.concurrency) == (20, "ttft=1s", "")
    assert planned_for(BenchOptions(duration="60s"), "voice").requests is None
    with pytest.raises(CallerFault, match="--for"):
        planned_for(BenchOptions(), "speech")


def test_first_options_are_ten_that_exist() -> None:
    assert len(FIRST_OPTIONS) == 10
    assert set(FIRST_OPTIONS) <= set(BenchOptions.declared())
    assert vars(bench)["first_options"] == FIRST_OPTIONS
