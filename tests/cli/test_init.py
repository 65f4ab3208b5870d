"""`splitsecond init`: what it finds, what it writes, and that the commands it prints work."""

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import each_case
from tests.cli.conftest import Split
from tests.golden import Golden
from tests.http_server import Received, Response, http_server
from tests.processes import Process
from typer.testing import CliRunner

from splitsecond.cli.agents import AGENTS, agent_settings
from splitsecond.cli.app import app
from splitsecond.core.catalog.model import CatalogModel
from splitsecond.core.catalog.provider import Provider, names, provider
from splitsecond.routing.configuration import discovery
from splitsecond.routing.configuration.discovery import find_servers
from splitsecond.routing.configuration.reading import load
from splitsecond.routing.construction.expression import targets

LITELLM = """
model_list:
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY, rpm: 6}
    model_info: {mode: chat}
  - model_name: gpt-4o
    litellm_params: {model: azure/mine, api_base: https://x.openai.azure.com/,
      api_key: os.environ/AZURE_KEY}
  - model_name: gpt-4o
    litellm_params: {model: azure/another, api_base: os.environ/AZURE_EU, api_version: v}
  - model_name: embedding
    litellm_params: {model: text-embedding-3-small}
  - model_name: deployed
    litellm_params: {model: azure/x, api_base: "https://x.openai.azure.com/openai/deployments/x"}
  - model_name: llama
    litellm_params: {model: groq/llama-3.3-70b-versatile, weight: 3}
  - model_name: llama
    litellm_params: {model: together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo,
      api_key: sk-literal-secret-0123}
  - model_name: claude
    litellm_params: {model: claude-sonnet-4-5, api_key: os.environ/MY_CLAUDE_KEY}
  - model_name: own/vllm
    litellm_params: {model: hosted_vllm/qwen3, api_base: "http://10.0.0.5:8000/v1"}
  - model_name: other
    litellm_params: {model: openai/mine, api_base: "http://10.0.0.6:9000/v1/", api_key: none}
  - model_name: "openai/*"
    litellm_params: {model: "openai/*"}
  - model_name: claude-aws
    litellm_params: {model: bedrock/anthropic.claude-v2}
router_settings:
  num_retries: 2
  fallbacks: [{gpt-4o: [claude, absent]}]
  model_group_alias: {best: claude}
litellm_settings: {drop_params: true}
general_settings: {master_key: os.environ/LITELLM_MASTER_KEY}
"""
KEYS = (
    "OPENAI_API_KEY",
    "AZURE_KEY",
    "GROQ_API_KEY",
    "TOGETHER_API_KEY",
    "MY_CLAUDE_KEY",
    "OPENROUTER_API_KEY",
)


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider's key in the environment and no server on this machine."""
    for variable in {variable for name in names() for variable in provider(name).api_key_env}:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(discovery, "find_servers", list)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_without_a_key_and_a_server_the_targets_are_simulated(
    split: Split, tmp_path: Path, golden: Golden
) -> None:
    ended = split("init", "--yes")
    assert ended.code == 0
    golden.check(ended.out, "printed")
    golden.check((tmp_path / "splitsecond.yaml").read_text(), "written")
    settings = load(tmp_path / "splitsecond.yaml", {})
    assert targets(settings.routes["default"]) == ["sim/groq", "sim/together"]
    assert [key.name for key in settings.keys] == ["me"]
    assert mode(tmp_path / "splitsecond.key") == 0o600
    assert (tmp_path / "splitsecond.key").read_text().strip() not in (
        tmp_path / "splitsecond.yaml"
    ).read_text()


def listed(name: str, base_url: str, *models: str) -> Provider:
    return Provider(
        name=name, title=name, base_url=base_url, models={each: CatalogModel() for each in models}
    )


def test_servers_come_before_providers_with_a_key(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-0123456789")
    found = [
        listed("vllm", "http://127.0.0.1:8000/v1", "qwen:3#x", "other"),
        listed("local-8080", "http://127.0.0.1:8080/v1", "mine"),
    ]
    monkeypatch.setattr(discovery, "find_servers", lambda: found)
    ended = split("init")  # standard input is no terminal, so nothing is asked
    assert ended.code == 0, ended.err
    assert "gsk-" not in ended.out + (tmp_path / "splitsecond.yaml").read_text()
    settings = load(tmp_path / "splitsecond.yaml", dict(os.environ))
    groq = f"groq/{provider('groq').default_model}"
    assert targets(settings.routes["default"]) == ["vllm/qwen:3#x", "local-8080/mine", groq]
    assert settings.spec("local-8080/mine").base_url == "http://127.0.0.1:8080/v1"


def test_init_keeps_the_configuration_without_force(split: Split, tmp_path: Path) -> None:
    assert split("init", "--yes").code == 0
    key = (tmp_path / "splitsecond.key").read_text()
    (tmp_path / "splitsecond.yaml").write_text("mine: 1\n")
    refused = split("init", "--yes")
    assert refused.code == 2
    assert "--force" in refused.complaint
    assert (tmp_path / "splitsecond.yaml").read_text() == "mine: 1\n"
    assert split("init", "--yes", "--force").code == 0
    assert load(tmp_path / "splitsecond.yaml", {}).routes
    assert (tmp_path / "splitsecond.key").read_text() == key


def test_the_answers_to_three_questions(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-0123456789")
    monkeypatch.setenv("MISTRAL_API_KEY", "m-0123456789")
    monkeypatch.setattr(sys.modules["splitsecond.cli.commands.init"], "_terminal", lambda: True)
    # each question is repeated after a wrong answer
    answers = "7\n2,1\na b\nchat\n99999\nx\n8123\n"
    ended = CliRunner().invoke(app, ["init"], input=answers)
    assert ended.exit_code == 0, ended.output
    assert ended.output.count("Error: got") == 4
    assert len(set(re.findall(r"^(\w+).* \[\S+\]: ", ended.output, re.MULTILINE))) == 3
    settings = load(tmp_path / "splitsecond.yaml", dict(os.environ))
    assert [each.partition("/")[0] for each in targets(settings.routes["chat"])] == [
        "mistral",
        "groq",
    ]
    assert settings.listen.port == 8123


def test_litellms_configuration(split: Split, tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "litellm.yaml").write_text(LITELLM)
    ended = split("init", "--from", "litellm.yaml")
    assert ended.code == 0, ended.err
    golden.check((tmp_path / "splitsecond.yaml").read_text())
    assert "sk-literal" not in ended.out + (tmp_path / "splitsecond.yaml").read_text()
    for dropped in (
        "rpm",
        "AZURE_EU",
        "deployments/x",
        "bedrock",
        "absent",
        "num_retries",
        "drop_params",
        "TOGETHER_API_KEY",
    ):
        assert any(
            dropped in line
            for line in ended.out.splitlines()
            if line.startswith("Not carried over: ")
        )
    assert "Before it can serve: " in ended.out
    assert "other mistake" not in ended.out
    assert ended.out.count("OPENAI_API_KEY is not set") == 1
    environment = dict.fromkeys(KEYS, "k-0123456789") | {
        "LITELLM_MASTER_KEY": "sk-0123456789abcdef"
    }
    settings = load(tmp_path / "splitsecond.yaml", environment)
    assert settings.spec("azure.1/mine").base_url == "https://x.openai.azure.com/openai/v1"
    assert dict.fromkeys(targets(settings.routes["gpt-4o"])) == dict.fromkeys(
        ["openai/gpt-4o", "azure.1/mine", "anthropic.1/claude-sonnet-4-5"]
    )
    assert settings.credential("anthropic.1/claude-sonnet-4-5") == "k-0123456789"
    assert settings.keys[0].allows("gpt-4o")
    assert not (tmp_path / "splitsecond.key").exists()


def test_openrouters_list(split: Split, tmp_path: Path) -> None:
    routing = {"order": ["groq", "nebula"], "sort": "latency", "max_price": {"prompt": 1}}
    (tmp_path / "a.json").write_text(
        json.dumps({"models": ["openai/gpt-oss-120b"], "provider": routing})
    )
    ended = split("init", "--from", "a.json")
    assert ended.code == 0, ended.err
    settings = load(tmp_path / "splitsecond.yaml", dict.fromkeys(KEYS, "k-0123456789"))
    assert repr(settings.routes["default"]).startswith("fallback(fastest(")
    assert list(dict.fromkeys(targets(settings.routes["default"]))) == [
        "groq/openai/gpt-oss-120b",
        "openrouter/openai/gpt-oss-120b",
    ]
    assert "nebula" in ended.out
    assert "max_price" in ended.out


@pytest.mark.parametrize("text", ["openai/gpt-4o\nmeta/llama\n", '["openai/gpt-4o", "meta/llama"]'])
def test_plain_list_of_openrouter_models_becomes_a_fallback(
    split: Split, tmp_path: Path, text: str
) -> None:
    (tmp_path / "models.txt").write_text(text)
    ended = split("init", "--from", "models.txt")
    assert ended.code == 0, ended.err
    settings = load(tmp_path / "splitsecond.yaml", dict.fromkeys(KEYS, "k-0123456789"))
    assert (
        repr(settings.routes["default"])
        == 'fallback("openrouter/openai/gpt-4o", "openrouter/meta/llama")'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "- 1",
        "other: 1",
        "model_list: 1",
        "model_list: []",
        "model_list: [{model_name: 1}]",
        "models: [1]",
    ],
)
def test_file_that_cannot_be_converted_is_named(split: Split, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    ended = split("init", "--from", "a.yaml")
    assert ended.code == 2
    assert "a.yaml" in ended.complaint
    assert not (tmp_path / "splitsecond.yaml").exists()


@pytest.fixture
def listing() -> Iterator[int]:
    """The port of a server that lists one model of vLLM."""

    def respond(request: Received) -> Response:
        models = [{"id": each, "owned_by": "vllm"} for each in ("no name", "qwen3")]
        return Response(json.dumps({"data": models}).encode())

    with http_server(respond) as url:
        yield int(url.rpartition(":")[2])


@pytest.mark.system
def test_a_server_is_found_by_its_list_of_models(
    listing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{listing}/v1"
    assert find_servers([listing, 1]) == [listed(f"local-{listing}", url, "qwen3")]
    monkeypatch.setitem(discovery.PORTS, listing, "vllm")
    assert find_servers([listing]) == [listed("vllm", url, "qwen3")]


@pytest.mark.system
def test_two_commands_start_a_working_gateway(tmp_path: Path, system: None) -> None:
    command = [sys.executable, "-m", "splitsecond.cli"]
    code = (
        "from splitsecond.routing.configuration import discovery; discovery.find_servers = list\n"
    )
    # other tests may serve at those ports
    code += "from splitsecond.cli.app import app; app(['init', '--yes'])"
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    with Process(
        [*command, "serve", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as gateway:
        url = gateway.read_line().split()[1]
        printed = printed.replace("http://127.0.0.1:8800/v1", url)
        blocks = re.findall(r"(?:^    .*\n?)+", printed, re.MULTILINE)
        curl, python = blocks[1], "\n".join(line.strip() for line in blocks[2].splitlines())
        answer = subprocess.run(
            ["sh", "-c", curl], cwd=tmp_path, capture_output=True, check=True
        ).stdout
        assert json.loads(answer)["choices"][0]["message"]["content"]
        answered = subprocess.run(
            [sys.executable, "-c", python], cwd=tmp_path, capture_output=True, check=True
        )
        assert answered.stdout.strip()
        without = curl.replace("$(cat splitsecond.key)", "wrong")
        refused = subprocess.run(
            ["sh", "-c", without], cwd=tmp_path, capture_output=True, check=True
        ).stdout
        assert "error" in json.loads(refused)


@pytest.mark.system
@pytest.mark.skipif(
    not (Path(sys.prefix) / "bin" / "activate").exists(), reason="needs a virtual environment"
)
def test_the_commands_that_make_demo_prints_work(tmp_path: Path) -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text("utf-8")
    (printed,) = re.findall(r'@echo "Next, a gateway:  (.*)"', makefile)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    commands = printed.replace("$(BIN)", ".venv/bin").replace(
        "splitsecond serve", "splitsecond serve --check"
    )
    ended = subprocess.run(
        ["sh", "-c", commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "ok: 1 route, 1 key" in ended.stdout


@each_case("agent", AGENTS)
def test_settings_of_a_client_name_the_gateway_and_its_route(
    split: Split, agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "splitsecond.yaml"
    file.write_text("listen: {port: 8123}\nroutes: {smart: {policy: '\"sim/groq\"'}}\n")
    text = split("init", "--for", agent).out
    assert "http://127.0.0.1:8123" in text
    assert "smart" in text
    assert "SPLITSECOND_KEY" in text
    assert (
        "https://gateway.example"
        in split("init", "--for", agent, "--url", "https://gateway.example/v1").out
    )
    assert [each.name for each in tmp_path.iterdir()] == ["splitsecond.yaml"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("[{name: me, key: 'file:my.key'}]", "export SPLITSECOND_KEY=$(cat conf/my.key)"),
        ("[{name: me, key: env:MINE}]", "SPLITSECOND_KEY is a key of the gateway."),
        ("[]", "SPLITSECOND_KEY is a key of the gateway."),
    ],
)
def test_the_key_that_settings_name_is_shown(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf").mkdir()
    Path("conf/g.yaml").write_text(f"keys: {keys}\nroutes: {{}}\n")
    ended = split("init", "conf/g.yaml", "--for", "opencode")
    json.loads(ended.out)
    assert words in ended.words
    assert "opencode.json" in ended.words


def test_an_address_without_a_scheme_is_refused(split: Split) -> None:
    ended = split("init", "--for", "aider", "--url", "gateway:8800")
    assert (ended.code, ended.out) == (2, "")
    assert "--url: got 'gateway:8800'" in ended.complaint


def test_settings_that_are_files_can_be_read() -> None:
    found = tomllib.loads(agent_settings("codex", "http://h", "r"))
    assert found["model_providers"]["splitsecond"]["base_url"] == "http://h/v1"
    assert json.loads(agent_settings("opencode", "http://h", "r"))["model"] == "splitsecond/r"


def test_an_unknown_client_gets_a_hint(split: Split) -> None:
    assert "Did you mean codex" in split("init", "--for", "codx").complaint
