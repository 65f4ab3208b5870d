"""Targets that fail before or while they are measured: the message to the user, and no request is
sent twice."""

import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from tests.cli.conftest import Ended, Split
from tests.cli.peer import Peer, ReceivedRequest, answer, stream

from splitsecond.log.store.folder import read_observations

pytestmark = pytest.mark.system

FEW = ("-c", 2, "-n", 8, "--input-tokens", 64, "--output-tokens", 8, "--no-html")
KEY = "sk-very-secret-0123456789"
PAGE = "<!doctype html><html><body>Welcome</body></html>"


def bench(split: Split, peer: Peer, *more: object) -> Ended:
    named = ("--base-url", peer.base_url, "--model", "m", "--name", "peer")
    return split("bench", *named, *FEW, "--quick", "--out", "run", *more)


@pytest.mark.parametrize(
    ("say", "code", "words"),
    [
        pytest.param(
            lambda asked: answer(401, '{"error": {"message": "no such key"}}'),
            1,
            ("HTTP 401: no such key", "Check the API key"),
            id="wrong key",
        ),
        pytest.param(
            lambda asked: answer(404, '{"error": {"message": "The model `m` does not exist"}}'),
            1,
            ("HTTP 404: The model `m` does not exist", "Check the model's name and the base URL"),
            id="wrong model",
        ),
        pytest.param(
            lambda asked: answer(200, PAGE, "text/html"),
            1,
            ("neither an event stream nor JSON", "The response is a web page, not an API"),
            id="HTML instead of JSON",
        ),
        pytest.param(
            lambda asked: answer(404, PAGE, "text/html"),
            1,
            ("The response is a web page, not an API",),
            id="HTML with a 404",
        ),
        pytest.param(
            lambda asked: answer(308, ""), 1, ("HTTP 308", "check the base URL"), id="moved"
        ),
        pytest.param(
            lambda asked: answer(200, "{}"),
            1,
            ("the body is JSON without any choices",),
            id="other JSON",
        ),
        pytest.param(
            lambda asked: b"SSH-2.0-OpenSSH\r\n",
            1,
            ("not HTTP/1", "the right port"),
            id="another protocol",
        ),
        pytest.param(lambda asked: b"HTTP/1.1 200", 1, ("closed inside the headers",), id="closed"),
        pytest.param(
            lambda asked: answer(
                400, '{"error": {"message": "at most 9", "code": "context_length_exceeded"}}'
            ),
            2,
            ("HTTP 400: at most 9", "Shorten the prompt"),
            id="prompt too long",
        ),
    ],
)
def test_permanent_fault_of_the_first_request_ends_the_run(
    split: Split,
    tmp_path: Path,
    say: Callable[[ReceivedRequest], bytes],
    code: int,
    words: tuple[str, ...],
) -> None:
    with Peer(say) as peer:
        ended = bench(split, peer)
    assert (ended.code, ended.out) == (code, "")
    assert ended.complaint.startswith("splitsecond: peer: ")
    assert all(each in ended.complaint for each in words)
    assert len(peer.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_refused_connection_ends_the_run(split: Split, tmp_path: Path) -> None:
    ended = split("bench", "--base-url", "http://127.0.0.1:1/v1", "--model", "m", *FEW)
    assert (ended.code, ended.out) == (1, "")
    assert "127.0.0.1:1/m: cannot connect to http://127.0.0.1:1" in ended.complaint
    assert "Connection refused" in ended.complaint
    assert "Is the server running, and is the port right?" in ended.complaint
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_silent_target_ends_the_run_after_the_timeout(split: Split) -> None:
    with Peer(lambda asked: b"") as peer:
        ended = bench(split, peer, "--timeout", 1)
    assert (ended.code, ended.out) == (1, "")
    assert "no answer for 1,000 ms" in ended.complaint
    assert "a longer timeout" in ended.complaint


def test_untrusted_certificate_ends_the_run(split: Split) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with Peer(stream, tls=context) as peer:
        ended = bench(split, peer)
    assert (ended.code, ended.out) == (1, "")
    assert "the certificate of 127.0.0.1 is not trusted" in ended.complaint
    assert "SSL_CERT_FILE" in ended.complaint
    assert peer.asked == []


def test_a_header_that_only_the_transport_may_set(split: Split) -> None:
    with Peer(stream) as peer:
        ended = bench(split, peer, "--header", "Content-Length: 3")
    assert ended.code == 2
    assert "set by the transport" in ended.complaint


def test_where_no_target_answers_all_are_named(split: Split) -> None:
    with Peer(lambda asked: b"HTTP/1.1 200") as peer:
        ended = bench(split, peer, "sim/groq", "--header", "x-splitsecond-fault: reset")
    assert (ended.code, ended.out) == (1, "")
    note, complaint = ended.err.splitlines()
    assert complaint.startswith("splitsecond: sim/groq: ")
    assert note.startswith("peer: the connection was closed inside the headers")


def test_one_wrong_target_of_two_ends_the_run_before_any_load(split: Split) -> None:
    with Peer(lambda asked: answer(404, "{}")) as peer:
        ended = bench(split, peer, "sim/groq")
    assert (ended.code, ended.out) == (1, "")
    assert ended.complaint.startswith("splitsecond: peer: HTTP 404")


def test_unreachable_target_keeps_its_row(split: Split, quick_profile: Path) -> None:
    nobody = ("--base-url", "http://127.0.0.1:1/v1", "--model", "m")
    ended = split("bench", f"sim/{quick_profile}", *nobody, *FEW, "--quick", "--json", "-")
    assert ended.code == 1
    reached, refused = ended.json["conditions"]
    assert (reached["target"], reached["errors"]) == (f"sim/{quick_profile}", 0)
    assert refused["error_kinds"] == {"refused": refused["requests"]}
    assert refused["ttft_ms"]["p50"] is None
    assert "refused: cannot connect to http://127.0.0.1:1" in ended.words


def test_429_responses_are_counted_and_not_retried(split: Split, tmp_path: Path) -> None:
    def say(asked: ReceivedRequest) -> bytes:
        return (
            answer(429, '{"error": {"message": "slow down"}}')
            if asked.number % 2
            else stream(asked)
        )

    with Peer(say) as peer:
        ended = bench(split, peer, "--json", "-", "--warmup", 0)
    assert ended.code == 0
    (row,) = ended.json["conditions"]
    observations = read_observations(tmp_path / "run")
    # cool-downs, some of them before they were sent
    ended_early = sum(o.outcome == "cancelled" for o in observations)
    assert len(observations) - ended_early <= len(peer.asked) <= len(observations)
    measured = Counter(
        o.fault.kind if o.fault else "ok" for o in observations if o.role == "measured"
    )
    assert (row["requests"], row["errors"]) == (8, measured["http_429"])
    assert row["error_kinds"].keys() == {"http_429"}
    assert 2 <= row["errors"] <= 6
    assert f"{row['errors']} × http_429: HTTP 429: slow down" in ended.words


@pytest.mark.parametrize("status", [429, 503])
def test_always_busy_provider_is_measured(split: Split, status: int) -> None:
    with Peer(lambda asked: answer(status, "")) as peer:
        ended = bench(split, peer, "--json", "-")
    assert ended.code == 1
    (row,) = ended.json["conditions"]
    assert row["error_kinds"] == {f"http_{status}": 8}


def test_a_key_is_sent_and_never_repeated(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEER_KEY", KEY)

    def say(asked: ReceivedRequest) -> bytes:
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        wrong = f'{{"error": {{"message": "key {KEY} is out of credit"}}}}'
        in_band = answer(200, f"data: {wrong}\n\n", "text/event-stream")
        return (
            stream(asked)
            if asked.number < 3
            else in_band
            if asked.number % 2
            else answer(500, wrong)
        )

    with Peer(say) as peer:
        ended = bench(split, peer, "--api-key-env", "PEER_KEY", "--json", "-")
    assert ended.code == 1
    kept = "".join(path.read_text() for path in (tmp_path / "run").iterdir())
    for text in (ended.words, kept):
        assert KEY not in text
        assert "key [key] is out of credit" in text
    with Peer(lambda asked: answer(401, f"not {KEY}")) as peer:
        assert (
            "HTTP 401: not [key]"
            in bench(split, peer, "--api-key-env", "PEER_KEY", "--out", "other").complaint
        )


def test_a_key_in_a_url_is_not_stored(split: Split, tmp_path: Path) -> None:
    with Peer(stream) as peer:
        url = f"{peer.base_url}?api-version=1&key=SECRET"
        ended = split(
            "bench", "--base-url", url, "--model", "m", *FEW, "--out", "run", "--json", "out.json"
        )
    assert ended.code == 0
    kept = (
        "".join(path.read_text() for path in (tmp_path / "run").iterdir())
        + (tmp_path / "out.json").read_text()
    )
    assert "SECRET" not in kept + ended.words
    assert "?api-version=1&key=[key]" in kept


def test_a_key_in_a_header_is_not_stored(split: Split, tmp_path: Path) -> None:
    with Peer(stream) as peer:
        ended = bench(
            split,
            peer,
            "--header",
            f"X-Api-Key: {KEY}",
            "--header",
            "x-team: speed",
            "--json",
            "out.json",
        )
    assert ended.code == 0
    assert {asked.headers["x-api-key"] for asked in peer.asked} == {KEY}
    kept = (tmp_path / "run" / "run.json").read_text()
    assert KEY not in kept + (tmp_path / "out.json").read_text() + ended.words
    assert "[key]" in kept
    assert "speed" in kept


@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
@pytest.mark.parametrize(
    "odd", [10**15, 10**400, -1, "a dozen"], ids=["large", "huge", "negative", "text"]
)
def test_absurd_usage_is_replaced_by_an_estimate_and_noted(
    split: Split, name: str, odd: object
) -> None:
    with Peer(lambda asked: stream(asked, counts={name: odd})) as peer:
        ended = bench(split, peer, "--price", "1,1", "--json", "-")
    assert ended.code == 0
    (row,) = ended.json["conditions"]
    assert (row["token_source"], row["output_tokens"], row["errors"]) == ("estimate", 8, 0)
    assert row["input_tokens"] is None
    assert "8 of 8 responses report token counts that cannot be true" in " ".join(row["notes"])
    assert "input length not verified" in ended.words
    assert "NaN" not in ended.out
    assert split("report", "run", "--no-html").code == 0


def test_missing_usage_counts_events_and_estimates_the_prompt(split: Split) -> None:
    with Peer(lambda asked: stream(asked, usage=False)) as peer:
        ended = bench(split, peer, "--json", "-")
    assert ended.code == 0
    (row,) = ended.json["conditions"]
    assert (row["token_source"], row["output_tokens"], row["errors"]) == ("events", 8, 0)
    assert "input length not verified: the endpoint reports no usage; estimated at" in ended.words


def test_note_names_a_provider_that_ignores_max_tokens(split: Split) -> None:
    with Peer(lambda asked: stream(asked, tokens=30)) as peer:
        ended = bench(split, peer, "--json", "-")
    (row,) = ended.json["conditions"]
    assert (ended.code, row["output_tokens"]) == (0, 30)
    assert any("30 tokens" in note and "8" in note for note in row["notes"])
