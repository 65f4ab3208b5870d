"""The tables of `splitsecond doctor` fit a narrow console: columns go before anything is cut."""

from collections.abc import Callable

from rich.console import Console
from tests.analysis.made import request
from tests.cases import each_case

from splitsecond.benchmark.report.checkup import TargetCheck, accuracy_table, target_table
from splitsecond.benchmark.statistics.accuracy import Accuracy
from splitsecond.core.observation import PacketCounts
from splitsecond.log.statistics.summary import summary_of

NAME = "fireworks/accounts/fireworks/models/llama-v3p1-405b-instruct"


def levels(console: Console) -> None:
    some = summary_of([0.1 + 0.0123 * n for n in range(100)])
    share = summary_of([0.000123])
    accuracy_table(
        [
            Accuracy(
                streams=streams, requests=10, failed=0, tokens=1000, ttft_error_ms=some,
                send_error_ms=some,
                receive_error_ms=some, token_error_ms=some, tpot_error_share=share,
                read_lag_ms=summary_of([1234.5]),
                cpu_ms_per_1000_tokens=164.3, in_flight=streams, clock="packets", priority="real "
                "time",
                packets=PacketCounts(), interrupted=0, trusted=streams == 1, why_not="many "
                "requests "
                "failed",
            )
            for streams in (1, 256)
        ],
        console,
    )  # fmt: skip


def targets(console: Console) -> None:
    target_table(
        [
            TargetCheck(
                NAME,
                [
                    request(
                        target=NAME,
                        dns_ns=1_234_000,
                        tcp_ns=23_456_000,
                        tls_ns=34_567_000,
                        rtt_ns=23_456_000,
                    )
                ]
                * 2,
            ),
            TargetCheck("groq/m", fault="groq/m: 401"),
        ],
        console,
    )


@each_case("table", [levels, targets])
@each_case("width", [60, 80, 120])
def test_the_table_fits(table: Callable[[Console], None], width: int) -> None:
    console = Console(width=width)
    with console.capture() as captured:
        table(console)
    text = captured.get()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "…" not in text


def test_the_verdict_stays_when_columns_go() -> None:
    console = Console(width=50)
    with console.capture() as captured:
        levels(console)
    assert "trust" in captured.get()
    assert "TTFT" in captured.get()
    assert "Trust this machine up to 1 stream of 100 tokens/s." in " ".join(captured.get().split())
