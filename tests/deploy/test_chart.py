"""The Helm chart: its manifests are valid, fit the gateway, and are those of the chart.

`golden/test_chart` has the rendered manifests. Fast tests check them against the schemas of
Kubernetes; a system test renders the chart again.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, ValidationError
from kubernetes_validate.utils import validate
from tests.cases import each_case
from tests.deploy.chart import CHART, ROOT, VALUES, digest, rendered
from tests.gateway.visitor import visitor
from tests.golden import Golden
from tests.test_reference_pages import metric_names

from splitsecond.gateway.process import hub_process, supervisor
from splitsecond.routing.configuration.reading import read
from splitsecond.testing.fake_service import FakeService
from splitsecond.testing.virtual_time import run_virtual

GOLDEN = Path(__file__).parent / "golden/test_chart"
RELEASES = sorted(VALUES)


def manifests(release: str) -> list[dict[str, Any]]:
    """Return the rendered manifests of a release of `VALUES`."""
    text = (GOLDEN / f"test_the_chart_renders_to_these_manifests-{release}-.txt").read_text("utf-8")
    return [each for each in yaml.safe_load_all(text) if each is not None]


def manifest(release: str, kind: str) -> dict[str, Any]:
    """Return the manifest of a kind."""
    (found,) = [each for each in manifests(release) if each["kind"] == kind]
    return found


def pod(release: str) -> dict[str, Any]:
    """Return the specification of the gateway's pods."""
    found: dict[str, Any] = manifest(release, "Deployment")["spec"]["template"]["spec"]
    return found


@pytest.mark.system
@pytest.mark.parametrize("release", RELEASES)
def test_the_chart_renders_to_these_manifests(release: str, golden: Golden, tmp_path: Path) -> None:
    text = rendered(VALUES[release], tmp_path)
    documents = [each for each in yaml.safe_load_all(text) if each is not None]
    # helm sorts them by kind, we do not
    documents.sort(key=lambda each: (each["kind"], each["metadata"]["name"]))
    golden.check(
        f"# sha256 of the chart: {digest()}\n" + yaml.safe_dump_all(documents, sort_keys=False)
    )


@pytest.mark.parametrize("release", RELEASES)
def test_rendered_manifests_have_the_digest_of_the_chart(release: str) -> None:
    text = (GOLDEN / f"test_the_chart_renders_to_these_manifests-{release}-.txt").read_text("utf-8")
    assert text.startswith(f"# sha256 of the chart: {digest()}\n"), (
        "run the system test with --update-golden"
    )


@pytest.mark.parametrize("release", RELEASES)
def test_kubernetes_accepts_them(release: str) -> None:
    kinds = []
    for each in manifests(release):
        kinds.append(each["kind"])
        # of the Prometheus operator: Kubernetes has no schema of it
        if each["kind"] == "ServiceMonitor":
            endpoint = each["spec"]["endpoints"][0]
            assert endpoint["path"] == "/metrics"
            assert endpoint["authorization"]["credentials"] == {
                "name": "splitsecond",
                "key": "metrics_key",
            }
        else:
            validate(each, "1.37", strict=True)
    more = ["HorizontalPodAutoscaler", "ServiceMonitor"] if release == "all" else []
    assert sorted(kinds) == sorted(
        ["ConfigMap", "Deployment", "PodDisruptionBudget", "Service", *more]
    )


@pytest.mark.parametrize("release", RELEASES)
def test_the_gateway_accepts_the_configuration(release: str) -> None:
    text = manifest(release, "ConfigMap")["data"]["splitsecond.yaml"]
    for name in re.findall(r"file:(/run/secrets/splitsecond/\w+)", text):
        text = text.replace(f"file:{name}", f"env:{Path(name).name}")
    environment = {
        "web_key": "k" * 32,
        "database_url": "postgresql://splitsecond:secret@db/splitsecond",
    }
    settings = read(text, environment)
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_bytes()) | VALUES[release]
    assert (settings.listen.host, settings.listen.port) == ("0.0.0.0", 8800)
    assert (settings.listen.workers, settings.listen.drain_s) == (
        values["workers"],
        values["drainSeconds"],
    )
    (container,) = pod(release)["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [settings.listen.port]


@pytest.mark.parametrize("release", RELEASES)
def test_a_pod_has_the_time_that_the_gateway_needs_to_end(release: str) -> None:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_bytes()) | VALUES[release]
    after = supervisor.STOP_S + hub_process.FLEET_STOP_S
    grace: float = pod(release)["terminationGracePeriodSeconds"]
    assert grace >= values["preStopSeconds"] + values["drainSeconds"] + after


@pytest.mark.parametrize("release", RELEASES)
def test_probes_use_paths_that_answer(release: str) -> None:
    (container,) = pod(release)["containers"]
    paths = {
        container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    assert paths == {"/health/ready", "/health/live"}
    for path in paths:
        client = visitor(FakeService())
        run_virtual(client.asks(path=path, method="GET"))
        assert client.status == 200


@pytest.mark.parametrize("release", RELEASES)
def test_pods_have_no_rights(release: str) -> None:
    found = pod(release)
    (container,) = found["containers"]
    assert found["securityContext"]["runAsNonRoot"]
    assert not found["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_autoscaler_uses_a_metric_that_exists() -> None:
    (metric,) = manifest("all", "HorizontalPodAutoscaler")["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    assert name in metric_names()
    (rule,) = yaml.safe_load((ROOT / "deploy/kubernetes/prometheus-adapter.yaml").read_bytes())[
        "rules"
    ]["custom"]
    assert rule["seriesQuery"].startswith(name)
    # it would undo what the autoscaler did
    assert "replicas" not in manifest("all", "Deployment")["spec"]


def test_settings_that_need_a_restart_change_the_pod_annotation() -> None:
    def annotation(release: str) -> str:
        found = manifest(release, "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return str(found["splitsecond/restart-settings"])

    assert annotation("least") != annotation("all")


@each_case(
    "wrong",
    [
        {},
        {"image": {"repository": ""}},
        {"image": {"repository": "x"}, "replica": 3},
        {"image": {"repository": "x"}, "secrets": []},
        {"image": {"repository": "x"}, "drainSeconds": "30s"},
        {"image": {"repository": "x"}, "serviceMonitor": {"enabled": True, "key": {}}},
        {"image": {"repository": "x"}, "podDisruptionBudget": {"maxUnavailable": "half"}},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    schema = json.loads((CHART / "values.schema.json").read_bytes())
    defaults = yaml.safe_load((CHART / "values.yaml").read_bytes())
    for values in VALUES.values():
        Draft7Validator(schema).validate(
            defaults | values | {"config": defaults["config"] | values.get("config", {})}
        )
    with pytest.raises(ValidationError):
        Draft7Validator(schema).validate(defaults | wrong)


def test_bench_is_a_valid_job_with_persistent_runs() -> None:
    claim, job = yaml.safe_load_all((ROOT / "deploy/kubernetes/bench-job.yaml").read_bytes())
    for each in (claim, job):
        validate(each, "1.37", strict=True)
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    kept = {each["name"] for each in spec["volumes"] if "persistentVolumeClaim" in each}
    assert container["args"][container["args"].index("--out") + 1].startswith(
        mounts[kept.pop()] + "/"
    )
    assert job["spec"]["backoffLimit"] == 0
