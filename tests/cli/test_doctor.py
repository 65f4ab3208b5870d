"""`splitsecond doctor`: targets that work and that do not, the stream corpus, the instrument's
error."""

import pytest
from tests.cli.conftest import Split
from tests.cli.peer import Peer, answer

from splitsecond.benchmark.runs import self_check
from splitsecond.cli.commands import doctor
from splitsecond.core.transport.timestamping import CardStamps
from splitsecond.simulator.process import RunningProvider


def test_a_target_that_works(split: Split, endpoint: list[str]) -> None:
    ended = split("doctor", *endpoint[:4], "--json", "-")
    assert ended.code == 0
    (target,) = ended.json["targets"]
    assert (target["works"], target["fault"]) == (True, "")
    assert set(target["first_token"]) >= {"kernel", "process"}
    assert target["first_token"]["kernel"] <= target["first_token"]["process"]
    assert ended.json["packet_clock"]["available"] is ("packets" in target["first_token"])
    cold, warm = target["observations"]
    assert cold["tcp_ns"] > 0
    assert warm["reused"] is True
    assert (target["left_after_ns"] is None) is (ended.json["send_delay_ms"]["n"] == 0)
    assert isinstance(ended.json["hardware_stamps"], list)


def test_a_target_of_another_api_format(split: Split, simulated: RunningProvider) -> None:
    at = ("--base-url", simulated.base_url, "--model", simulated.model)
    ended = split("doctor", *at, "--api-format", "anthropic", "--json", "-")
    assert ended.code == 0
    assert [seen["finish_reason"] for seen in ended.json["targets"][0]["observations"]] == [
        "max_tokens"
    ] * 2


def test_key_is_sent_in_the_header_of_the_api_format(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "my-secret-key")
    refusal = answer(
        401, '{"type": "error", "error": {"type": "authentication_error", "message": "no"}}'
    )
    with Peer(lambda asked: refusal) as peer:
        at = ("--base-url", peer.base_url, "--model", "m", "--api-key-env", "MY_KEY")
        assert split("doctor", *at, "--api-format", "anthropic").code == 1
        assert split("doctor", *at).code == 1
    messages, chat = peer.asked
    assert messages.headers["anthropic-version"] == "2023-06-01"
    assert (messages.headers["x-api-key"], "authorization" in messages.headers) == (
        "my-secret-key",
        False,
    )
    assert (chat.headers["authorization"], "x-api-key" in chat.headers) == (
        "Bearer my-secret-key",
        False,
    )


@pytest.mark.system
def test_failing_targets_report_why_beside_working_ones(split: Split) -> None:
    with Peer(lambda asked: answer(404, '{"error": {"message": "no model m"}}')) as peer:
        ended = split(
            "doctor", "sim/groq", "groq/x", "nope/x", "--base-url", peer.base_url, "--model", "m"
        )
    assert ended.code == 1
    assert "no key: GROQ_API_KEY is not set" in ended.words
    assert "unknown provider 'nope'" in ended.words
    assert "HTTP 404: no model m" in ended.words
    assert "Check the model's name" in ended.words


@pytest.mark.system
def test_doctor_measures_the_error_of_the_instrument(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = self_check.measure_instrument([4], rounds=1, tokens=5)
    assert [(level.streams, level.requests) for level in measured] == [(4, 8)]
    assert measured[0].token_error_ms.n == 8 * 5
    monkeypatch.setattr(doctor, "measure_instrument", lambda levels, **settings: measured)
    ended = split("doctor", "--levels", "4", "--json", "-")
    assert ended.json["instrument"][0]["streams"] == 4
    assert ended.code == (0 if measured[0].trusted else 1)


@pytest.mark.system
def test_several_servers_share_the_streams() -> None:
    (found,) = self_check.measure_instrument([4], rounds=1, tokens=5, servers=2)
    assert (found.streams, found.requests, found.failed, found.in_flight) == (4, 8, 0, 4)


def test_doctor_reports_send_delays_and_network_cards(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "loopback_send_delays_ns", lambda: [20_000] * 200)
    monkeypatch.setattr(
        doctor, "card_stamps", lambda: [CardStamps("eth0", able=True, enabled=False, reason="")]
    )
    ended = split("doctor", "nope/x")
    assert (
        "a request leaves the kernel 0.020 ms (p50) and 0.020 ms (p99) after it was written."
        in ended.words
    )
    assert "Hardware receive timestamps: available at eth0 (off)." in ended.words
    monkeypatch.setattr(doctor, "loopback_send_delays_ns", list)
    monkeypatch.setattr(doctor, "card_stamps", list)
    ended = split("doctor", "nope/x")
    assert "When requests leave this machine is not known" in ended.words
    assert "Hardware receive timestamps: not available (no network card)." in ended.words


@pytest.mark.parametrize("refusal", ["", "this process lacks the capability CAP_NET_RAW"])
def test_doctor_reports_the_packet_clock_and_how_to_allow_it(
    split: Split, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    monkeypatch.setattr(doctor, "packet_clock_refusal", lambda: refusal)
    ended = split("doctor", "nope/x", "--json", "-")
    assert ended.json["packet_clock"] == {"available": not refusal, "refusal": refusal}
    assert ("--cap-add NET_RAW" in ended.words) is bool(refusal)
    assert ("setcap cap_net_raw" in ended.words) is bool(refusal)


def test_a_clock_that_does_not_exist(split: Split) -> None:
    ended = split("doctor", "--clock", "sundial")
    assert ended.code == 2
    assert "clock: got 'sundial'" in ended.words
