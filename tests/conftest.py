"""Settings of the whole suite: the two selections of tests, the guard of the fast one, and
generated examples.

`make test` runs the fast tests: they start no process and connect only to the loopback. `make
test-all` then runs the `system` tests, which do. A test has this marker if it, or a fixture that it
uses, asks for it.
"""

import asyncio
import gc
import os
import re
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.golden import golden as golden  # fixtures for all tests
from tests.quick import quick_profile as quick_profile
from tests.quick import simulated as simulated

from splitsecond.core import internal_errors
from splitsecond.log.store import database

# Machines are shared, so no example has a time limit, and none is too slow to draw. Each run draws
# the same examples, for everyone: `make test` a dozen for each test, `make test-all` twice as many.
# `make fuzz` searches with fresh ones. No example is stored, so a run never depends on the one
# before.
settings.register_profile(
    "same",
    deadline=None,
    max_examples=12,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("all", settings.get_profile("same"), max_examples=25)
settings.register_profile("fuzz", settings.get_profile("same"), max_examples=100, derandomize=False)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "same")
settings.load_profile(PROFILE)
if PROFILE == "same":
    # Hypothesis draws a few values from the constants of all modules that are loaded. With them, a
    # change of any file would change the examples of every test, and each worker process would
    # parse every file once more. `make test-all` and `make fuzz` have them.
    setattr(providers, "_get_local_constants", lambda: providers._local_constants)  # noqa: B010 - a private name

STARTS_PROCESSES = (
    "subprocess.Popen",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
)
HERE = Path(__file__).parent
ONLY_SYSTEM = re.compile(r"^pytestmark = (?:\[\s*)?pytest\.mark\.system\b", re.MULTILINE)
MAX_ID = 80
YOUNG_OBJECTS = 20_000
"""New objects until the garbage collector runs, as in a gateway. With Python's 700, it takes a
tenth of the tests' time."""
_guarded: list[pytest.Item] = []
_refused: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that rewrites golden files."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write golden files instead of comparing with them",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of `system` tests for the fast ones: clients of providers take seconds to
    import."""
    if config.option.markexpr != "not system" or not collection_path.match("test_*.py"):
        return None
    return bool(ONLY_SYSTEM.search(collection_path.read_text("utf-8"))) or None


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Import the tests in reverse order in each second worker process, before it collects them.

    In a fresh clone most of the collection is compiling the tests, and worker processes in step
    compile each file together. So each compiles a half, and reads the other one.
    """
    worker = getattr(collector.config, "workerinput", {}).get("workerid", "gw0")
    if (
        not isinstance(collector, pytest.Session)
        or collector.config.args != ["tests"]
        or int(worker[2:]) % 2 == 0
    ):
        return
    for path in sorted(HERE.rglob("test_*.py"), reverse=True):
        if not pytest_ignore_collect(path, collector.config):
            with suppress(Exception):  # the collection reports it
                import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """Shorten the ids of long texts: pytest-xdist sends the ids of all tests, and some of the texts
    are megabytes."""
    if not isinstance(val, str | bytes) or len(val) <= MAX_ID:
        return None
    data = val if isinstance(val, bytes) else val.encode(errors="replace")
    return f"{val[:MAX_ID]!a}-{len(val)}-{zlib.crc32(data):x}"


@pytest.fixture(scope="session")
def system() -> None:
    """Mark the tests that use this fixture as `system` tests. Fixtures that start processes request
    it."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection: it would scan all modules again and again, and
    nearly everything stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _frozen_heap() -> Iterator[None]:
    """Exempt the modules and tests that were loaded from garbage collection.

    Blocks of requests and some checks begin with a full collection. With the whole suite it takes
    most of their time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)  # each of them ends with it
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _disks_are_not_awaited() -> Iterator[None]:
    """Let SQLite return before the disk has written: that a log survives a crash is tested with
    processes."""
    tune = database._tune

    def tune_without_waiting(connection: Any, record: object) -> None:
        tune(connection, record)
        connection.execute("PRAGMA synchronous=OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_tune", tune_without_waiting)
        yield


@pytest.fixture(autouse=True)
def _no_internal_errors() -> Iterator[None]:
    """Fail a test that reports an internal error, unless it requests `error_counts`."""
    before = dict(internal_errors.counts)
    yield
    after = dict(internal_errors.counts)
    internal_errors.counts.clear()
    internal_errors.counts.update(before)
    assert after == before


@pytest.fixture
def error_counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The internal errors that this test alone reports, by place."""
    before = dict(internal_errors.counts)
    internal_errors.counts.clear()
    monkeypatch.setattr(internal_errors, "_reported_ns", {})
    yield internal_errors.counts
    internal_errors.counts.clear()
    internal_errors.counts.update(before)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the marker `system` to each test that uses the fixture of this name, directly or not,
    and to most cases of a `sampled` test. Order the tests.

    System tests that share a fixture of their module run in one worker process, so that it is made
    once: it may be a run, a search or a wheel. Tests of the whole product, outside the folders of
    the rooms, take longest. They begin first: otherwise the last one of them runs alone, while the
    other worker processes have nothing left to do.
    """
    places: dict[tuple[str, int], dict[str, int]] = {}
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled and _place(item, places) % sampled.args[0]:
            item.add_marker("system")
        if "system" in getattr(item, "fixturenames", ()):
            item.add_marker("system")
        if (
            item.get_closest_marker("system")
            and not item.get_closest_marker("xdist_group")
            and _shares(item)
        ):
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}/{item.path.stem}"))
    items.sort(key=lambda item: item.path.parent != HERE)


def _place(item: pytest.Item, places: dict[tuple[str, int], dict[str, int]]) -> int:
    """Return the sum of the places of a case's values in their parameters. `places`: of the values
    before, by test and parameter. The indices that pytest has are those of the case."""
    test = item.nodeid.partition("[")[0]
    total = 0
    for parameter, value in enumerate(getattr(item, "callspec")._idlist):  # noqa: B009 - pytest has no public name
        known = places.setdefault((test, parameter), {})
        total += known.setdefault(value, len(known))
    return total


def _shares(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture that its module makes once."""
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - pytest has no public name for it
    return any(
        fixtures[name][-1].scope == "module"
        for name in getattr(item, "fixturenames", ())
        if name in fixtures
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run if pytest-xdist was asked to group tests and did not, as 3.8 does with pytest
    9.2."""
    if not session.config.getoption("loadgroup", default=False):
        return
    for item in session.items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
            raise pytest.UsageError(
                f"pytest-xdist has not put {item.nodeid} into its group: install its older pytest"
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Guard a fast test, its fixtures included."""
    if item.get_closest_marker("system"):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        # uvloop's raises no audit event
        patch.setattr(asyncio, "create_subprocess_exec", _start_process)
        _guarded.append(item)
        try:
            return (yield)
        finally:
            _guarded.clear()
            _refused.clear()


class BriefReports:
    """Plugin of a worker process of pytest-xdist: sends one report of a test that passes, not its
    setup, teardown, start and end too. Sending them takes as long as most tests do."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            if report.when == "call" or not report.passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True


def pytest_configure(config: pytest.Config) -> None:
    """Keep the reports of setups and teardowns only where their durations are shown."""
    if hasattr(config, "workerinput") and config.option.durations is None:
        config.pluginmanager.register(BriefReports())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Fail a fast test that caught or lost what the guard raised, as a task that nobody awaits
    does."""
    result = yield
    if _refused:
        pytest.fail(_refused[0])
    return result


@pytest.fixture
def refusals() -> list[str]:
    """What the guard has refused in this test. Clear it after an expected refusal."""
    return _refused


async def _start_process(*command: object, **options: object) -> NoReturn:
    _refuse("starts a process")


def _refuse(what: str) -> NoReturn:
    _refused.append(f"A fast test {what}. Give it the marker or the fixture `system`.")
    pytest.fail(_refused[-1])


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Fail a fast test that starts a process or connects to another machine."""
    if not _guarded:
        return
    if event in STARTS_PROCESSES:
        _refuse("starts a process")
    if (
        event == "socket.connect"
        and isinstance(arguments[1], tuple)
        and not _is_local(str(arguments[1][0]))
    ):
        _refuse(f"connects to {arguments[1][0]}")


def _is_local(host: str) -> bool:
    return host in ("", "localhost", "::1") or host.startswith("127.")


sys.addaudithook(_audit)
