"""The questions of docs/questions.md: a session that answers all of them runs in one folder, and
its results hold.

`tests/questions/session.md` has the session. The commands of docs/questions.md itself run in
`tests/test_tutorials.py`.
"""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from subprocess import PIPE
from typing import Any
from urllib.request import Request, urlopen

import pytest
from msgspec import Struct
from tests.cli.conftest import Ended, run_splitsecond
from tests.ports import free_ports
from tests.processes import Process

from splitsecond.simulator.process import RunningProvider, run_simulator

PAGE = Path(__file__).parents[1] / "docs/questions.md"
SESSION = Path(__file__).parent / "questions/session.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
ARTICLES = (
    "Inference speed article with live API benchmarks",
    "Crazyrouter, AI Inference Speed Benchmark 2026",
    "How fast are LLMs in production?",
    "General Compute, LLM Token Generation Speed",
    "flo2, Fastest LLM Inference",
)
COMMAND_LINE = (sys.executable, "-m", "splitsecond")
TRIES = 10
"""On a busy machine a row can be INVALID. Then the run is measured again, as the report asks."""
REQUESTS = 8

LOGGED = {
    "groq/llama3-70b-8192": (0.3, 260.0),
    "anthropic/claude-3-haiku-20240307": (0.5, 105.0),
    "openai/gpt-4o": (0.5, 68.0),
    "openai/gpt-3.5-turbo": (0.4, 62.0),
    "anthropic/claude-3-sonnet-20240229": (0.9, 75.0),
    "azure/gpt-4o": (0.9, 36.0),
    "azure/gpt-35-turbo": (0.7, 18.5),
    "vertex/claude-3-sonnet@20240229": (1.1, 18.0),
}
"""The targets in calls.csv: seconds until the first token, and tokens per second after it."""
SLOWER = ("groq/llama3-70b-8192", 0.75)
"""A target whose tokens come at this share of the speed in the later half of the days."""
DAYS = 13
CALLS_A_DAY = 45
NIGHT = {
    "deepinfra/openai/gpt-oss-120b": (8.0, 12.0, 60.0),
    "groq/openai/gpt-oss-120b": (0.2, 0.4, 400.0),
}
"""The targets in night.csv: the shortest and the longest wait for the first token in seconds, and
tokens per second."""
TEAMS = {("search", 500): 16, ("search", 20_000): 8, ("support", 500): 8, ("support", 20_000): 16}
"""The requests in teams.csv, of a day to a region: by the team and the prompt's tokens."""
WAITS = {"eastus": 0.3, "westeurope": 0.6}
"""The regions in teams.csv: seconds until the first token of an empty prompt."""
FOREIGN = Path(__file__).parent / "store" / "foreign"

# one session for all of them: it takes a minute and a half
pytestmark = pytest.mark.xdist_group("questions")


class Session(Struct):
    """What the commands printed and wrote, in order."""

    folder: Path
    ended: list[tuple[str, Ended]]

    def printed(self, command: str) -> str:
        """Return what the one command that begins like this printed, on one line."""
        found = [
            ended.words
            for each, ended in self.ended
            if each.removeprefix("splitsecond ").startswith(command)
        ]
        (words,) = found
        return words

    def run(self, name: str) -> Any:
        """Return the findings of a run."""
        return json.loads((self.folder / "runs" / name / "run.json").read_text())


@pytest.fixture(scope="module")
def session(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The session, run from its beginning to its end. `transcript.txt` in its folder has all that
    was printed."""
    folder = tmp_path_factory.mktemp("questions")
    text = SESSION.read_text("utf-8")
    blocks = BLOCK.findall(text)
    for kind, body in blocks:
        if kind in ("toml", "yaml"):
            name, _, content = body.partition("\n")
            (folder / name.removeprefix("# ")).write_text(content)
    write_inputs(folder)
    served = shlex.split(next(c for c in _commands(blocks) if c.startswith("splitsecond simulate")))
    profiles = [each for each in served if each.endswith(".toml")]
    with (
        run_simulator(*(str(folder / each) for each in profiles)) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.chdir(folder)
        patch.setenv("COLUMNS", "120")
        patch.setenv("AZURE_OPENAI_API_KEY", "k")
        (port,) = free_ports(1)
        for config in folder.glob("*.yaml"):
            config.write_text(_at(running, port, config.read_text()))
        yield Session(
            folder,
            list(
                _run(folder, [_at(running, port, each) for each in _commands(blocks)], port, patch)
            ),
        )


def _commands(blocks: list[tuple[str, str]]) -> list[str]:
    return [
        c.replace("\\\n", " ")
        for kind, body in blocks
        if kind == "console"
        for c in COMMAND.findall(body)
    ]


def _at(running: list[RunningProvider], gateway: str, text: str) -> str:
    """Replace the addresses of the session by those of the running providers (9001, …) and of the
    gateway (8800)."""
    for port, provider in enumerate(running, 9001):
        text = text.replace(f"http://127.0.0.1:{port}", provider.origin)
    return text.replace("8800", gateway)


def _run(
    folder: Path, commands: list[str], gateway: str, patch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Ended]]:
    background: list[str] = []
    code = 0
    with (folder / "transcript.txt").open("w") as transcript:
        for command in commands:
            name, *arguments = shlex.split(command)
            if arguments[-1] == "&":
                background = arguments[:-1]
                continue
            if name == "export":
                for each in arguments:
                    patch.setenv(*each.split("=", 1))
                continue
            began = time.monotonic()
            match name:
                case "echo":
                    ended = Ended(0, f"{code}\n", "")
                case "sleep":
                    ended = _frozen(background)
                case "curl":
                    ended = (
                        _served(background, arguments)
                        if gateway in command
                        else _requested(arguments)
                    )
                case _ if arguments[0] == "bench":
                    ended = _measured([*arguments, "--verbose"])
                case _:
                    ended = run_splitsecond(*arguments)
            code = ended.code
            took = time.monotonic() - began
            transcript.write(f"$ {command}\n{ended.out}{ended.err}[{ended.code}, {took:.1f} s]\n\n")
            yield " ".join(command.split()), ended


def _requested(curl: list[str]) -> Ended:
    """Send the request that curl sends with these arguments."""
    (url,) = [each for each in curl if each.startswith("http")]
    request = Request(
        url, curl[curl.index("-d") + 1].encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request) as response:
        return Ended(0, response.read().decode(), "")


def _served(serve: list[str], curl: list[str]) -> Ended:
    """Send a request while `splitsecond serve` runs."""
    with Process([*COMMAND_LINE, *serve], stdout=PIPE, text=True) as gateway:
        assert gateway.read_line().startswith("READY")
        return _requested(curl)


def _frozen(bench: list[str]) -> Ended:
    """Run a bench, and stop its measuring processes for two seconds when its first response has
    been measured.

    Again if no row is INVALID, because they were between two blocks just then.
    """
    folder = Path(bench[bench.index("--out") + 1])
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        with Process(
            [*COMMAND_LINE, *bench, "--verbose"], stdout=PIPE, stderr=PIPE, text=True
        ) as process:
            while process.poll() is None and not _has_measured(folder):
                time.sleep(0.02)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            stopped = (
                [int(child) for child in children.read_text().split()] if children.exists() else []
            )
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for child in stopped:
                    os.kill(child, number)
                time.sleep(2 if number == signal.SIGSTOP else 0)
            out, err = process.communicate()
        if "INVALID" in out:
            return Ended(process.returncode, out, err)
    raise AssertionError(f"no INVALID row in {folder}, {TRIES} times: {out}")


def _has_measured(folder: Path) -> bool:
    observations = folder / "observations.jsonl"
    return observations.exists() and '"role":"measured"' in observations.read_text()


def _measured(arguments: list[str]) -> Ended:
    """Run a bench, again if a row is INVALID."""
    folder = Path(arguments[arguments.index("--out") + 1])
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        ended = run_splitsecond(*arguments)
        if "INVALID" not in ended.out:
            return ended
    raise AssertionError(f"INVALID rows in {folder}, {TRIES} times: {ended.out}")


def write_inputs(folder: Path) -> None:
    """Write logs of applications, and requests.jsonl, a file of requests."""
    for name in ("litellm_spend_logs.csv", "openrouter_activity.csv"):
        shutil.copy(FOREIGN / name, folder)
    random, now = Random(1), datetime.now(UTC).replace(microsecond=0)
    with (folder / "calls.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["when", "model", "took_ms", "in", "out"])
        for day in range(DAYS, 0, -1):
            for target, (wait_s, tps) in LOGGED.items():
                slower = SLOWER[1] if target == SLOWER[0] and day <= DAYS / 2 else 1.0
                for _ in range(CALLS_A_DAY):
                    tokens = random.randint(150, 450)
                    wait = wait_s * random.lognormvariate(0, 0.25)
                    took = wait + tokens / tps / slower * random.lognormvariate(0, 0.1)
                    at = now - timedelta(days=day, seconds=random.randint(0, 80_000))
                    table.writerow([at.isoformat(), target, round(took * 1000, 1), 800, tokens])
    with (folder / "teams.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["when", "team", "model", "took_ms", "in", "out"])
        for day, region, ((team, prompt), count) in product(
            range(DAYS, 0, -1), WAITS, TEAMS.items()
        ):
            for _ in range(count):
                tokens = random.randint(150, 450)
                took = WAITS[region] + prompt / 20_000 + tokens / 70 * random.lognormvariate(0, 0.1)
                at = now - timedelta(days=day, seconds=random.randint(0, 80_000))
                table.writerow(
                    [
                        at.isoformat(),
                        team,
                        f"azure:{region}/gpt-4o",
                        round(took * 1000, 1),
                        prompt,
                        tokens,
                    ]
                )
    with (folder / "night.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["time", "model", "duration_ms", "ttft_ms", "input_tokens", "output_tokens"])
        for number in range(200):
            for target, (least_s, most_s, tps) in NIGHT.items():
                ttft = random.uniform(least_s, most_s)
                at = now - timedelta(hours=9, seconds=number * 60)
                table.writerow(
                    [
                        at.isoformat(),
                        target,
                        round((ttft + 300 / tps) * 1000),
                        round(ttft * 1000),
                        800,
                        300,
                    ]
                )
    for name, tokens, added, wait_s in (("agents", 8_000, 400, 0.1), ("reading", 160, 30, 0.0)):
        sessions = [_session(random, tokens, added, wait_s) for _ in range(6)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, sessions)))
    body = {"max_tokens": 100, "messages": [{"role": "user", "content": "Review this function."}]}
    request = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    lines = [
        json.dumps({"custom_id": f"request-{number}", **request}) for number in range(REQUESTS)
    ]
    (folder / "requests.jsonl").write_text("\n".join(lines))


def _session(random: Random, tokens: int, added: int, wait_s: float) -> dict[str, Any]:
    first = {"new_tokens": random.randint(tokens // 2, tokens), "output_tokens": 8}
    later = [random.randint(added // 2, 3 * added) for _ in range(8)]
    return {
        "turns": [
            first,
            *({"new_tokens": new, "output_tokens": 8, "wait_s": wait_s} for new in later),
        ]
    }


def rows(run: Any) -> dict[tuple[str, int], Any]:
    """Return the rows of a run by target and concurrency."""
    return {(row["target"], row["concurrency"]): row for row in run["conditions"]}


def of(found: list[Any], **names: Any) -> Any:
    """Return the one entry with these values."""
    (entry,) = [each for each in found if all(each[name] == value for name, value in names.items())]
    return entry


def test_every_article_is_quoted() -> None:
    quotations = " ".join(
        line.removeprefix("> ")
        for line in SESSION.read_text("utf-8").splitlines()
        if line[:1] == ">"
    )
    assert [article for article in ARTICLES if f"({article}" not in quotations] == []


def test_each_question_has_a_source_and_an_answer() -> None:
    questions = SESSION.read_text("utf-8").split("\n### ")[1:]
    assert len(questions) > 15
    assert [each.partition("\n")[0] for each in questions if "\n> " not in each] == []
    assert [
        each.partition("\n")[0] for each in questions if not re.search("```|`splitsecond ", each)
    ] == []


def test_the_page_has_the_same_questions() -> None:
    page, session = (
        re.findall(r"(?m)^### (.+)$", path.read_text("utf-8")) for path in (PAGE, SESSION)
    )
    assert page == session


@pytest.mark.system
def test_the_commands_end_with_the_expected_codes(session: Session) -> None:
    failed = {command.split()[1]: ended.code for command, ended in session.ended if ended.code}
    assert failed == {"bench": 1}  # only the one with the gate
    assert session.printed("echo") == "1"
    # the import, twice
    assert len(session.ended) == len({command for command, _ in session.ended}) + 1


@pytest.mark.system
def test_speeds_under_load(session: Session) -> None:
    run = session.run("llama")
    published = {
        "sim/generalcompute": (180, 310),
        "sim/groq": (230, 215),
        "sim/together": (480, 85),
    }
    for target, (ttft_ms, tps) in published.items():
        row = rows(run)[target, 1]
        assert row["ttft_ms"]["p50"] == pytest.approx(ttft_ms, rel=0.4)
        assert row["tps"]["p50"] == pytest.approx(tps, rel=0.2)
        assert row["e2e_ms"]["p95"] > row["e2e_ms"]["p50"] > row["ttft_ms"]["p50"]
        assert rows(run)[target, 8]["output_tokens_per_s"] > 2 * row["output_tokens_per_s"]
    printed = session.printed("bench sim/generalcompute")
    assert "FAILED: sim/together at concurrency 1: tps.p50 is" in printed
    assert "FAILED: sim/groq" not in printed
    assert "Measured from: US East." in printed
    assert "c=1 to 8, " in printed or "rom concurrency 1 to 8, " in printed


@pytest.mark.system
def test_an_agent_waits_for_a_cache_that_is_too_small(session: Session) -> None:
    run = session.run("agents")
    found = {target: row["session"] for (target, _), row in rows(run).items()}
    roomy, cramped = found["sim/roomy.toml"], found["sim/cramped.toml"]
    assert roomy["misses"] == 0
    assert roomy["cached_of_ideal"]["value"] == pytest.approx(1, abs=0.02)
    assert cramped["misses"] > cramped["reusing"] / 3
    words = " ".join(run["statements"])
    assert re.search(
        r"sim/roomy\.toml at concurrency 3: .*?None of \d+ turns missed the prompt cache", words
    )
    assert re.search(r"sim/cramped\.toml at concurrency 3: .*?\d+ of \d+ turns missed", words)


@pytest.mark.system
def test_the_fit_finds_the_cache_of_the_real_engine(session: Session) -> None:
    ((_, row),) = rows(session.run("engine-sessions")).items()
    found = row["session"]
    assert found["misses"] == 0
    new_ms = 1_000_000 / found["prefill_tokens_per_s"]["value"]
    assert (found["ms_per_1000_cached_tokens"]["value"] or 0) < new_ms / 2


@pytest.mark.system
def test_interval_and_test_of_a_difference_agree(session: Session) -> None:
    statements = session.run("difference")["statements"]
    said = [
        (" was ahead on " in sentence, float(low), float(high))
        for sentence in statements
        for low, high in re.findall(
            r" times as fast, 95% interval ([\d.]+) to ([\d.]+)\)", sentence
        )
    ]
    # they are rounded
    judged = [(ahead, not low <= 1 <= high) for ahead, low, high in said if 1 not in (low, high)]
    assert judged
    assert [by_words for by_words, _ in judged] == [by_interval for _, by_interval in judged]
    assert statements[0].startswith("These ")
    printed = session.printed("bench sim/quick.toml sim/other.toml")
    period = r"in these [\d.]+ s: "
    ahead = f"ahead on TTFT p50 {period}sim/quick.toml|sim/quick.toml was ahead on TTFT {period}p50"
    assert re.search(f"c=1, ({ahead})", printed)


@pytest.mark.system
def test_frozen_client_makes_rows_invalid(session: Session) -> None:
    printed = session.printed("sleep")
    assert re.search(r"INVALID: the client stood still for [\d.]+ s", printed)
    assert re.search(r"Not compared, because INVALID: sim/quick\.toml at concurrency [14]", printed)
    assert "grow" not in printed
    assert session.run("frozen")["load_shapes"] == []


@pytest.mark.system
def test_formats(session: Session) -> None:
    run = session.run("formats")
    sources = {row["target"].partition("/")[0]: row["token_source"] for row in run["conditions"]}
    assert sources == {
        "claude-on-vertex": "usage",
        "mistral-here": "usage",
        "replicate-here": "events",
    }
    # a count that is wrong by a token per event would halve or double it; a busy machine does less
    assert all(row["tps"]["p50"] == pytest.approx(200, rel=0.3) for row in run["conditions"])
    assert (
        "replicate-here/meta/meta-llama-3-70b-instruct: no final token counts were reported"
        in session.printed("bench claude-on-vertex")
    )
    assert '"metrics":{"input_token_count":13,"output_token_count":16}' in session.printed(
        "curl -s http"
    )


@pytest.mark.system
def test_batching(session: Session) -> None:
    run, printed = session.run("engine"), session.printed("bench sim/engine.toml -c 1,4,16")
    alone, together = (
        rows(run)["sim/engine.toml", load]["output_tokens_per_s"] for load in (1, 16)
    )
    assert 3 < together / alone < 8
    assert "From concurrency 1 to 16, system tokens/s grow" in printed
    assert "The sweet spot of sim/engine.toml is concurrency 4" in printed


@pytest.mark.system
def test_long_prompts_begin_later(session: Session) -> None:
    (found,) = session.run("prompts")["workload_changes"]
    assert (found["before"], found["after"]) == ("512", "50k")
    assert found["ttft_ms"] == pytest.approx((50_000 - 512) / 80, rel=0.2)
    printed = session.printed("bench sim/engine.toml -c 1 -n 6")
    assert "With workload 50k instead of 512, sim/engine.toml: TTFT p50 +" in printed


@pytest.mark.system
def test_where_two_targets_cross(session: Session) -> None:
    (found,) = session.run("workloads")["crossings"]
    assert (found["first"], found["then"]) == ("sim/quick.toml", "sim/late.toml")
    assert found["tokens"] == pytest.approx(53, rel=0.25)
    e2e_ms = {
        (row["target"], row["workload"]): row["e2e_ms"]["p50"]
        for row in session.run("workloads")["conditions"]
    }
    assert e2e_ms["sim/quick.toml", "autocomplete"] < e2e_ms["sim/late.toml", "autocomplete"]
    assert e2e_ms["sim/quick.toml", "summary"] > e2e_ms["sim/late.toml", "summary"]


@pytest.mark.system
def test_regions(session: Session) -> None:
    near, far = session.run("regions")["conditions"]
    assert (near["region"], far["region"]) == ("eastus", "westeurope")
    assert far["ttft_ms"]["p50"] - near["ttft_ms"]["p50"] == pytest.approx(150, rel=0.4)
    assert "Measured from: Boston." in session.printed("bench azure:eastus")


@pytest.mark.system
def test_speed_against_price(session: Session) -> None:
    run, printed = session.run("money"), session.printed("bench sim/openai-gpt-4-turbo")
    found = run["speed_and_price"]
    assert len(found["targets"]) == 6
    assert found["ci95"][0] < found["correlation"] < 0 < found["ci95"][1]
    assert "Speed and price show no clear correlation here" in printed
    for each in found["targets"]:
        assert each["cost_adjusted_tps"] == pytest.approx(each["tps"] / each["usd_per_million"])
    frontier = [each["target"] for each in found["targets"] if each["frontier"] == "yes"]
    assert {"sim/groq-mixtral", "sim/together-mixtral", "sim/ollama-4090-7b"} <= set(frontier)
    assert "sim/openai-gpt-4-turbo" not in frontier


@pytest.mark.system
def test_break_even(session: Session) -> None:
    run = session.run("money")
    month = 2.69 * 730.5
    usd = {row["target"]: row["usd_per_million"] for row in run["conditions"]}
    gpt = of(run["break_even"], machine="sim/runpod-h100-mistral-7b", api="sim/openai-gpt-4-turbo")
    assert gpt["usd_per_month"] == pytest.approx(month)
    assert gpt["tokens_per_month"] == pytest.approx(month / usd["sim/openai-gpt-4-turbo"] * 1e6)
    assert pytest.approx(month, rel=0.01) == 500e6 * 3.93 / 1e6  # the article's volume
    cheap = of(run["break_even"], machine="sim/runpod-h100-mistral-7b", api="sim/together-mixtral")
    assert cheap["tokens_per_month"] is None
    owned = of(run["break_even"], machine="sim/ollama-4090-7b", api="sim/groq-mixtral")
    assert owned["usd_per_month"] == pytest.approx(
        (1500 / 3 / 8766 + 0.45 * 0.15) * 730.5, rel=0.01
    )


@pytest.mark.system
def test_gain_of_a_race(session: Session) -> None:
    run = session.run("race")
    policy = 'race("sim/quick.toml", "sim/late.toml")'
    quick, late = (
        of(run["route_gains"], policy=policy, target=f"sim/{name}.toml")
        for name in ("quick", "late")
    )
    assert quick["speed"] == pytest.approx(1, abs=0.2)
    assert late["speed"] < 0.95  # the race is won by the target that takes longer
    assert 1.5 < quick["cost"] < 2.1
    raced, hedged = run["forecasts"]
    assert (raced["policy"], hedged["policy"]) == (policy, policy.replace("race", "hedge"))
    assert raced["ttft_p50_ms"] == pytest.approx(raced["measured_ttft_p50_ms"], rel=0.4)
    assert raced["usd_per_request"] == pytest.approx(raced["measured_usd_per_request"], rel=0.1)


@pytest.mark.system
def test_recommendations(session: Session) -> None:
    printed = session.printed("recommend runs/llama")
    for use in ("completion", "agent", "batch"):
        assert re.search(rf"\b{use} [^★]*?Recommended: sim/generalcompute\.", printed)
    assert re.search(r"sim/\w+ misses the limit of 300 ms by", printed)
    assert re.search(
        r"sim/\w+ meets the limit up to concurrency 1, not at concurrency 8\.", printed
    )
    agent = of(session.run("llama")["uses"], use="agent")
    best = agent["candidates"][0]
    row = rows(session.run("llama"))["sim/generalcompute", 8]
    assert best["agent_ms"] == pytest.approx(
        10 * (row["ttft_ms"]["p50"] + 200_000 / row["tps"]["p50"]), rel=0.1
    )


@pytest.mark.system
def test_conditions_that_change_a_recommendation(session: Session) -> None:
    printed = session.printed("recommend runs/llama")
    assert re.search(
        r"\bbatch [^★]*?sim/groq would be first if the throughput of sim/generalcompute falls from",
        printed,
    )
    night = session.printed("recommend chat batch")
    assert "deepinfra/openai/gpt-oss-120b misses the limit of 3,000 ms by 29" in night
    assert (
        "batch no user waits: tokens per dollar decide Recommended: deepinfra/openai/gpt-oss-120b."
        in night
    )
    assert (
        "would be first if the tokens per dollar of deepinfra/openai/gpt-oss-120b fall from"
        in night
    )


@pytest.mark.system
def test_models_without_a_required_feature_are_left_out(session: Session) -> None:
    printed = session.printed("recommend runs/regions chat --needs tools,images --context 200k")
    assert "No measured target can be recommended." in printed
    assert printed.count("its context has 128,000 tokens") == 2


@pytest.mark.system
def test_smallest_model_of_sufficient_quality(session: Session) -> None:
    command = "recommend runs/workloads voice --quality quality.toml --least-quality"
    low, high = (session.printed(f"{command} {score}") for score in (50, 60))
    assert "Smallest that is good enough: sim/quick.toml." in low
    assert "Smallest that is good enough: sim/late.toml." in high
    assert "its quality is" in high


@pytest.mark.system
def test_a_route_starts_with_what_the_bench_measured(session: Session) -> None:
    assert re.search(
        r"(9\d|100)% late/large-70b fastest: late/large-70b, \d+ ms",
        session.printed("explain best"),
    )
    assert "100% quick/small-8b by_complexity: simple" in session.printed("explain sized")
    assert models(session, "best.jsonl").count("large-70b") >= 0.75 * REQUESTS


@pytest.mark.system
def test_models_that_answer_each_route(session: Session) -> None:
    assert models(session, "first.jsonl") == ["small-8b"] * REQUESTS
    assert models(session, "whole.jsonl") == ["large-70b"] * REQUESTS
    assert models(session, "in-time.jsonl") == ["large-70b"] * REQUESTS
    printed = session.printed("batch requests.jsonl --model whole")
    assert (
        found := re.search(r"answered in ([\d.]+) s\. .*, ([\d,]+) output tokens/s", printed)
    ) is not None
    # without losers
    assert float(found[1]) * int(found[2].replace(",", "")) == pytest.approx(
        100 * REQUESTS, rel=0.02
    )


@pytest.mark.system
def test_slow_stream_is_resumed(session: Session) -> None:
    stream = session.printed("curl -sN")
    pieces = re.findall(r'"delta":\{[^}]*"content":"[^"]', stream)
    assert len(pieces) == 100  # those of the first 300 ms, at 200 tokens/s, and the others
    assert stream.endswith("data: [DONE]")
    assert '"error":' not in stream


def models(session: Session, name: str) -> list[str]:
    """Return the models of the responses in a file."""
    lines = (session.folder / name).read_text().splitlines()
    return [json.loads(line)["response"]["body"]["model"] for line in lines]


@pytest.mark.system
def test_cost_of_losers(session: Session) -> None:
    printed = session.printed("cost --by route")
    assert re.search(rf"\bbest \$[\d.]+ [\d.]+% 0% {REQUESTS} ", printed)
    assert (
        found := re.search(rf"\bwhole \$[\d.]+ [\d.]+% ([\d.]+)% {REQUESTS} ", printed)
    ) is not None
    assert 20 < float(found[1]) < 60  # of two answers one is thrown away
    assert (bounds := re.search(r"The whole cost is \$([\d.]+) to \$([\d.]+)", printed)) is not None
    assert float(bounds[1]) < float(bounds[2])


@pytest.mark.system
def test_speed_in_production(session: Session) -> None:
    count = len(LOGGED) * DAYS * CALLS_A_DAY
    first, again = (
        ended.words
        for command, ended in session.ended
        if command.startswith("splitsecond import calls")
    )
    assert f"{count:,} calls imported" in first
    assert f"0 calls imported, {count:,} already in the log" in again
    printed = session.printed("speed --log sqlite:///calls.db --html")
    grades = {
        "groq/llama3-70b-8192": 1,
        "anthropic/claude-3-haiku-20240307": 2,
        "azure/gpt-35-turbo": 5,
    }
    for target, grade in grades.items():
        assert f" {target} {grade} " in printed
    ratios = re.findall(r"(\S+) is ([\d.]+)(?:×| times) as fast as (?:at )?(\S+) \(", printed)
    assert {faster.partition("/")[2]: host.partition("/")[0] for faster, _, host in ratios} == {
        "gpt-4o": "azure", "gpt-3.5-turbo": "azure", "claude-3-sonnet-20240229": "vertex"
    }  # fmt: skip
    assert all(float(times) > 1.5 for _, times, _ in ratios)
    assert (session.folder / "speed.html").read_text().startswith("<!doctype html>")
    assert (session.folder / "speed.png").read_bytes().startswith(b"\x89PNG")
    drifts = re.findall(r"(\S+) (?:has become|is) (slower|faster)(?:,| than before)", printed)
    assert drifts == [(SLOWER[0], "slower")]
    cost = session.printed("cost --log sqlite:///calls.db")
    assert re.search(
        r"(cheaper than|Frontier, total TPS at \$/M tokens:) anthropic/claude-3-haiku-20240307 ",
        cost,
    )
    assert "groq/llama3-70b-8192 has the highest cost-adjusted total TPS: " in cost
    assert "Speed and price show no clear correlation here (Spearman −0." in cost
    assert "Speed against price" in (session.folder / "cost.html").read_text()
    assert (session.folder / "cost.png").read_bytes().startswith(b"\x89PNG")
    hosting = session.printed("speed --log sqlite:///calls.db --by hosting")
    assert "hosting" in hosting
    assert re.search(r"run by the maker 3 .* run by another company 5 ", hosting)
    by_model = session.printed("speed --log sqlite:///calls.db --by model")
    assert "gpt-35-turbo" not in by_model
    assert by_model.count("1,170") == 3


@pytest.mark.system
@pytest.mark.parametrize(
    ("by", "ranked"),
    [
        ("maker", {"Meta": 585, "Anthropic": 1_755, "OpenAI": 2_340}),
        (
            "host",
            {"groq": 585, "Anthropic": 1_170, "OpenAI": 1_170, "Microsoft": 1_170, "Google": 585},
        ),
        (
            "provider",
            {"groq": 585, "anthropic": 1_170, "openai": 1_170, "azure": 1_170, "vertex": 585},
        ),
        ("region", {"eastus": 624, "westeurope": 624}),
        ("size", {"128 to 1,023 input tokens": 624, "8,192 to 65,535 input tokens": 624}),
        ("key", {"search": 624, "support": 624}),
    ],
)
def test_speed_by_each_property(session: Session, by: str, ranked: dict[str, int]) -> None:
    log = "calls" if by in ("maker", "host", "provider") else "teams"
    printed = session.printed(f"speed --by {by} --log sqlite:///{log}.db")
    rows = [rf" {name} \d( \([\d–]+\))? [^•]*? {count:,} 0 " for name, count in ranked.items()]
    assert re.search(f" {by} grade .*─" + ".*?".join(rows), printed)


@pytest.mark.system
def test_production_against_published_speeds(session: Session) -> None:
    printed = session.printed("speed --log sqlite:///calls.db --against published")
    assert re.search(
        r"azure/gpt-35-turbo in production, against \S+ [\d-]+: total TPS within the published "
        r"range, 1\d(\.\d)? against under 20",
        printed,
    )
    assert "Not compared, as only the log has them: anthropic/claude-3-sonnet-20240229" in printed


@pytest.mark.system
def test_logs_of_other_programs(session: Session) -> None:
    assert session.printed("import litellm").startswith(
        "Read as LiteLLM's spend log: 17 calls imported, 3 not calls of"
    )
    assert session.printed("import openrouter").startswith(
        "Read as OpenRouter's activity: 7 calls imported."
    )
    assert session.printed("speed --log sqlite:///calls.db --by hour").count(":00 UTC") >= 20
