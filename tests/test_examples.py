"""examples/: each file runs, or is checked by the program that it is for."""

import asyncio
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from signal import SIGTERM
from typing import Any
from urllib.parse import urlencode, urlsplit

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from tests.api.test_document import run_cells
from tests.ports import free_ports
from tests.processes import Process
from tests.quick import with_quick_profiles
from tests.reader import environment as environment  # a fixture
from tests.test_reference_pages import metric_names

from splitsecond.gateway.process import hub_process, supervisor
from splitsecond.gateway.records.exposition import exposed
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.routing.configuration.settings import Listen
from splitsecond.simulator.process import RunningProvider

EXAMPLES = Path(__file__).parents[1] / "examples"
WITHIN_S = 600
PATIENCE_S = 180


def dashboard() -> dict[str, Any]:
    """Return the Grafana dashboard."""
    found: dict[str, Any] = json.loads((EXAMPLES / "grafana-dashboard.json").read_bytes())
    return found


def workflow() -> dict[str, Any]:
    """Return the job of the GitHub Action."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "github-action/slower.yml").read_bytes())[
        "jobs"
    ]["speed"]
    return found


def test_every_example_is_listed() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    files = [path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [
        str(file) for file in files if f"({file})" not in text and file.name != "README.md"
    ] == []


def test_the_dashboard_uses_only_metrics_that_exist() -> None:
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"splitsecond_\w+", query)}
    assert len(used) > 10
    assert used - metric_names() == set()


def test_metrics_have_the_names_of_the_reference() -> None:
    shown = {family.name for family in text_string_to_metric_families(exposed(Metrics()).decode())}
    assert shown <= {name.removesuffix("_total") for name in metric_names()}
    assert len(shown) > 10


def test_the_dashboard_can_be_imported() -> None:
    """Each panel has what Grafana's model of a dashboard requires, and panels do not overlap."""
    found = dashboard()
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", found["uid"])
    # from then on a data source is a reference with type and uid
    assert found["schemaVersion"] >= 36
    assert "id" not in found  # that of an instance
    assert [variable["name"] for variable in found["templating"]["list"]] == ["datasource"]
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in ("stat", "timeseries")
        assert {
            panel["datasource"]["uid"],
            *(each["datasource"]["uid"] for each in panel["targets"]),
        } == {"${datasource}"}
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        assert x + w <= 24
        cells = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        assert not cells & taken
        taken |= cells


def test_grafana_and_prometheus_can_read_the_dashboard() -> None:
    """Grafana's own model, generated from its schema, loses nothing of it, and each query is valid
    PromQL."""
    read = Dashboard.from_json(dashboard())
    written = json.loads(JSONEncoder(sort_keys=True).encode(read))
    assert lost(dashboard(), written) == []
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    for query in queries:
        promql_parser.parse(re.sub(r"\$__\w+", "5m", query))


def lost(whole: Any, part: Any, path: str = "") -> list[str]:
    """Return the paths of what is in `whole` and not, or different, in `part`."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return [
            each
            for key, value in whole.items()
            for each in lost(value, part.get(key), f"{path}/{key}")
        ]
    if isinstance(whole, list) and isinstance(part, list) and len(whole) == len(part):
        return [
            each for at, value in enumerate(whole) for each in lost(value, part[at], f"{path}/{at}")
        ]
    return [] if whole == part else [path]


def test_the_cells_of_the_notebook_are_clean() -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_bytes())["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.system
def test_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(
        with_quick_profiles((EXAMPLES / "notebook.ipynb").read_text("utf-8"), tmp_path)
    )["cells"]
    names = asyncio.run(
        run_cells(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"])
    )
    assert len(names["run"]) == 4
    assert len(names["frame"]) == 4 * 8
    assert re.search(r"sim/together\.toml c=4 +TTFT \d+ ms", capsys.readouterr().out)


@pytest.fixture
def gateway(tmp_path: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a client of a running gateway with one route over simulated targets."""
    (tmp_path / "splitsecond.yaml").write_text(
        "listen: {port: 0}\n"
        "keys: [{name: me, key: env:SPLITSECOND_KEY}]\n"
        "routes:\n"
        '  default: {policy: \'fallback("sim/groq", "sim/together")\'}\n'
    )
    environment = {**environment, "SPLITSECOND_KEY": "sk-a-key-for-the-examples"}
    command = ["splitsecond", "serve"]
    with Process(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        yield {**environment, "SPLITSECOND_URL": process.read_line().split()[1]}


@pytest.mark.system
@pytest.mark.parametrize(
    ("example", "facts"),
    [
        ("client.py", r"target: +sim/groq\nattempts: +1\n"),
        ("streaming_client.py", r"TTFT \d+ ms, 40 tokens in "),
    ],
)
def test_a_client_runs(example: str, facts: str, gateway: dict[str, str]) -> None:
    ended = subprocess.run(
        [sys.executable, EXAMPLES / example],
        env=gateway,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(facts, ended.stdout)


PROMETHEUS = shutil.which("prometheus")
PRICED = """
listen: {{port: 0}}
log: sqlite:///log.db
providers:
  priced: {{base_url: {url}, price: {{input_usd: 1, output_usd: 2}}}}
  slow: {{base_url: {url}, price: {{input_usd: 1, output_usd: 2}},
    headers: {{x-splitsecond-fault: slow_first_token}}}}
  down: {{base_url: "http://127.0.0.1:9/v1"}}
routes:
  well: {{policy: 'cache(race("priced/quick", "slow/quick"))'}}
  ill: {{policy: down/quick}}
"""


@pytest.mark.system
@pytest.mark.skipif(PROMETHEUS is None and "CI" not in os.environ, reason="there is no prometheus")
def test_each_panel_shows_data_in_prometheus(
    tmp_path: Path, environment: dict[str, str], simulated: RunningProvider
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(PRICED.format(url=simulated.base_url))
    (port,) = free_ports(1)
    with ExitStack() as running:
        serve = Process(
            ["splitsecond", "serve"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        url = running.enter_context(serve).read_line().split()[1]
        config = (
            (EXAMPLES / "prometheus.yml")
            .read_text()
            .replace("127.0.0.1:8800", urlsplit(url).netloc)
        )
        (tmp_path / "prometheus.yml").write_text(config.replace("15s", "1s"))
        address = f"127.0.0.1:{port}"
        options = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address={address}",
        ]
        running.enter_context(
            Process([PROMETHEUS or "prometheus", *options, "--log.level=error"], cwd=tmp_path)
        )
        failures = {
            panel["title"]
            for panel in dashboard()["panels"]
            if panel["title"].startswith("Failed attempts")
        }
        found = wait_for_panels(address, lambda: call(url, "well"), without_data=failures)
        assert found["Failed"] == [0]
        until = time.monotonic() + WITHIN_S
        while found["Failed"] == [0]:  # a counter that is new has a rate from its second value on
            assert time.monotonic() < until, "no failed call is shown"
            found = wait_for_panels(address, lambda: call(url, "well", "ill"), without_data=set())
        assert 0 < found["Failed"][0] < 1


def call(url: str, *routes: str) -> None:
    """Send two calls, a repeated and a new one, to each route of a gateway. They may fail."""
    for route, content in product(routes, ("Hello", str(time.monotonic_ns()))):
        body = {"model": route, "max_tokens": 5, "temperature": 0, "stream": True}
        message = json.dumps({**body, "messages": [{"role": "user", "content": content}]}).encode()
        request = urllib.request.Request(
            f"{url}/chat/completions", message, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=WITHIN_S) as reply:
                reply.read()
        except urllib.error.HTTPError as error:
            error.close()


def wait_for_panels(
    address: str, calls: Callable[[], object], without_data: set[str]
) -> dict[str, list[float]]:
    """Return the values of each panel of the dashboard, once all have some except those
    `without_data`."""
    until, missing = time.monotonic() + WITHIN_S, {"everything"}
    while time.monotonic() < until:
        calls()
        with suppress(urllib.error.URLError):  # Prometheus has not started yet
            found = {panel["title"]: values(address, panel) for panel in dashboard()["panels"]}
            missing = {title for title, each in found.items() if not each}
            if missing == without_data:
                return found
    raise AssertionError(f"no data after {WITHIN_S} s: {missing}; expected: {without_data}")


def values(address: str, panel: dict[str, Any]) -> list[float]:
    """Return the values of a panel, or none if one of its queries has none."""
    found = []
    for target in panel["targets"]:
        # On a busy machine all the queries take longer than some seconds, and must still see the
        # calls before them.
        query = urlencode({"query": target["expr"].replace("$__rate_interval", "1m")})
        with urllib.request.urlopen(
            f"http://{address}/api/v1/query?{query}", timeout=PATIENCE_S
        ) as response:
            results = json.loads(response.read())["data"]["result"]
        numbers = [float(each["value"][1]) for each in results]
        if not any(map(math.isfinite, numbers)):
            return []
        found += numbers
    return found


@pytest.mark.system
def test_the_action_fails_a_slower_pull_request(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    environment = {**environment, "GITHUB_STEP_SUMMARY": str(tmp_path / "step.md")}
    shorter = {"-c 1,4 -n 30": "-c 4 -n 15", "tokens 64": "tokens 16"}
    replaced = {**dict(zip(("9001", "9002"), free_ports(2), strict=True)), **shorter}
    codes, groups = {}, []
    try:
        for step in workflow()["steps"]:
            if "run" in step and step["name"] != "Install":
                script = re.sub("|".join(replaced), lambda found: replaced[found[0]], step["run"])
                command = ["bash", "-e", "-o", "pipefail", "-c", script]
                with subprocess.Popen(
                    command, cwd=tmp_path, env=environment, start_new_session=True
                ) as process:
                    groups.append(process.pid)
                    codes[step["name"]] = process.wait(WITHIN_S)
    finally:
        for group in groups:
            with suppress(ProcessLookupError):  # only the steps that start servers leave a process
                os.killpg(group, SIGTERM)
    assert codes.pop("Compare") == 1
    assert set(codes.values()) == {0}
    assert "worse in these minutes" in (tmp_path / "step.md").read_text()


@pytest.mark.system
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_the_service_is_valid(tmp_path: Path) -> None:
    unit = tmp_path / "splitsecond.service"
    text = (EXAMPLES / "splitsecond.service").read_text("utf-8")
    assert text.count("/opt/splitsecond/bin/splitsecond serve") == 2
    settings = ConfigParser(strict=False, interpolation=None)
    settings.read_string(text)
    service = settings["Service"]
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0
    assert int(service["TimeoutStartSec"]) > supervisor.START_S
    after = supervisor.STOP_S + hub_process.FLEET_STOP_S
    assert int(service["TimeoutStopSec"]) >= Listen().drain_s + after
    unit.write_text(text.replace("/opt/splitsecond/bin/splitsecond", "/bin/true"))  # it must exist
    ended = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert (
        ended.returncode,
        [line for line in ended.stderr.splitlines() if "splitsecond" in line],
    ) == (0, [])
