"""docs/deployment.md: the commands that need no container engine run, and the others name what
exists."""

import json
import re
import shlex
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from tests.deploy.chart import CHART, ROOT
from tests.pages import Block, blocks
from tests.waiting import WITHIN_S

from splitsecond.gateway.process import hub_process, supervisor
from splitsecond.routing.configuration.reading import load, read

IMAGE, COMPOSE, KUBERNETES, VALUES = blocks(ROOT / "docs/deployment.md")
NEEDS_MORE = ("docker ", "curl ")
"""Commands that need a container engine, or what it would run."""


def command(block: Block, name: str) -> list[str]:
    """Return the words of the one command of a block that begins like this."""
    (found,) = [part for part in block.parts if part.startswith(name)]
    return shlex.split(found.replace("\\\n", " "))


@pytest.fixture
def compose_folder(tmp_path: Path) -> Path:
    """The folder of the Compose file, after the commands that make its secrets."""
    found = tmp_path / "deploy/compose"
    shutil.copytree(ROOT / "deploy/compose", found)
    script = "".join(part for part in COMPOSE.parts if not part.startswith(NEEDS_MORE))
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, check=True, timeout=WITHIN_S)
    return found


@pytest.mark.system
def test_the_commands_make_all_secrets(compose_folder: Path) -> None:
    """All that the Compose file names, readable by the users of the containers, and accepted by the
    gateway."""
    compose = yaml.safe_load((compose_folder / "compose.yaml").read_bytes())
    files = {compose_folder / each["file"] for each in compose["secrets"].values()}
    assert files == set((compose_folder / "secrets").iterdir())
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o644"}
    assert oct((compose_folder / "secrets").stat().st_mode & 0o777) == "0o711"
    config = compose_folder / "gateway/splitsecond.yaml"
    config.write_text(
        config.read_text("utf-8").replace("/run/secrets", str(compose_folder / "secrets"))
    )
    password = (compose_folder / "secrets/postgres_password").read_text().strip()
    url = (compose_folder / "secrets/database_url").read_text()
    assert url == f"postgresql://splitsecond:{password}@postgres/splitsecond"
    assert "postgres" in compose["services"]
    settings = load(config, {})
    assert settings.shared is not None
    assert settings.shared.url.partition("://")[2] == url.partition("://")[2]
    assert {key.name for key in settings.keys} == {"web", "prometheus"}
    assert command(COMPOSE, "curl")[-1] == "http://127.0.0.1:8800/v1/models"


def test_the_image_is_built_and_run_as_its_file_says() -> None:
    build, run = command(IMAGE, "docker build"), command(IMAGE, "docker run")
    assert (ROOT / build[build.index("-f") + 1]).exists()
    assert run[-1] == build[build.index("-t") + 1]
    container = (ROOT / "deploy/Containerfile").read_text("utf-8")
    mounts = [each.split(":")[1] for option, each in pairwise(run) if option == "-v"]
    assert mounts == ["/etc/splitsecond", "/run/secrets", "/var/lib/splitsecond"]
    assert f'"{mounts[0]}/splitsecond.yaml"' in container
    assert f"VOLUME {mounts[2]}\n" in container
    assert run[run.index("-p") + 1].endswith(":8800:" + re.findall(r"EXPOSE (\d+)", container)[0])
    drain_s = read("routes: {fast: {policy: sim/groq}}", {}).listen.drain_s
    least_s = drain_s + supervisor.STOP_S + hub_process.FLEET_STOP_S
    assert float(run[run.index("--stop-timeout") + 1]) >= least_s


def test_the_chart_and_the_gateway_accept_the_values() -> None:
    secret, install = (
        command(KUBERNETES, "kubectl create secret"),
        command(KUBERNETES, "helm install"),
    )
    assert ROOT / install[3] == CHART
    assert install[install.index("--values") + 1] == VALUES.title
    name, value = install[install.index("--set") + 1].split("=")
    image, setting = name.split(".")
    values: dict[str, Any] = yaml.safe_load(VALUES.text) | {image: {setting: value}}
    defaults = yaml.safe_load((CHART / "values.yaml").read_bytes())
    config = defaults["config"] | values["config"]
    schema = json.loads((CHART / "values.schema.json").read_bytes())
    Draft7Validator(schema).validate(defaults | values | {"config": config})
    made = {
        word.removeprefix("--from-literal=").split("=")[0]
        for word in secret
        if word.startswith("--from-literal=")
    }
    text = yaml.safe_dump(config)
    assert set(re.findall(r"file:/run/secrets/splitsecond/(\w+)", text)) == made
    assert secret[4] in defaults["secrets"]
    settings = read(
        text.replace("file:/run/secrets/splitsecond/", "env:"), dict.fromkeys(made, "k" * 32)
    )
    assert settings.routes
