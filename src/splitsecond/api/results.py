import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from splitsecond.api.commands import notebook_html
from splitsecond.benchmark.findings.compare import Comparison, RunData
from splitsecond.benchmark.findings.compare import compare as compare_runs
from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.metric import Figure
from splitsecond.benchmark.rows.records import Capacity, ConditionFindings, Run
from splitsecond.benchmark.runs.concluding import read_series, recompute, run_folder
from splitsecond.benchmark.statistics.sessions import SessionTime, session_times
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault, file_faults
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import cost_usd
from splitsecond.core.observation import Observation, Role, SessionTurn
from splitsecond.core.wording import counted_as
from splitsecond.log.statistics.summary import Interval, Summary

FrameLibrary = Literal["pandas", "polars", "pyarrow"]
FRAMES: tuple[FrameLibrary, ...] = get_args(FrameLibrary)
"""Libraries of data frames, in the order in which `BenchRun.to_frame` tries them."""


class Estimate(float):
    """A figure with its interval. It is a float in every other respect.

    `ci95` is the 95% confidence interval; a bound is None if there are too few requests for one.
    """

    ci95: Interval

    def __new__(cls, value: float, ci95: Interval) -> "Estimate":
        estimate = super().__new__(cls, value)
        estimate.ci95 = ci95
        return estimate

    def __repr__(self) -> str:
        low, high = ("?" if bound is None else f"{bound:.4g}" for bound in self.ci95)
        return f"{float(self):.4g} [{low}, {high}]"


class Distribution:
    """Distribution of one figure over the requests of a row, of which failed ones count as slower
    than all others.

    Attributes that are None are not defined: no request has the figure.
    """

    def __init__(self, summary: Summary) -> None:
        def estimate(value: float | None, statistic: str) -> Estimate | None:
            return None if value is None else Estimate(value, summary.interval(statistic))

        self.n = summary.n
        """The number of values, those of failed requests included."""
        self.p50 = estimate(summary.p50, "p50")
        """The median."""
        self.p95 = estimate(summary.p95, "p95")
        """The value that 95% of the requests do not exceed; of speeds, the value that 95% reach."""
        self.p99 = estimate(summary.p99, "p99")
        """The value that 99% of the requests do not exceed; of speeds, the value that 99% reach."""
        self.mean = estimate(summary.mean, "mean")
        """The mean."""
        self.min = summary.min
        """The smallest value."""
        self.max = summary.max
        """The largest value."""

    def __repr__(self) -> str:
        return f"<p50 {self.p50!r}, p95 {self.p95!r}, n={self.n}>"


class Row:
    """One row of a run: one target under one load.

    Each figure of docs/reference/figures.md is an attribute with its `Distribution`: `ttft_ms`,
    `tps`, `e2e_ms`, …. `findings` has all other fields, as in `run.json`.
    """

    def __init__(self, findings: ConditionFindings) -> None:
        self.findings = findings
        self.condition = findings.condition
        """The name of the row: "sim/groq@c8"."""
        self.target = findings.target
        """The target or policy."""
        self.concurrency = findings.concurrency
        """Requests in flight; None in an open loop."""
        self.rate = findings.rate
        """Requests per second of an open loop; None in a closed loop."""
        self.requests = findings.requests
        """Measured requests that were sent."""
        self.errors = findings.errors
        """Measured requests that failed."""
        self.output_tokens_per_s = findings.output_tokens_per_s
        """Output tokens per second of all requests together, while the concurrency was at its
        target."""
        self.cost_usd = findings.cost_usd
        """The cost of all requests of the row, warm-ups included; None if no price is known."""
        self.invalid = findings.invalid
        """Why the numbers of this row must not be trusted; empty if they can be."""

    def __repr__(self) -> str:
        counts = f"{counted_as(self.requests, 'request')}, {counted_as(self.errors, 'error')}"
        return f"<{self.condition}: {counts}, TTFT p50 {self.ttft_ms.p50!r} ms>"

    def __getattr__(self, name: str) -> Distribution:
        if name not in FIGURES:
            raise AttributeError(f"a row has no figure {name!r}; it has {', '.join(FIGURES)}")
        return Distribution(getattr(self.findings, name))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FIGURES})


class BenchRun(Mapping[str, Row]):
    """A run: its rows by name, and everything that was measured.

    ``run["sim/groq", 8]`` is the row of a target at a concurrency, ``run["sim/groq@c8"]`` the same
    by its name, and ``run["sim/groq"]`` the only row of a target. `findings` has what `run.json`
    has, `observations` every attempt.
    """

    def __init__(self, findings: Run, observations: Sequence[Observation], path: Path) -> None:
        self.findings = findings
        self.observations = observations
        self.path = path

    @cached_property
    def rows(self) -> dict[str, Row]:
        """The rows by name, in the order in which they were asked for."""
        return {each.condition: Row(each) for each in self.findings.conditions}

    def __getitem__(self, key: str | tuple[str, int | str]) -> Row:
        if isinstance(key, tuple):
            target, load = key
            name = f"{target}@{load if isinstance(load, str) else f'c{load}'}"
            matching = [self.rows[name]] if name in self.rows else []
        else:
            matching = [row for name, row in self.rows.items() if key in (name, row.target)]
        if len(matching) != 1:
            raise KeyError(f"{key!r}: {len(matching)} rows; the rows are {', '.join(self.rows)}")
        return matching[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<BenchRun {self.findings.id}: {', '.join(self.rows)}>"

    def __str__(self) -> str:
        """Return the tables that `splitsecond bench` prints."""
        from rich.console import Console

        from splitsecond.benchmark.report.terminal import run_table

        console = Console(width=120, no_color=True)
        with console.capture() as capture:
            run_table(self.findings, console)
        return capture.get()

    def _repr_html_(self) -> str:
        return notebook_html(str(self), self._page())

    @property
    def statements(self) -> list[str]:
        """The findings as sentences."""
        return self.findings.statements

    @property
    def capacity(self) -> Capacity | None:
        """The result of a capacity search; None for a benchmark."""
        return self.findings.capacity

    def to_frame(
        self,
        *,
        per: Literal["request", "session"] = "request",
        roles: Sequence[Role] = ("measured",),
        backend: FrameLibrary | None = None,
    ) -> Any:
        """Return a data frame with one row per request or session, of the first installed library
        of `FRAMES`.

        In a run of sessions, requests have columns for their session, branch and turn and their
        planned tokens. Sessions are all that were in flight while turns were measured; their times
        are those within the round, along the critical path. `finished` and `broken` tell whether
        they ended in it, `ends_round` whether it ended with their last answer: such a session does
        not count in the mean time of sessions. `roles` selects the requests: "measured", "warmup",
        "calibration", and for attempts of policies "winner" and "loser". `backend` names the
        library. Raises `CallerFault` if it is not installed.
        """
        import narwhals as nw

        library = backend or next((name for name in FRAMES if find_spec(name)), None)
        if library not in FRAMES or not find_spec(library):
            raise CallerFault(
                f"to_frame needs {backend or 'a library of data frames'}, which is not installed",
                kind="no_data_frames",
                hint=f"Install one of {', '.join(FRAMES)}.",
            )
        columns = self._session_columns() if per == "session" else self._columns(roles)
        return nw.from_dict(columns, backend=library).to_native()

    def _session_columns(self) -> dict[str, list[Any]]:
        times = {
            name: session_times(own)
            for name, own in grouped(self.observations, lambda o: o.condition).items()
        }
        rows = [(row, each) for row in self.rows.values() for each in times.get(row.condition, ())]
        columns = {name: [of(each) for _, each in rows] for name, of in _SESSIONS.items()}
        about = {name: [getattr(row, name) for row, _ in rows] for name in ("condition", "target")}
        return about | {"concurrency": [row.concurrency for row, _ in rows]} | columns

    def _columns(self, roles: Sequence[Role]) -> dict[str, list[Any]]:
        chosen = [o for o in self.observations if o.role in roles]
        in_sessions = any(o.turn for o in chosen)

        def is_shown(figure: Figure) -> bool:
            return in_sessions or figure.group != "Sessions"

        loads = {row.condition: (row.concurrency, row.rate) for row in self.rows.values()}
        prices = {row.target: row.findings.price for row in self.rows.values()}

        def cost(o: Observation) -> float | None:
            price = prices.get(o.target)
            return None if price is None else cost_usd(o, price)

        values: dict[str, Callable[[Observation], Any]] = {
            "condition": lambda o: o.condition,
            "target": lambda o: o.target,
            "concurrency": lambda o: loads.get(o.condition, (None, None))[0],
            "rate": lambda o: loads.get(o.condition, (None, None))[1],
            "role": lambda o: o.role,
            "outcome": lambda o: o.outcome,
            "error": lambda o: o.fault.kind if o.fault else "",
            "start_s": lambda o: (o.start_ns - self.findings.began_ns) / NS_PER_S,
            **{
                each.name: partial(_value, each)
                for each in FIGURES.values()
                if each.per_request and is_shown(each)
            },
            "input_tokens": lambda o: o.input_tokens,
            "output_tokens": lambda o: o.output_tokens,
            "cached_tokens": lambda o: o.cached_tokens,
            "reasoning_tokens": lambda o: o.reasoning_tokens,
            "cost_usd": cost,
            "request_id": lambda o: o.id,
        }
        if in_sessions:
            values |= _TURNS
        return {name: [value(o) for o in chosen] for name, value in values.items()}

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write the HTML report and return its path. Raises `CallerFault` if it cannot write."""
        target = Path(path)
        with file_faults(f"cannot write {target}", kind="unwritable_file"):
            target.write_text(self._page(), encoding="utf-8")
        return target

    def _page(self) -> str:
        from splitsecond.benchmark.report.run_page import render_run

        return render_run(self.findings, self.observations, read_series(self.path))


def load(path: str | os.PathLike[str], *, slo: str = "") -> BenchRun:
    """Return the run in a folder, its findings computed again from its observations.

    `slo` replaces the limits for goodput. Raises `CallerFault` if the folder holds no run.
    """
    folder = Path(path)
    findings, observations = recompute(folder, slo=slo)
    return BenchRun(findings, observations, run_folder(folder))


AnyRun = BenchRun | str | os.PathLike[str]
"""A run or its folder."""


def compare(
    before: AnyRun | Sequence[AnyRun],
    after: AnyRun | Sequence[AnyRun],
    *,
    match: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare two runs, each given as a `BenchRun` or its folder: changes, intervals and tests over
    the rounds.

    Each side may be several runs; if they are of different days, the days are compared. `match`
    maps names of targets before to names after; without it, the only target of each side is
    matched.
    """
    return compare_runs(_side(before), _side(after), match=match)


def _side(runs: AnyRun | Sequence[AnyRun]) -> list[RunData]:
    all_runs: Sequence[AnyRun] = [runs] if isinstance(runs, BenchRun | str | os.PathLike) else runs
    loaded = (run if isinstance(run, BenchRun) else load(run) for run in all_runs)
    return [RunData(run.findings, run.observations, name=str(run.path)) for run in loaded]


def _of_turn(of: Callable[[SessionTurn], Any]) -> Callable[[Observation], Any]:
    return lambda o: of(o.turn) if o.turn else None


_TURNS: dict[str, Callable[[Observation], Any]] = {
    "session": _of_turn(lambda turn: turn.session),
    "branch": _of_turn(lambda turn: turn.branch),
    "turn": _of_turn(lambda turn: turn.turn),
    "new_tokens": _of_turn(lambda turn: turn.new_tokens),
    "reusable_tokens": _of_turn(lambda turn: turn.reusable_tokens),
    "tools_s": _of_turn(lambda turn: turn.wait_ns / NS_PER_S),
}
"""Columns of a run of sessions."""
_SESSIONS: dict[str, Callable[[SessionTime], Any]] = {
    "round": lambda each: each.session.round,
    "session": lambda each: each.session.name,
    "turns": lambda each: len(each.session.turns),
    "finished": lambda each: each.finished,
    "broken": lambda each: each.broken,
    "ends_round": lambda each: each.ends_round,
    "waiting_s": lambda each: each.waiting_s,
    "generating_s": lambda each: each.generating_s,
    "tools_s": lambda each: each.tools_s,
    "input_tokens": lambda each: sum(o.input_tokens or 0 for o in each.session.turns),
    "cached_tokens": lambda each: sum(o.cached_tokens or 0 for o in each.session.turns),
    "output_tokens": lambda each: sum(o.output_tokens or 0 for o in each.session.turns),
}


def _value(figure: Figure, o: Observation) -> float | None:
    value = figure.value(o)
    return None if value is None else float(value)
