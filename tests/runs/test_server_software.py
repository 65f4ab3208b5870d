"""The software that servers report, and the GPUs of the machine."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cases import each_case
from tests.http_server import Received, Response, http_server
from tests.report.invented import invented_run

from splitsecond.benchmark.report.rows import caveats
from splitsecond.benchmark.runs.environment import gpus, server_software
from splitsecond.core.upstream.spec import TargetSpec


@contextmanager
def serving(answers: Mapping[str, object]) -> Iterator[str]:
    """Serve these answers by path on a free port, and yield the base URL."""

    def respond(request: Received) -> Response:
        if request.path not in answers:
            return Response(status=404)
        return Response(json.dumps(answers[request.path]).encode())

    with http_server(respond) as url:
        yield f"{url}/v1"


@each_case(
    ("answers", "words"),
    [
        ({"/version": {"version": "0.11.2"}, "/v1/"
        "models": {"data": [{"id": "m", "owned_by": "vllm"}]}}, "vLLM "
        "0.11.2"),
        ({"/version": {"version": "1.0"}}, "version 1.0"),
        ({"/props": {"build_info": "b6900-abc"}, "/v1/models": {"data": []}}, "llama.cpp "
        "b6900-abc"),
        ({"/props": {"build_info": "b0-unknown"}}, "llama.cpp"),
        ({"/api/version": {"version": "0.12.6"}, "/version": {"version": "x"}}, "Ollama 0.12.6"),
        ({"/get_server_info": {"version": "0.5.4", "device": "cuda"}}, "SGLang 0.5.4 on cuda"),
        ({"/info": {"router": "tgi", "version": "3.3.6", "model_device_type": "cuda"}},
        "TGI 3.3.6 on cuda"),
        ({"/version": {"version": "1\n\x1b[31m" + "x" * 200}}, "version 1___31m" + "x" * 33),
        ({"/get_server_info": {"version": "0.5+cu124", "device": "<b>&"}}, "SGLang "
        "0.5+cu124 on _b__"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_servers_report_their_software(answers: Mapping[str, object], words: str) -> None:
    with serving(answers) as url:
        assert server_software({"mine": TargetSpec(name="mine", base_url=url, model="m")}) == {
            "mine": words
        }


@pytest.mark.parametrize(
    "answers", [{}, {"/version": "0.1"}, {"/info": {"version": "a site"}}, {"/props": {}}]
)
def test_servers_without_software_information_are_absent(answers: Mapping[str, object]) -> None:
    with serving(answers) as url:
        assert server_software({"mine": TargetSpec(name="mine", base_url=url, model="m")}) == {}


def test_providers_and_simulators_get_no_software_request() -> None:
    specs = {
        "groq/x": TargetSpec(name="groq/x", base_url="https://api.groq.invalid/v1", model="x"),
        "sim/groq": TargetSpec(name="sim/groq", base_url="http://127.0.0.1:9/v1", model="x"),
    }
    assert server_software(specs) == {}


def test_the_gpus_of_a_machine(tmp_path: Path) -> None:
    assert gpus(tmp_path) == []
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text(
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 93\n"
        )
    assert gpus(tmp_path) == ["NVIDIA H100 80GB HBM3"] * 2


def test_report_names_server_software_and_gpus() -> None:
    run, _ = invented_run()
    run.environment = {"servers": {"mine": "vLLM 0.11.2"}, "gpus": ["NVIDIA H100"] * 2}
    assert (
        caveats(run)[0] == "Server software: mine: vLLM 0.11.2; GPU of this machine: NVIDIA H100."
    )
    run.environment = {"gpus": ["NVIDIA H100"]}
    assert caveats(run)[0] == "GPU of this machine: NVIDIA H100."
