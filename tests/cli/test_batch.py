"""`splitsecond batch` against a simulated provider: answered, resumed, stopped, refused."""

import json
from pathlib import Path

import pytest
from openai.types.chat import ChatCompletion
from tests.cli.conftest import Split

from splitsecond.simulator.process import Running

CONFIGURATION = """
providers:
  quick: {{base_url: "{url}", price: {{input: 1, output: 2}}}}
  gone: {{base_url: "http://127.0.0.1:9/v1"}}
routes: {{r: {{policy: 'fallback("gone/m", "quick/{model}")'}}}}
log: sqlite:///gateway.db
"""


@pytest.fixture
def requests(split: Split, simulated: Running) -> str:
    Path("splitsecond.yaml").write_text(CONFIGURATION.format(url=simulated.base_url, model=simulated.model))
    body = {"model": "r", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
    lines = [
        {"custom_id": f"{n}", "params": body} if n % 3 == 2 else {"custom_id": f"{n}", "body": body} for n in range(30)
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


def test_what_was_stopped_goes_on(split: Split, requests: str) -> None:
    stopped = split("batch", requests, "-c", "2", "--max-cost", "0.0001")
    assert stopped.code == 1
    assert "allowed were $0.000100. The same command goes on from here." in stopped.out
    before = answers()
    assert 0 < len(before) < 30
    with Path("requests.answers.jsonl").open("ab") as file:
        file.write(b'{"custom_id":"29","resp')  # and it was killed while it wrote
    again = split("batch", requests, "-c", "16", "--json", "-")
    assert (again.code, again.json["earlier"], again.json["answered"]) == (0, len(before), 30 - len(before))
    assert len(answers()) == 30
    assert split("batch", requests).out.startswith("0 of 30 requests answered")


def test_what_fails_for_good_is_kept_apart(split: Split, requests: str) -> None:
    with Path(requests).open("a") as file:
        file.write('\n{"custom_id":"bad","body":{"model":"gone/m","messages":[]}}\n')
    ended = split("batch", requests, "-c", "16")
    assert ended.code == 1
    assert "1 request was refused for good." in ended.out
    assert len(answers()) == 30
    (line,) = Path("requests.answers.refused.jsonl").read_text().splitlines()
    refused = json.loads(line)
    assert (refused["custom_id"], refused["response"]["status_code"]) == ("bad", 502)
    assert refused["response"]["body"]["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.jsonl"], "cannot read none.jsonl"),
        (["requests.jsonl", "--model", "nothing"], "line 1, '0': there is no model 'nothing' for you here"),
        (["requests.jsonl", "--out", "splitsecond.yaml"], "splitsecond.yaml, line 1 is no answer of a batch"),
        (["requests.jsonl", "--out", "no/such/folder"], "cannot write to no/such/folder"),
        (["requests.jsonl", "--max-cost", "0"], "--max-cost: got 0.0, expected more than 0 US dollars"),
        (["requests.jsonl", "--config", "none.yaml"], "none.yaml"),
    ],
)
@pytest.mark.usefixtures("requests")
def test_wrong_use_is_said_before_anything_is_sent(split: Split, arguments: list[str], words: str) -> None:
    ended = split("batch", *arguments)
    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_a_refused_key_stops_it_in_whole_sentences(split: Split, requests: str) -> None:
    configured = Path("splitsecond.yaml").read_text()
    refusing = configured.replace("price: {", "headers: {x-splitsecond-fault: '401'}, price: {")
    Path("splitsecond.yaml").write_text(refusing)
    ended = split("batch", requests, "--model", "quick/quick")
    assert ended.code == 1
    assert "30 not asked: " in ended.out
    assert ". The same command goes on from here." in ended.out
    assert ".." not in ended.out
