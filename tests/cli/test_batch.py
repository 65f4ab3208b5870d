"""`splitsecond batch` against a simulated provider: answered, resumed, stopped, refused."""

import json
import signal
from pathlib import Path

import pytest
from openai.types.chat import ChatCompletion
from tests.cli.conftest import Split

from splitsecond.benchmark.runs.batch import BatchSession
from splitsecond.routing.batch.run import BatchOutcome
from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system

CONFIGURATION = """
providers:
  quick: {{base_url: "{url}", price: {{input_usd: 1, output_usd: 2}}}}
  gone: {{base_url: "http://127.0.0.1:9/v1"}}
routes: {{r: {{policy: 'fallback("gone/m", "quick/{model}")'}}}}
log: sqlite:///gateway.db
"""


@pytest.fixture
def requests(split: Split, simulated: RunningProvider) -> str:
    Path("splitsecond.yaml").write_text(
        CONFIGURATION.format(url=simulated.base_url, model=simulated.model)
    )
    body = {"model": "r", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
    lines = [
        {"custom_id": f"{n}", "params": body} if n % 3 == 2 else {"custom_id": f"{n}", "body": body}
        for n in range(30)
    ]
    Path("requests.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return "requests.jsonl"


def answers() -> dict[str, dict[str, object]]:
    lines = Path("requests.answers.jsonl").read_text().splitlines()
    found = {line["custom_id"]: line for line in map(json.loads, lines)}
    assert len(found) == len(lines)
    return found


def test_every_request_is_answered_through_the_routes(split: Split, requests: str) -> None:
    ended = split("batch", requests, "-c", "16", "--json", "-")
    assert (ended.code, ended.json["answered"], ended.json["refused"]) == (0, 30, 0)
    found = answers()
    assert set(found) == {str(n) for n in range(30)}
    assert Path("requests.answers.jsonl").stat().st_mode & 0o777 == 0o600
    for name, answer in found.items():
        response = answer["response"]
        assert isinstance(response, dict)
        assert (response["status_code"], answer["error"]) == (200, None)
        if int(name) % 3 == 2:
            assert response["body"]["type"] == "message"
        else:
            assert ChatCompletion.model_validate(response["body"]).choices[0].message.content
    tokens = ended.json["input_tokens"] * 1 + ended.json["output_tokens"] * 2
    assert ended.json["output_tokens"] == 300
    assert ended.json["cost_usd"] == pytest.approx(tokens / 1e6)
    assert set(ended.json["attempts"]) == {"gone/m", "quick/quick"}
    assert not Path("requests.answers.refused.jsonl").exists()
    # The gateway's log has them, so that the batch, too, teaches its speeds.
    graded = split("speed", "--least", "1", "--json", "-").json["speeds"]
    assert {each["name"]: each["answered"] for each in graded} == {"quick/quick": 30, "gone/m": 0}


def test_the_cost_includes_attempts_that_were_closed(
    split: Split, requests: str, simulated: RunningProvider
) -> None:
    """Two targets race to the end of each answer. The loser is closed before its tokens are
    counted.

    On a busy machine some losers are closed before their request is sent. They cost nothing.
    """
    server = f'{{base_url: "{simulated.base_url}", price: {{input_usd: 1, output_usd: 2}}}}'
    race = f'race("one/{simulated.model}", "other/{simulated.model}", by="total")'
    slow = server.replace(
        "{base_url", '{headers: {x-splitsecond-fault: "stall; after=1"}, base_url'
    )
    Path("splitsecond.yaml").write_text(
        f"providers: {{one: {server}, other: {slow}}}\nroutes: {{r: {{policy: '{race}'}}}}\n"
    )
    ended = split("batch", requests, "--json", "-")
    found = ended.json
    assert (ended.code, found["answered"], sum(found["attempts"].values()), found["unpriced"]) == (
        0,
        30,
        60,
        0,
    )
    assert 0 < found["estimated"] <= 30
    counted = found["input_tokens"] * 1e-6 + found["output_tokens"] * 2e-6
    prompt = found["input_tokens"] / found["answered"]
    assert found["low_usd"] == pytest.approx(counted + found["estimated"] * prompt * 1e-6)
    # whether closing stops the bill is unknown
    assert found["low_usd"] <= found["cost_usd"] <= found["high_usd"]
    assert found["high_usd"] > found["low_usd"]
    assert found["usd_per_million"] is None
    assert f"The cost of {found['estimated']} attempts is estimated: closed early" in ended.err


def test_stopped_batch_continues_with_the_same_command(split: Split, requests: str) -> None:
    stopped = split("batch", requests, "-c", "2", "--max-cost", "0.0001")
    assert stopped.code == 1
    assert "the limit is $0.000100. The same command continues from here." in stopped.out
    before = answers()
    assert 0 < len(before) < 30
    with Path("requests.answers.jsonl").open("ab") as file:
        file.write(b'{"custom_id":"29","resp')  # and it was killed while it wrote
    again = split("batch", requests, "-c", "16", "--json", "-")
    assert (again.code, again.json["earlier"], again.json["answered"]) == (
        0,
        len(before),
        30 - len(before),
    )
    assert len(answers()) == 30
    assert split("batch", requests).out.startswith("0 of 30 requests answered")


def test_signal_ends_the_batch_and_keeps_its_responses(
    split: Split, requests: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = BatchSession._put

    def putting(session: BatchSession, outcome: BatchOutcome) -> None:
        put(session, outcome)
        if session._answered == 3:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(BatchSession, "_put", putting)
        stopped = split("batch", requests, "-c", "2", "--json", "-")
    assert stopped.code == 143
    assert (stopped.json["answered"], stopped.json["stopped"]) == (len(answers()), "interrupted")
    assert 3 <= len(answers()) < 30
    assert split("batch", requests, "-c", "16").code == 0
    assert len(answers()) == 30


def test_permanently_refused_requests_go_to_their_own_file(split: Split, requests: str) -> None:
    with Path(requests).open("a") as file:
        file.write('\n{"custom_id":"bad","body":{"model":"gone/m","messages":[]}}\n')
    ended = split("batch", requests, "-c", "16")
    assert ended.code == 1
    assert "1 request was refused permanently." in ended.out
    assert len(answers()) == 30
    (line,) = Path("requests.answers.refused.jsonl").read_text().splitlines()
    refused = json.loads(line)
    assert (refused["custom_id"], refused["response"]["status_code"]) == ("bad", 502)
    assert refused["response"]["body"]["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.jsonl"], "cannot read none.jsonl"),
        (["requests.jsonl", "--model", "nothing"], "line 1, '0': unknown model 'nothing'"),
        (
            ["requests.jsonl", "--out", "splitsecond.yaml"],
            "splitsecond.yaml, line 1 is not a result of a batch",
        ),
        (["requests.jsonl", "--out", "no/such/folder"], "cannot write to no/such/folder"),
        (
            ["requests.jsonl", "--max-cost", "0"],
            "--max-cost: got 0.0, expected more than 0 US dollars",
        ),
        (["requests.jsonl", "--config", "none.yaml"], "none.yaml"),
    ],
)
@pytest.mark.usefixtures("requests")
def test_wrong_use_is_reported_before_any_request(
    split: Split, arguments: list[str], words: str
) -> None:
    ended = split("batch", *arguments)
    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_refused_key_stops_the_batch_with_its_reason(split: Split, requests: str) -> None:
    configured = Path("splitsecond.yaml").read_text()
    refusing = configured.replace("price: {", "headers: {x-splitsecond-fault: '401'}, price: {")
    Path("splitsecond.yaml").write_text(refusing)
    ended = split("batch", requests, "--model", "quick/quick")
    assert ended.code == 1
    assert "30 not sent: " in ended.out
    assert ". The same command continues from here." in ended.out
    assert ".." not in ended.out
