"""The Compose file and what it mounts: valid, consistent, and accepted by the programs that read
it."""

import json
import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, ValidationError
from tests.waiting import WITHIN_S

from splitsecond.gateway.process import hub_process, supervisor
from splitsecond.routing.configuration.reading import load

COMPOSE = Path(__file__).parents[2] / "deploy/compose"
SECRETS = {
    "web_key": "w" * 32,
    "metrics_key": "m" * 32,
    "database_url": "postgresql+psycopg://splitsecond:x@postgres/x",
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_bytes())
    return found


def test_compose_file_is_valid(compose: dict[str, Any]) -> None:
    schemas = resources.files("check_jsonschema") / "builtin_schemas/vendor"
    schema = json.loads((schemas / "compose-spec.json").read_bytes())
    Draft7Validator(schema).validate(compose)
    with pytest.raises(ValidationError):
        Draft7Validator(schema).validate(compose | {"servises": {}})


def test_compose_file_mounts_existing_files(compose: dict[str, Any]) -> None:
    mounted = [
        mount.split(":")[0]
        for each in compose["services"].values()
        for mount in each.get("volumes", ())
    ]
    files = [name for name in mounted if name.startswith(".")]
    assert len(files) == 5
    assert [name for name in files if not (COMPOSE / name).exists()] == []
    assert {name for name in mounted if not name.startswith(".")} == compose["volumes"].keys()


def test_secrets_are_files_that_services_use(compose: dict[str, Any]) -> None:
    used = {name for each in compose["services"].values() for name in each.get("secrets", ())}
    assert used == compose["secrets"].keys()
    assert (COMPOSE / ".gitignore").read_text() == "secrets/\n"
    assert all(each["file"] == f"secrets/{name}" for name, each in compose["secrets"].items())


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    """The gateway's configuration with its secrets in a folder of the test."""
    for name, value in SECRETS.items():
        (tmp_path / name).write_text(value)
    text = (COMPOSE / "gateway/splitsecond.yaml").read_text("utf-8")
    found = tmp_path / "splitsecond.yaml"
    found.write_text(text.replace("file:/run/secrets/", f"file:{tmp_path}/"))
    return found


def test_the_gateway_accepts_its_configuration(
    compose: dict[str, Any], settings_file: Path
) -> None:
    settings = load(settings_file, {})
    metrics = next(key for key in settings.keys if key.name == "prometheus")
    assert metrics.routes == ("/metrics",)
    assert not metrics.allows("fast")
    gateway = compose["services"]["gateway"]
    names = {f"/run/secrets/{name}" for name in gateway["secrets"]}
    assert names == {f"/run/secrets/{path.name}" for path in settings.files}
    after = supervisor.STOP_S + hub_process.FLEET_STOP_S
    assert float(gateway["stop_grace_period"].removesuffix("s")) >= settings.listen.drain_s + after


def test_prometheus_reads_the_gateway_with_its_key(compose: dict[str, Any]) -> None:
    (job,) = yaml.safe_load((COMPOSE / "prometheus.yaml").read_bytes())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["gateway:8800"]}]
    assert job["authorization"]["credentials_file"] == "/run/secrets/metrics_key"
    assert "metrics_key" in compose["services"]["prometheus"]["secrets"]


@pytest.mark.system
@pytest.mark.skipif(
    shutil.which("promtool") is None and "CI" not in os.environ, reason="promtool is not installed"
)
def test_promtool_accepts_the_configuration() -> None:
    command = ["promtool", "check", "config", "--syntax-only", str(COMPOSE / "prometheus.yaml")]
    subprocess.run(command, check=True, timeout=WITHIN_S, capture_output=True)
