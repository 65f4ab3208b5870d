"""A rejected key or an unserved model is reported to the operator once, and its recovery too."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from msgspec import structs
from tests.gateway.conftest import ServedGateway, gateway, heard, ready
from tests.policies.attempts import answered, failed
from tests.waiting import WITHIN_S

from splitsecond.core.errors import CallerFault, Fault, ProviderFault
from splitsecond.gateway.http.advice import Advice, OperatorNotices
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.target_states import TargetStates

TEXT = """
providers: {ours: {base_url: http://10.0.0.5/v1, api_key: env:OURS}, free: {base_url: http://10.0.0.6/v1}}
routes:
  fast: {policy: 'race("ours/llama", "ours/llama-3", "free/llama")'}
"""
KEY = (
    "ours rejects its key, env:OURS at providers.ours.api_key of a.yaml (HTTP 401). Used by "
    "routes.fast of a.yaml."
)
AGAIN = "ours accepts its key again."
MODEL = (
    "ours/llama is not served (HTTP 404). Used by routes.fast of a.yaml. Did you mean ours/llama-3?"
)


class Worker:
    """The target states and notices of a worker. `said` receives its messages."""

    def __init__(self, said: list[str], folder: Path | None = None) -> None:
        settings = structs.replace(read(TEXT, {"OURS": "sk-ours-1234"}), source=Path("a.yaml"))
        facts = TargetDirectory(settings)
        self.known_states = TargetStates(facts.facts)
        self.notices = OperatorNotices(self.known_states, said.append, folder)
        self.advice = Advice(settings, facts)

    def refused(self, status: int, target: str = "ours/llama", message: str = "no") -> None:
        kind = "key_refused" if status == 401 else f"http_{status}"
        self.failed(ProviderFault(message, kind=kind, phase="head", status=status), target)

    def failed(self, fault: Fault, target: str = "ours/llama") -> None:
        attempt = failed(fault, target=target)
        self.known_states.observe(attempt)
        self.notices.observe(attempt, self.advice)

    def answered(self, target: str = "ours/llama") -> None:
        attempt = answered(target=target)
        self.known_states.observe(attempt)
        self.notices.observe(attempt, self.advice)


def test_rejected_key_is_reported_once_until_it_works_again() -> None:
    said: list[str] = []
    worker = Worker(said)
    for target in ("ours/llama", "ours/llama-3", "ours/llama", "ours/a-clients-own"):
        worker.refused(401, target)
    assert said == [f"{KEY} It gets no requests until that changes."]
    worker.answered("free/llama")
    assert said[1:] == []
    worker.answered("ours/llama-3")
    worker.answered("ours/llama-3")
    assert said[1:] == [AGAIN]
    worker.refused(401)
    assert said[2:] == [KEY], "it has worked, so it is tried again by and by"


def test_server_that_requires_a_key_is_reported_by_name() -> None:
    said: list[str] = []
    Worker(said).refused(401, "free/llama")
    assert said[0].startswith("free rejects requests without a key (HTTP 401).")


def test_unserved_model_is_reported_once_with_the_nearest_name() -> None:
    said: list[str] = []
    worker = Worker(said)
    for _ in range(3):
        worker.refused(404)
    worker.refused(404, "ours/a-clients-own")
    assert said == [MODEL]
    worker.answered("ours/llama-3")
    worker.answered()
    assert said[1:] == ["ours/llama is served again."]


def test_failures_of_single_requests_are_not_reported() -> None:
    said: list[str] = []
    worker = Worker(said)
    worker.answered()
    worker.refused(404)  # it has just served others: this is about the request
    worker.refused(429, "ours/llama-3")
    worker.refused(500, "ours/llama-3")
    worker.failed(
        CallerFault("HTTP 400: no such tool", kind="http_400", phase="head", status=400),
        "ours/llama-3",
    )
    assert said == []


@pytest.mark.parametrize("status", [401, 402])
def test_reports_do_not_contain_the_providers_message(status: int) -> None:
    said: list[str] = []
    Worker(said).refused(status, message="you asked: my secret prompt")
    assert len(said) == 1
    assert "prompt" not in said[0]


def test_lasting_problem_is_reported_again_after_a_hot_reload() -> None:
    said: list[str] = []
    worker = Worker(said)
    worker.refused(404)
    worker.notices.renew()
    worker.refused(404)
    assert said == [MODEL, MODEL]


def test_target_outside_the_configuration_is_not_reported() -> None:
    said: list[str] = []
    Worker(said).refused(401, "mars/llama")
    assert said == []


def test_one_of_several_workers_reports_a_problem(tmp_path: Path) -> None:
    said: list[str] = []
    workers = [Worker(said, tmp_path) for _ in range(3)]
    for worker in workers:
        worker.refused(404)
    assert said == [MODEL]
    for worker in workers:
        worker.answered()
    assert said[1:] == ["ours/llama is served again."]
    assert list(tmp_path.iterdir()) == []
    gone = Worker(said, tmp_path / "gone")
    gone.refused(404)
    assert said[2:] == [MODEL], "reported, because no mark can be left"


def test_gateway_of_two_workers_reports_a_problem_once(
    tmp_path: Path, served: ServedGateway
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(f"""
listen: {{workers: 2}}
seeds: [none-*]
providers: {{sim: {{base_url: {served.simulated.base_url}}}}}
routes: {{fast: {{policy: '"sim/quick"'}}, slow: {{policy: '"sim/quik"'}}}}
""")
    with gateway(tmp_path) as process:
        url = ready(process)
        assert "splitsecond.yaml: seeds: no folder matches" in heard(process)
        for model, status in (
            ("slow", 502),
            ("slow", 502),
            ("slow", 502),
            ("slow", 502),
            ("fast", 200),
        ):
            assert asked(url, model) == status  # each on a connection of its own, at either worker
        assert heard(process) == (
            "splitsecond: sim/quik is not served (HTTP 404). Used by routes.slow of "
            "splitsecond.yaml. "
            "Did you mean sim/quick?\n"
        )
        process.terminate()
        assert process.stderr is not None
        assert b"not served" not in process.stderr.read(), "reported once"


def asked(url: str, model: str) -> int:
    body = f'{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}'.encode()
    request = urllib.request.Request(
        f"{url}/chat/completions", body, {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
