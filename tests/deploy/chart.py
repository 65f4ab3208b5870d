"""The Helm chart as manifests, rendered by helm, or by `render.go` with the libraries that helm
uses."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/splitsecond"
GO_PACKAGES = Path("/usr/share/gocode")
"""Where Debian's packages of Go's libraries are: golang-github-masterminds-sprig-dev and
golang-k8s-sigs-yaml-dev."""
VALUES: dict[str, dict[str, Any]] = {
    "least": {"image": {"repository": "registry.example/splitsecond"}},
    "all": {
        "image": {"repository": "registry.example/splitsecond", "tag": "1.2.3"},
        "imagePullSecrets": [{"name": "registry"}],
        "workers": 4,
        "drainSeconds": 300,
        "config": {"log": "file:/run/secrets/splitsecond/database_url"},
        "secrets": ["splitsecond", "providers"],
        "service": {"type": "LoadBalancer", "annotations": {"example/internal": "true"}},
        "autoscaling": {"enabled": True},
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "key": {"secret": "splitsecond", "name": "metrics_key"},
        },
        "podAnnotations": {"example/team": "web"},
        "podLabels": {"team": "web"},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "example", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
}
"""Values of the releases that tests render."""


def digest() -> str:
    """Return the SHA-256 of the chart's files, by which the rendered manifests of `golden/` name
    their source."""
    found = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        found.update(
            path.relative_to(CHART).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return found.hexdigest()


def rendered(values: dict[str, Any], folder: Path) -> str:
    """Return the manifests of the release "release". Skips the test without helm and without Go's
    libraries."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    environment = dict(os.environ)
    if helm := shutil.which("helm"):
        command = [helm, "template", "release", str(CHART), "--values", str(file)]
    elif (go := shutil.which("go")) and (GO_PACKAGES / "src/github.com/Masterminds/sprig").exists():
        command = [
            go,
            "run",
            str(Path(__file__).with_name("render.go")),
            "release",
            str(CHART),
            str(file),
        ]
        environment |= {
            "GO111MODULE": "off",
            "GOPATH": str(GO_PACKAGES),
            "GOCACHE": str(folder / "cache"),
        }
    elif "CI" in os.environ:
        pytest.fail("neither helm nor Go with sprig is installed")
    else:
        pytest.skip("neither helm nor Go with sprig is installed")
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout
