"""The table of clients in the documents is what the stored results say, and the reader of requests
is strict."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.clients.matrix.clients import CLIENTS
from tests.clients.matrix.features import FEATURES, Feature
from tests.clients.matrix.judge import Evidence, judge
from tests.clients.matrix.received import read_chat
from tests.clients.matrix.relay import Exchange
from tests.clients.matrix.table import BEGIN, END, PAGE, rendered, stored

from splitsecond.simulator.process import ReceivedRequest

TEXT = next(feature for feature in FEATURES if feature.name == "text")
SEED = next(feature for feature in FEATURES if feature.name == "seed")
COUNTED = next(feature for feature in FEATURES if feature.name == "usage-streamed")


def test_table_in_the_documents_is_that_of_the_results() -> None:
    _, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    assert rest.partition(END)[0] == rendered(stored())


def test_results_have_every_client_and_known_features() -> None:
    names = {feature.name for feature in FEATURES}
    assert [client.name for client in stored().clients] == [client.name for client in CLIENTS]
    assert all(cell.feature in names for client in stored().clients for cell in client.cells)


def test_most_cells_pass_and_none_is_wrong() -> None:
    states = [cell.state for client in stored().clients for cell in client.cells]
    assert states.count("passes") >= 3_400
    assert states.count("passes") / len(states) > 0.9
    assert "wrong" not in states


@pytest.mark.parametrize("data", ["-_--", "aGk", "a b="])
def test_base64_that_is_not_standard_is_an_error(data: str) -> None:
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    with pytest.raises(ValueError, match=r"padding|alphabet|base64|data"):
        read_chat("openai", {"messages": [{"role": "user", "content": [part]}]}, "")


def verdict(
    feature: Feature, result: dict[str, Any], response: bytes = b"", left_out: str = ""
) -> str:
    evidence = Evidence([], Exchange(bytearray(response), left_out))
    return judge(feature, "openai", result, evidence).state


def test_right_answer_without_a_request_is_wrong() -> None:
    assert verdict(TEXT, {"answer": TEXT.answer}) == "wrong"


def test_refusal_counts_only_with_the_name_of_the_field() -> None:
    failed = {"failure": {"kinds": ["BadRequestError"], "message": "refused", "status": 400}}
    named = b'HTTP/1.1 400 Bad Request\r\n\r\n{"error": {"message": "seed 1 cannot be translated"}}'
    assert verdict(SEED, failed, named) == "refused"
    assert verdict(SEED, failed, named.replace(b"seed", b"that")) == "wrong"
    assert verdict(SEED, failed, named.replace(b"400", b"502")) == "wrong"


def test_field_that_a_header_names_is_left_out() -> None:
    assert verdict(SEED, {"answer": SEED.answer}, left_out="seed") == "left out"
    assert verdict(SEED, {"answer": SEED.answer}, left_out="user") == "wrong"


def test_count_that_a_header_calls_an_estimate_is_estimated() -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    received = ReceivedRequest(
        1, datetime.now(UTC), "POST", "/v1/chat", "", {}, "openai", chat, "m", True, 200, "r"
    )

    def state(estimated: bool, *usage: int) -> str:
        evidence = Evidence([received], Exchange(estimated=estimated), tokens=(19, 6))
        return judge(
            COUNTED, "openai", {"answer": {**COUNTED.answer, "usage": list(usage)}}, evidence
        ).state

    assert [state(True, 15, 6), state(False, 15, 6)] == ["estimated", "wrong"]
    assert [state(True, 0, 6), state(True, 15, 0)] == ["wrong", "wrong"]
