"""`splitsecond sessions`: the list of sessions, and one of them as a waterfall."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.cli.conftest import Split
from tests.cli.conftest import split as split  # a fixture
from tests.gateway.conftest import KEY, gateway, ready
from tests.store.records import answered, in_session
from tests.waiting import WITHIN_S

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import FaultRecord
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.log import Log
from splitsecond.simulator.process import run_simulator

AGENT, CHAT = "3f9c000000000001", "a000000000000002"


def turn(number: int, random: Random, ago_s: float) -> CallRecord:
    """A turn of an agent: every fifth one comes after a pause in which the cache was lost."""
    missed = number % 5 == 4
    new, reusable = 1_500 + random.randrange(3000), number * 2_000
    cached = 0 if missed else reusable
    ttft_s = (0.3 + (new + reusable - cached) * 60e-6 + cached * 2e-6) * random.uniform(0.98, 1.02)
    target = "groq/openai/gpt-oss-20b" if number == 9 else "groq/openai/gpt-oss-120b"
    record = answered(number, target=target, ago_s=ago_s)
    (attempt,) = record.attempts
    start_ns = record.start_ns
    first_ns = start_ns + round(ttft_s * NS_PER_S)
    last_ns = first_ns + 2 * NS_PER_S
    attempt = msgspec.structs.replace(
        attempt, sent_ns=start_ns + 2_000_000, tcp_ns=1_000_000, rtt_ns=20_000_000,
        first_event_ns=first_ns,
        first_token_ns=first_ns, first_answer_ns=first_ns, last_token_ns=last_ns, end_ns=last_ns,
        token_at=[first_ns, last_ns], token_lengths=[10, 800], output_tokens=201,
        input_tokens=new + reusable,
        cached_tokens=cached,
    )  # fmt: skip
    attempts = [attempt]
    if number == 9:
        fault = FaultRecord(
            type="ProviderFault", kind="http_503", phase="head", message="full", status=503
        )
        failed = msgspec.structs.replace(
            attempt, id=f"{record.call}.0", target="groq/openai/"
            "gpt-oss-120b", role="loser", outcome="failed",
            fault=fault, first_token_ns=None, first_answer_ns=None, last_token_ns=None,
            input_tokens=None,
            output_tokens=None, cached_tokens=None, token_at=[], token_lengths=[], sent_ns=start_ns,
            end_ns=start_ns + 1_000_000,
        )  # fmt: skip
        attempts.insert(0, failed)
    idle_ns = None if number == 0 else (400 if missed else 10) * NS_PER_S
    loop = number - 13 if 16 <= number < 20 else 0
    session = in_session(
        number + 1, AGENT, new_tokens=new, reusable_tokens=reusable, idle_ns=idle_ns, repeated=loop
    )
    return msgspec.structs.replace(
        record, end_ns=last_ns, first_token_ns=first_ns, session=session, attempts=tuple(attempts)
    )


@pytest.fixture
def log(tmp_path: Path) -> str:
    random = Random(4)
    with Log.open(f"sqlite:///{tmp_path}/log.db") as opened:
        for number in range(25):
            opened.put(turn(number, random, ago_s=3_600 - number * 100))
        opened.put(answered(99, ago_s=50, session=in_session(1, CHAT)))
    return f"sqlite:///{tmp_path}/log.db"


def test_sessions_are_listed_with_the_latest_first(split: Split, log: str) -> None:
    done = split("sessions", "--log", log, "--json", "-")
    listed = json.loads(done.out)["sessions"]
    assert [(each["id"], each["turns"]) for each in listed] == [(CHAT, 1), (AGENT, 25)]
    assert 0.5 < listed[1]["cached_share"] < 1
    assert listed[1]["usd"] > 0


def test_the_log_of_run_needs_no_configuration(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    Path("splitsecond").mkdir()
    for file in ("splitsecond/runs.db", "other.db"):
        with Log.open(f"sqlite:///{file}") as opened:
            opened.put(answered(1, target="groq/unknown", ago_s=50, session=in_session(1, CHAT)))
    needed = "Prices from the gateway's configuration are missing"
    assert needed not in split("sessions").words
    assert needed not in split("sessions", "--log", f"{tmp_path}/splitsecond/runs.db").words
    assert needed in split("sessions", "--log", "other.db").words


def test_one_session_is_shown_with_its_causes(split: Split, log: str) -> None:
    report = json.loads(split("sessions", "3f9c", "--log", log, "--json", "-").out)["session"]
    assert sum(report["causes"].values()) == pytest.approx(report["wall_s"], rel=0.01)
    assert report["causes"]["cache_miss_s"] > 1
    assert len(report["turns"]) == 25
    shown = split("sessions", "3f9c", "--log", log).out
    assert "You waited" in shown
    assert "http_503" in shown


def test_loops_are_named_in_the_list_and_the_waterfall(split: Split, log: str) -> None:
    listed = json.loads(split("sessions", "--log", log, "--json", "-").out)["sessions"]
    assert [each["repeated"] for each in listed] == [0, 6]
    assert "6 calls" in split("sessions", "--log", log).out
    report = json.loads(split("sessions", AGENT, "--log", log, "--json", "-").out)["session"]
    assert [turn["repeated"] for turn in report["turns"]][15:21] == [0, 3, 4, 5, 6, 0]
    shown = split("sessions", AGENT, "--log", log).out
    assert "\n20: the same tool call 6 times in a row\n" in shown
    assert shown.count("times in a row") == 1, "once for a loop"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_narrow_list_names_the_columns_it_leaves_out(
    split: Split, log: str, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = split("sessions", "--log", log).out
    assert "…" not in shown
    assert all(len(line) <= columns for line in shown.splitlines())
    assert AGENT in shown
    assert ("errors, slowest turn, client and agents need more columns." in shown) == (
        columns == 80
    )
    waterfall = split("sessions", AGENT, "--log", log).out
    assert "…" not in waterfall
    assert "moved from groq/openai/gpt-oss-120b" in " ".join(waterfall.split()).replace("- ", "-")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ffff"], "no session 'ffff'"),
        (["--since", "soon"], "--since"),
        (["--since", "1s"], "has no sessions"),
        (["3f9c", "--allow"], "the whole id of a session"),
        (
            [AGENT, "--allow", "--url", "http://127.0.0.1:9"],
            "no gateway answers at http://127.0.0.1:9",
        ),
        ([AGENT, "--allow", "--url", "here"], "--url: got 'here'"),
    ],
)
def test_wrong_questions_are_refused(
    split: Split, log: str, arguments: list[str], words: str
) -> None:
    done = split("sessions", *arguments, "--log", log)
    assert done.code == 2
    assert words in done.err


@pytest.mark.system
def test_a_stopped_session_goes_on_when_it_is_allowed(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_profile: Path
) -> None:
    monkeypatch.setenv("WEB_KEY", KEY)
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {KEY}",
        "x-session-id": "one",
    }
    with run_simulator(str(quick_profile)) as (simulated,):
        keys = "listen: {port: 1}\nkeys: [{name: web, key: env:WEB_KEY, turns_per_session: 1}]\n"
        Path("splitsecond.yaml").write_text(
            f"{keys}providers: {{sim: {{base_url: '{simulated.base_url}'}}}}\n"
        )
        with gateway(tmp_path) as process:
            url = ready(process)

            def ask() -> tuple[int, str]:
                body = json.dumps(
                    {"model": "sim/quick", "messages": [{"role": "user", "content": "hi"}]}
                ).encode()
                try:
                    with urllib.request.urlopen(
                        urllib.request.Request(f"{url}/chat/completions", body, headers),
                        timeout=WITHIN_S,
                    ) as answer:
                        return answer.status, ""
                except urllib.error.HTTPError as error:
                    with error:
                        return error.code, json.load(error)["error"]["message"]

            assert ask()[0] == 200
            status, words = ask()
            assert status == 429
            command = words.partition("`splitsecond ")[2].partition("`")[0]
            assert (
                "no session with this id"
                in split("sessions", "0" * 16, "--allow", "--url", url).complaint
            )
            assert "once more" in split(*command.split(), "--url", url).out
            assert [ask()[0], ask()[0]] == [200, 429]
