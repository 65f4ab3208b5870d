"""The Python API: its results, its errors, its synchronous form, and what importing it costs."""

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest
from tests.waiting import WITHIN_S

import splitsecond as ss
from splitsecond import sync
from splitsecond.api import benchmarks
from splitsecond.api.keywords import BenchKeywords, CapacityKeywords, WatchKeywords
from splitsecond.api.results import Estimate
from splitsecond.benchmark.runs.measuring import NoProgress
from splitsecond.benchmark.runs.settings import (
    BenchSettings,
    CapacitySettings,
    RunSettings,
    WatchSettings,
)
from splitsecond.core.observation import Observation
from splitsecond.core.option import options_of
from splitsecond.routing.construction.user_policies import REGISTERED
from splitsecond.simulator.process import RunningProvider


@pytest.fixture(scope="session")
def quick(simulated: RunningProvider) -> ss.Server:
    return ss.Server(base_url=simulated.base_url, model=simulated.model, name="quick")


@pytest.fixture(scope="module")
def run(quick: ss.Server, tmp_path_factory: pytest.TempPathFactory) -> ss.BenchRun:
    folder = tmp_path_factory.mktemp("run") / "run"
    return asyncio.run(
        ss.bench(
            quick,
            concurrency=(1, 4),
            requests=16,
            input_tokens=64,
            output_tokens=20,
            slo="ttft=1s",
            out=folder,
        )
    )


def test_rows_are_found_by_target_and_load(run: ss.BenchRun) -> None:
    assert list(run) == ["quick@c1", "quick@c4"]
    assert run["quick", 4] is run["quick", "c4"] is run["quick@c4"]
    assert (run["quick", 4].requests, run["quick", 4].errors, run["quick", 4].concurrency) == (
        16,
        0,
        4,
    )
    with pytest.raises(KeyError, match="the rows are quick@c1, quick@c4"):
        run["quick", 8]
    with pytest.raises(KeyError, match="2 rows"):
        run["quick"]


def test_a_notebook_shows_the_tables_and_the_report(run: ss.BenchRun) -> None:
    shown = run._repr_html_()
    assert "quick" in shown.partition("<iframe")[0]
    assert 'srcdoc="&lt;!doctype html&gt;' in shown


def test_a_figure_is_a_float_with_its_interval(run: ss.BenchRun) -> None:
    mean = run["quick", 1].ttft_ms.mean
    assert isinstance(mean, Estimate)
    assert mean == run["quick", 1].findings.ttft_ms.mean
    assert mean.ci95 == run["quick", 1].findings.ttft_ms.ci95["mean"]
    low, high = mean.ci95  # unlike that of p50, it exists however few the requests are
    assert low is not None
    assert high is not None
    assert low <= mean <= high
    assert repr(mean) == f"{float(mean):.4g} [{low:.4g}, {high:.4g}]"
    assert "ttft_ms" in dir(run["quick", 1])
    with pytest.raises(AttributeError, match="no figure 'ttfb_ms'; it has ttft_ms"):
        _ = run["quick", 1].ttfb_ms


def test_a_run_is_recorded_and_can_be_loaded_and_compared(run: ss.BenchRun) -> None:
    recorded = json.loads((run.path / "run.json").read_text())
    assert (recorded["finished"], recorded["asked"]["command"], recorded["asked"]["slo"]) == (
        True,
        [],
        "ttft=1s",
    )
    assert recorded["asked"]["settings"]["requests"] == 16
    loaded = ss.load(run.path)
    assert loaded["quick", 4].findings == run["quick", 4].findings
    assert len(ss.compare(run, run.path).conditions) == 2
    assert "Concurrency 4" in str(loaded)
    assert loaded.statements == run.statements


def test_columns_of_the_data_frame(run: ss.BenchRun) -> None:
    columns = run._columns(("measured",))
    assert {len(values) for values in columns.values()} == {32}
    assert {load: columns["concurrency"].count(load) for load in (1, 4)} == {1: 16, 4: 16}
    assert columns["ttft_ms"] == [o.ttft_ms for o in run.observations if o.role == "measured"]
    assert set(columns["error"]) == {""}


def test_a_data_frame(run: ss.BenchRun) -> None:
    frame = run.to_frame(backend="pandas")
    assert (len(frame), frame["ttft_ms"].min() > 0) == (32, True)
    warmups = sum(row.findings.warmups for row in run.values())
    assert len(run.to_frame(roles=("measured", "warmup"))) == 32 + warmups


def test_without_a_library_of_data_frames(
    run: ss.BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitsecond.api.results.find_spec", lambda name: None)
    with pytest.raises(
        ss.CallerFault, match=r"not installed.*Install one of pandas, polars, pyarrow"
    ):
        run.to_frame()


@pytest.mark.system
def test_errors_are_exceptions_and_print_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    gone = ss.Server(base_url="http://127.0.0.1:1/v1", model="m", name="gone")

    async def failures() -> list[str]:
        found = []
        for wrong in (
            ss.bench("nobody/model"),
            ss.bench(gone, requests=0),
            ss.bench(gone, max_cost=-1.0),
            ss.bench(gone, max_cost=1.0),
            ss.bench('race("a/x"'),
            ss.bench(gone),
            ss.capacity(gone, share=0.2),
        ):
            with pytest.raises(ss.Fault) as raised:
                await wrong
            found.append(raised.value.kind)
        return found

    kinds = asyncio.run(failures())
    assert kinds == [
        "unknown_provider",
        "bad_option",
        "bad_option",
        "no_price",
        "bad_policy",
        "refused",
        "bad_option",
    ]
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.glob("runs/*")) == []


def test_several_servers_without_a_model_in_one_run(quick: ss.Server, tmp_path: Path) -> None:
    servers = [ss.Server(base_url=quick.base_url, name=name) for name in "ab"]
    run = sync.bench(
        *servers,
        concurrency=1,
        requests=1,
        rounds=1,
        input_tokens=64,
        output_tokens=4,
        out=tmp_path / "run",
    )
    assert [(row.target, row.errors) for row in run.values()] == [("a", 0), ("b", 0)]


def test_a_cancelled_run_keeps_what_was_measured(
    quick: ss.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watched(NoProgress):
        def observed(self, observation: Observation) -> None:
            if observation.role == "measured":
                measured.set()

    measured = asyncio.Event()
    monkeypatch.setattr(benchmarks, "_progress", lambda shown, meter: Watched())

    async def cancelled() -> None:
        running = asyncio.create_task(
            ss.bench(
                quick,
                concurrency=1,
                requests=5000,
                input_tokens=64,
                output_tokens=20,
                out=tmp_path / "run",
            )
        )
        await measured.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    kept = ss.load(tmp_path / "run")
    assert kept.findings.finished is False
    assert 0 < kept["quick"].requests < 5000


def test_reached_cost_limit_raises_and_keeps_the_run(quick: ss.Server, tmp_path: Path) -> None:
    price = ss.Price(input_usd=0.0, output_usd=1000.0)
    with pytest.raises(ss.Fault, match="could exceed the limit") as raised:
        sync.bench(
            quick,
            concurrency=1,
            requests=500,
            input_tokens=64,
            output_tokens=20,
            prices={"quick": price},
            max_cost=0.2,
            out=tmp_path / "run",
        )
    assert "splitsecond.load" in raised.value.__notes__[0]
    assert 8 <= ss.load(tmp_path / "run")["quick"].requests < 100


def test_a_watch_yields_its_rounds(quick: ss.Server, tmp_path: Path) -> None:
    settings = {
        "requests": 4,
        "input_tokens": 64,
        "output_tokens": 8,
        "out": tmp_path,
        "progress": False,
    }

    async def rounds() -> list[int]:
        watched = ss.watch(quick, every="1s", times=2, fail_if=["requests > 3"], **settings)  # type: ignore[arg-type]
        return [len(each.breaches) async for each in watched]

    assert asyncio.run(rounds()) == [1, 1]
    (third,) = sync.watch(quick, times=1, **settings)  # type: ignore[arg-type]
    assert len(third.news) == len(third.judged.rows) == 1
    assert len(list(tmp_path.glob("*/run.json"))) == 3


def test_requests_through_a_policy(quick: ss.Server) -> None:
    other = ss.Server(base_url=quick.base_url, model=quick.model, name="other")

    async def asked() -> tuple[ss.ChatReply, list[str]]:
        async with ss.connect('race("quick", "other")', [quick, other]) as both:
            reply = await both.chat("Hello", max_tokens=6)
            return reply, [
                text
                async for text in both.stream([{"role": "user", "content": "Hi"}], max_tokens=3)
            ]

    reply, pieces = asyncio.run(asked())
    assert len(pieces) == 3
    assert reply.text
    assert reply.target in ("quick", "other")
    assert (reply.finish_reason, reply.observation.output_tokens) == ("length", 6)
    assert reply.observation.target == 'race("quick", "other")'
    assert reply.observation.ttft_ms is not None
    assert reply.observation.ttft_ms >= 15
    assert {each.role for each in reply.attempts} == {"winner", "loser"}


def test_a_request_that_fails(quick: ss.Server) -> None:
    gone = ss.Server(base_url="http://127.0.0.1:1/v1", model="m", name="gone")
    with sync.connect(gone) as connection, pytest.raises(ss.Fault) as raised:
        connection.chat("Hello")
    assert (raised.value.kind, raised.value.target) == ("refused", "gone")
    with sync.connect('fallback("gone", "quick")', [gone, quick]) as connection:
        assert connection.chat("Hello", max_tokens=2).target == "quick"
        assert len(list(connection.stream("Hello", max_tokens=2))) == 2


def requests_file(folder: Path, count: int, **body: object) -> Path:
    """A batch of as many requests."""
    path = folder / "requests.jsonl"
    message = {"max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
    path.write_text(
        "".join(
            json.dumps({"custom_id": f"{n}", "body": message | body}) + "\n" for n in range(count)
        )
    )
    return path


def test_a_batch_through_a_policy_is_continued(
    quick: ss.Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = ss.Server(base_url="http://127.0.0.1:1/v1", model="m", name="gone")
    first = asyncio.run(
        ss.batch(requests_file(tmp_path, 10), 'fallback("gone", "quick")', [gone, quick])
    )
    assert (first.result.answered, first.result.refused, first.result.output_tokens) == (10, 0, 40)
    assert (first.path, first.refused_path) == (tmp_path / "requests.answers.jsonl", None)
    assert {custom_id for custom_id, _ in first.responses()} == {f"{n}" for n in range(10)}
    again = sync.batch(requests_file(tmp_path, 12), quick)
    assert (again.result.earlier, again.result.answered) == (10, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.system
def test_a_batch_that_fails(tmp_path: Path) -> None:
    gone = ss.Server(base_url="http://127.0.0.1:1/v1", model="m", name="gone")
    with pytest.raises(ss.CallerFault, match=r"cannot read .*absent\.jsonl"):
        sync.batch(tmp_path / "absent.jsonl", gone)
    with pytest.raises(ss.CallerFault, match="concurrency: got 0, expected 1 to 4,096"):
        sync.batch(requests_file(tmp_path, 1), gone, concurrency=0)
    with pytest.raises(ss.CallerFault, match="line 1, '0': unknown model 'absent'"):
        sync.batch(requests_file(tmp_path, 1, model="absent"))
    (tmp_path / "splitsecond.yaml").write_text("routes: {cheap: {policy: 'race(\"a/x\")'}}")
    with pytest.raises(ss.CallerFault, match=r"routes\.cheap\.policy"):
        sync.batch(requests_file(tmp_path, 1), "cheap", config=tmp_path / "splitsecond.yaml")
    assert list(tmp_path.glob("*.answers.*")) == []


def test_the_synchronous_form_works_where_a_loop_runs(quick: ss.Server, tmp_path: Path) -> None:
    async def cell() -> int:
        found = sync.bench(
            quick, concurrency=1, requests=2, input_tokens=64, output_tokens=8, out=tmp_path / "run"
        )
        with sync.connect(quick) as connection:
            connection.chat("Hello", max_tokens=2)
        return found["quick"].requests

    assert asyncio.run(cell()) == 2


@pytest.mark.parametrize(
    ("keywords", "settings"),
    [
        (BenchKeywords, BenchSettings),
        (CapacityKeywords, CapacitySettings),
        (WatchKeywords, WatchSettings),
    ],
)
def test_type_checkers_see_the_options_of_the_settings(
    keywords: type, settings: type[RunSettings]
) -> None:
    declared = {each.field: each.type for each in options_of(settings).values()}
    assert get_type_hints(keywords) == declared


def test_help_of_a_function_has_each_keyword_with_its_default() -> None:
    for function in (ss.capacity, sync.capacity):
        share = inspect.signature(function).parameters["share"]
        assert (share.default, share.annotation) == (0.95, float)
        assert "share (0.95): Share of the requests that must meet" in (function.__doc__ or "")
    text = " ".join((ss.bench.__doc__ or "").split())
    assert "duration (None): Instead of `requests`, or as limit of `precision`: rounds" in text


@pytest.fixture
def registered() -> Iterator[None]:
    """Policies that the test defines are removed after it."""
    known = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(known)


@pytest.mark.usefixtures("registered")
def test_a_policy_of_a_user(quick: ss.Server) -> None:
    calls: list[bool] = []

    @ss.policy
    async def second_first(
        call: ss.Call, a: ss.Service, b: ss.Service, *, loud: bool = False
    ) -> ss.Reply:
        calls.append(loud)
        try:
            return await b(call)
        except ss.Fault:
            return await a(call)

    gone = ss.Server(base_url="http://127.0.0.1:1/v1", model="m", name="gone")
    with sync.connect(
        'fallback("gone", second_first("quick", "gone", loud=True))', [gone, quick]
    ) as connection:
        reply = connection.chat("Hello", max_tokens=2)
    assert (reply.target, calls) == ("quick", [True])
    with pytest.raises(ss.CallerFault, match="second_first is a policy of this process"):
        sync.bench('second_first("sim/groq", "sim/together")')
    with pytest.raises(ss.CallerFault, match="a search measures no policy"):
        sync.capacity('second_first("sim/groq", "sim/together")')
    with pytest.raises(ss.CallerFault, match="second_first has 1 branch, expected 2"):
        ss.connect('second_first("quick")')


@pytest.mark.usefixtures("registered")
def test_functions_that_are_not_policies_are_refused() -> None:
    async def race(call: ss.Call, a: ss.Service) -> ss.Reply:
        return await a(call)

    async def lonely(call: ss.Call) -> ss.Reply:
        raise NotImplementedError

    async def untyped(call: ss.Call, a: ss.Service, *, share: float = 0.5) -> ss.Reply:
        return await a(call)

    for function, words in (
        (race, "race is a built-in policy"),
        (lonely, "lonely cannot"),
        (untyped, "share is no"),
    ):
        with pytest.raises(ss.CallerFault, match=words):
            ss.policy(function)


HEAVY = (
    "numpy",
    "msgspec",
    "asyncio",
    "rich",
    "typer",
    "uvloop",
    "splitsecond.api",
    "splitsecond.benchmark.runs",
)


@pytest.mark.system
def test_import_loads_no_heavy_module() -> None:
    look = f"import splitsecond, sys; print([name for name in {HEAVY} if name in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert ended.stdout == "[]\n"


def test_no_public_name_is_a_room() -> None:
    rooms = {each.name for each in Path(str(ss.__file__)).parent.iterdir() if each.is_dir()}
    assert rooms.isdisjoint(ss.__all__)
