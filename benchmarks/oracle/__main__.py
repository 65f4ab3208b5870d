"""Compare what benchmark tools report about one server with its packets: `python -m
benchmarks.oracle`.

A real engine serves a Llama with random weights. `splitsecond bench`, AIPerf and GuideLLM measure
it in turns, with the same prompts, lengths and concurrency. Meanwhile a packet capture that shares
no code with any of them records every request. For each tool it prints the tool's own figures,
those of the packets of the same requests, and vLLM's own histograms; then the differences request
by request. docs/accuracy.md explains them.

All percentiles are computed here, in the same way, from the figures of single requests; those of
vLLM are interpolated in its buckets, and its mean is exact. It needs CAP_NET_RAW. It is not part of
CI: the engine takes 3.5 GB.
"""

import argparse
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from benchmarks.oracle import model, packets, server, tools
from benchmarks.oracle.packets import PacketRequest
from benchmarks.oracle.server import Histogram
from benchmarks.oracle.tools import Asked, Report, Reported

NEAR_NS = 200_000_000
"""If start, first and last token are farther apart than this on average, it is another request."""


class Turn(Struct):
    """One run of one tool: what it reported, and what the server counted meanwhile."""

    began_ns: int
    ended_ns: int
    report: Report
    counted: dict[str, Histogram]


class Row(Struct):
    """What is known about one tool's requests at one concurrency."""

    tool: str
    concurrency: int
    turns: list[Turn] = field(default_factory=list)


class Figures(Struct, frozen=True):
    """The times of some requests in ms."""

    ttft: Sequence[float]
    tpot: Sequence[float]
    e2e: Sequence[float]


def of_reports(requests: Sequence[Reported]) -> Figures:
    """Return a tool's figures."""
    tpot = [r.tpot_ms for r in requests if r.tpot_ms is not None]
    return Figures([r.ttft_ms for r in requests], tpot, [r.e2e_ms for r in requests])


def of_packets(requests: Sequence[PacketRequest]) -> Figures:
    """Return the packets' figures."""
    tpot = [tpot for r in requests if (tpot := r.tpot_ms) is not None]
    return Figures([r.ttft_ms for r in requests], tpot, [r.e2e_ms for r in requests if r.end])


def matched(
    reports: Sequence[Reported], seen: Sequence[PacketRequest]
) -> list[tuple[Reported, PacketRequest]]:
    """Pair each report with the packets of its request: start, first and last token fit best over
    all pairs."""
    if not reports or not seen:
        return []
    from scipy.optimize import linear_sum_assignment  # takes half a second

    told = np.array(
        [[r.start_ns, r.start_ns + r.ttft_ms * 1e6, r.start_ns + r.e2e_ms * 1e6] for r in reports]
    )
    shown = np.array([[r.sent, r.first, r.last] for r in seen], dtype=float)
    apart = np.abs(told[:, None, :] - shown[None, :, :]).sum(axis=2)
    pairs = zip(*linear_sum_assignment(apart), strict=True)
    return [(reports[one], seen[other]) for one, other in pairs if apart[one, other] < 3 * NEAR_NS]


def cells(figures: Figures) -> list[str]:
    """Return TTFT p50, p95 and mean, TPOT p50 and mean, E2E p50 and mean."""
    return [
        _number(_percentile(figures.ttft, 50)),
        _number(_percentile(figures.ttft, 95)),
        _number(_mean(figures.ttft)),
        _number(_percentile(figures.tpot, 50), 3),
        _number(_mean(figures.tpot), 3),
        _number(_percentile(figures.e2e, 50)),
        _number(_mean(figures.e2e)),
    ]


def counted(turns: Sequence[Turn]) -> tuple[int, list[str]]:
    """Return the number of requests in the server's histograms, and the same cells."""
    total: dict[str, Histogram] = {}
    for turn in turns:
        for name, histogram in turn.counted.items():
            known = total.setdefault(name, Histogram({}))
            for limit, count in histogram.buckets.items():
                known.buckets[limit] = known.buckets.get(limit, 0.0) + count
            known.sum += histogram.sum
            known.count += histogram.count
    empty = Histogram({})
    ttft, tpot, e2e = (total.get(name, empty) for name in ("ttft", "tpot", "e2e"))
    return int(ttft.count), [
        _number(ttft.quantile_ms(0.5)),
        _number(ttft.quantile_ms(0.95)),
        _number(ttft.mean_ms),
        _number(tpot.quantile_ms(0.5), 3),
        _number(tpot.mean_ms, 3),
        _number(e2e.quantile_ms(0.5)),
        _number(e2e.mean_ms),
    ]


def _percentile(values: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def print_tables(rows: Sequence[Row], seen: Sequence[PacketRequest]) -> int:
    """Print both tables; return how many requests failed or have no packets."""
    print("\nTimes in ms.\n")
    print(
        "| c | tool | source | requests | TTFT p50 | p95 | mean | TPOT p50 | mean | E2E p50 | "
        "mean | errors |"
    )
    print(f"|{'---|' * 12}")
    wrong = 0
    differences = []
    for row in rows:
        reports = [report for turn in row.turns for report in turn.report.requests]
        errors = sum(turn.report.errors for turn in row.turns)
        every = [
            r for r in seen if any(turn.began_ns <= r.sent <= turn.ended_ns for turn in row.turns)
        ]
        pairs = matched(reports, every)
        wrong += errors + len(reports) - len(pairs)
        count, histogram = counted(row.turns)
        for source, number, values, failed in (
            ("its report", len(reports), cells(of_reports(reports)), str(errors)),
            (
                "packets of these",
                len(pairs),
                cells(of_packets([request for _, request in pairs])),
                "",
            ),
            ("packets of all", len(every), cells(of_packets(every)), ""),
            ("the engine, of all", count, histogram, ""),
        ):
            if number or failed:
                print(
                    f"| {row.concurrency} | {row.tool} | {source} | {number} | "
                    f"{' | '.join(values)} | {failed} |"
                )
        differences.append(_difference(row, pairs))
    print("\nReported − packets, for each request, in ms.\n")
    print(
        "| c | tool | requests | TTFT p50 / p99 / max | TPOT p50 / p99 | E2E p50 / p99 | start "
        "p50 / p99 |"
    )
    print("|---|---|---|---|---|---|---|")
    print("\n".join(differences))
    return wrong


def _difference(row: Row, pairs: Sequence[tuple[Reported, PacketRequest]]) -> str:
    ttft = [report.ttft_ms - request.ttft_ms for report, request in pairs]
    e2e = [report.e2e_ms - request.e2e_ms for report, request in pairs]
    start = [(report.start_ns - request.sent) / 1e6 for report, request in pairs]
    tpot = [
        report.tpot_ms - request.tpot_ms
        for report, request in pairs
        if report.tpot_ms is not None and request.tpot_ms is not None
    ]
    values = (
        " / ".join(_number(_percentile(ttft, percent), 3) for percent in (50, 99, 100)),
        " / ".join(_number(_percentile(tpot, percent), 4) for percent in (50, 99)),
        " / ".join(_number(_percentile(e2e, percent), 3) for percent in (50, 99)),
        " / ".join(_number(_percentile(start, percent), 3) for percent in (50, 99)),
    )
    return f"| {row.concurrency} | {row.tool} | {len(pairs)} | {' | '.join(values)} |"


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.oracle", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--engine", choices=sorted(server.INSTALL), default="vllm")
    parser.add_argument(
        "--engine-command",
        default="",
        metavar="PATH",
        help="default: the engine's name on the PATH",
    )
    parser.add_argument(
        "--engine-options", default="", metavar="TEXT", help="further options of the server"
    )
    parser.add_argument(
        "--server", default="", metavar="URL", help="measure this server instead of starting one"
    )
    parser.add_argument(
        "--server-model", default=server.MODEL, metavar="NAME", help="the model of --server"
    )
    parser.add_argument(
        "--shape", choices=sorted(model.SHAPES), default="tiny", help="of the Llama"
    )
    parser.add_argument("--concurrency", default="1,8", metavar="N,N")
    parser.add_argument(
        "--requests", type=int, default=40, metavar="N", help="measured requests of a turn"
    )
    parser.add_argument(
        "--turns", type=int, default=2, metavar="N", help="turns of each tool at each concurrency"
    )
    parser.add_argument("--input-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--output-tokens", type=int, default=64, metavar="N")
    parser.add_argument("--without", action="append", default=[], choices=sorted(tools.VERSIONS))
    parser.add_argument(
        "--keep", type=Path, default=None, metavar="FOLDER", help="where the records stay"
    )
    for tool in tools.VERSIONS:
        parser.add_argument(
            f"--{tool}", default="", metavar="PATH", help="default: its name on the PATH"
        )
    return parser.parse_args()


def main() -> int:
    """Measure and print; return 1 if a request failed or has no packets."""
    asked = options()
    shape = model.SHAPES[asked.shape]
    commands = {tools.OURS: tools.our_command()}
    commands |= {
        tool: tools.executable(tool, getattr(asked, tool))
        for tool in tools.VERSIONS
        if tool not in asked.without
    }
    with ExitStack() as stack:
        folder = (asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        model.write(folder / "model", shape)
        if asked.server:
            url, name = asked.server.rstrip("/").removesuffix("/v1"), asked.server_model
        else:
            command = server.command_of(asked.engine, asked.engine_command)
            more = shlex.split(asked.engine_options)
            url, name = stack.enter_context(
                server.serving(asked.engine, command, folder / "model", _free_port(), more)
            )
        for tool, command in commands.items():
            print(
                f"{tool}: {'this checkout' if tool == tools.OURS else tools.version(command)}",
                flush=True,
            )
        port = server.port_of(url)
        levels = [int(level) for level in asked.concurrency.split(",")]
        prompts = model.prompts(asked.requests, asked.input_tokens, shape)
        rows = {(level, tool): Row(tool, level) for level in levels for tool in commands}
        with packets.Capture(port, folder / "packets") as capture:
            for number in range(asked.turns):
                for (level, tool), row in rows.items():
                    wanted = Asked(
                        url=url,
                        model=name,
                        tokenizer=folder / "model",
                        prompts=prompts,
                        output_tokens=asked.output_tokens,
                        concurrency=level,
                        requests=asked.requests,
                        ignore_eos=asked.engine == "vllm",
                    )
                    place = folder / f"{tool}-{level}-{number}"
                    place.mkdir()
                    row.turns.append(turn(tool, wanted, place, commands[tool]))
        wrong = print_tables(list(rows.values()), packets.read(folder / "packets", port))
    print(
        f"\nPackets lost by the capture: {capture.lost}. Requests that failed or have no packets: "
        f"{wrong}."
    )
    return 1 if wrong or capture.lost else 0


def turn(tool: str, asked: Asked, folder: Path, command: str) -> Turn:
    """Let one tool measure once. If it fails, that is printed, and all its requests count as
    failed."""
    before, began_ns = server.histograms(asked.url), time.time_ns()
    print(f"{time.strftime('%X')} {tool} at concurrency {asked.concurrency}", flush=True)
    try:
        report = tools.TOOLS[tool](asked, folder, command)
    except tools.ToolFailed as failure:
        print(failure, flush=True)
        report = Report([], errors=asked.requests)
    after = server.histograms(asked.url)
    counted = {
        name: histogram.since(before[name]) for name, histogram in after.items() if name in before
    }
    return Turn(began_ns, time.time_ns(), report, counted)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
