"""Tries every feature of every client with targets of every API format: `python -m
tests.clients.matrix [CLIENT…]`.

It writes `results.json` and the tables in `docs/reference/client-matrix.md`. With names of clients
it only runs these, and prints each cell that does not pass; the stored results of other clients
stay. With ``--only-print`` it writes nothing. The clients must be in `build/clients-matrix` (`make
clients-newest`).
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.clients.matrix.clients import CLIENTS, Client
from tests.clients.matrix.features import FEATURES, SUNNY, Feature
from tests.clients.matrix.judge import Evidence, Verdict, judge
from tests.clients.matrix.relay import Relay, relaying
from tests.clients.matrix.table import Cell, ClientResults, Results, stored, write
from tests.gateway.conftest import KEY, gateway, ready

from splitsecond.simulator.process import RunningProvider, run_simulator

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ENVIRONMENT = Path(os.environ.get("SPLITSECOND_MATRIX", ROOT / "build/clients-matrix"))
PATHS = {
    "openai": "/v1",
    "responses": "/v1",
    "anthropic": "/v1",
    "gemini": "/v1beta",
    "ollama": "",
    "cohere": "/v2",
}
TARGETS = tuple(PATHS)
MAX_CLIENT_S = 900
SLOW_S = 3
MAX_NOTE = 200
PROFILE = {"title": "A model", "model": "*", "embedding_dimensions": 64}
TABLE = (
    "[[table]]\nconcurrency = 1\nttft_ms = {{ p50 = 2, p95 = 3 }}\ntps = {{ p50 = {tps}, p95 "
    "= {tps} }}\n"
)


def main(*names: str) -> int:
    """Try the clients `names`, or all of them."""
    only_print = "--only-print" in names
    names = tuple(name for name in names if name != "--only-print")
    unknown = set(names) - {client.name for client in CLIENTS}
    if unknown:
        print(f"unknown clients: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    for client in CLIENTS:
        if not names or client.name in names:
            began = time.monotonic()
            tried = results_of(client, details=bool(names))
            counts = Counter(cell.state for cell in tried.cells)
            states = ", ".join(f"{count} {state}" for state, count in counts.items())
            print(
                f"{client.name} {tried.versions}: {states} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
            if not only_print:
                store(tried)
    return 0


def store(tried: ClientResults) -> None:
    """Replace the results of one client, and write the page."""
    results = {each.name: each for each in stored().clients} | {tried.name: tried}
    ordered = [results[client.name] for client in CLIENTS if client.name in results]
    write(Results(date=datetime.now(UTC).date().isoformat(), clients=ordered))


def results_of(client: Client, *, details: bool) -> ClientResults:
    """Run a client, and judge its cells."""
    cells = []
    with providers_and_gateway() as (quick, slow, relay):
        wanted = [
            (target, feature)
            for feature in FEATURES
            for target in (TARGETS[:1] if feature.once else TARGETS)
            if target not in feature.without and client.api not in feature.without
        ]
        results = run_client(client, relay.address, wanted)
        received, tokens, closed = records(quick, slow)
        for (target, feature), result in zip(wanted, results, strict=True):
            requests = received.get((target, feature.name), [])
            number = requests[-1].number if requests else 0
            evidence = Evidence(
                [each for each in requests if each.body is not None],
                relay.exchanges[target, feature.name],
                tokens.get((bool(feature.provider == "slow"), number), (0, 0)),
                (target, feature.name) in closed,
            )
            verdict = judge(feature, target, result, evidence)
            if verdict.state:
                note = verdict.note[:MAX_NOTE] if verdict.state == "wrong" else ""
                cells.append(
                    Cell(feature.name, "" if feature.once else target, verdict.state, note)
                )
            if details and verdict.state != "passes":
                show(feature, target, verdict, evidence)
            if details and result["seconds"] > SLOW_S:
                print(f"  {feature.name} → {target} took {result['seconds']:.1f} s")
    return ClientResults(client.name, versions(client), cells)


def show(feature: Feature, target: str, verdict: Verdict, evidence: Evidence) -> None:
    print(f"  {feature.name} → {target}: {verdict.state or 'not in this client'}: {verdict.note}")
    if verdict.state == "wrong" and "-v" in os.environ.get("MATRIX", ""):
        print("     ", bytes(evidence.exchange.response)[:3000])


@contextmanager
def providers_and_gateway() -> Iterator[tuple[RunningProvider, RunningProvider, Relay]]:
    """Run the providers, a gateway before them, and a relay before that."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for speed, tps in (("quick", 3000), ("slow", 20)):
            profile = "".join(f"{key} = {json.dumps(value)}\n" for key, value in PROFILE.items())
            profile += f'replies_file = "replies.jsonl"\n{TABLE.format(tps=tps)}'
            (folder / f"{speed}.toml").write_text(profile)
        (folder / "replies.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules()))
        with run_simulator(str(folder / "quick.toml"), str(folder / "slow.toml")) as (quick, slow):
            lines = [
                "keys: [{name: web, key: env:WEB_KEY}]",
                "routes: {fast: {policy: to-openai/m-text}}",
                "providers:",
            ]
            for target, path in PATHS.items():
                for prefix, provider in (("to", quick), ("fails", quick), ("slow", slow)):
                    url = f"{provider.origin}{path}"
                    lines.append(
                        f"  {prefix}-{target}: {{base_url: '{url}', api_format: {target}}}"
                    )
            (folder / "splitsecond.yaml").write_text("\n".join(lines))
            with gateway(folder) as process:
                host, port = ready(process).removesuffix("/v1").removeprefix("http://").split(":")
                with relaying(host, int(port)) as relay:
                    yield quick, slow, relay


def rules() -> Iterator[dict[str, Any]]:
    """Yield the rules of the simulated provider. The model's name tells the feature."""
    for feature in FEATURES:
        if "loop" in feature.ask:
            yield {"model": f"m-{feature.name}", "after": "weather", "text": SUNNY}
        if feature.reply:
            yield {"model": f"m-{feature.name}", **feature.reply}
        # where a call is requested as JSON
        if "choice" in feature.ask and "calls" in feature.reply:
            yield {"model": f"m-{feature.name}", "json": feature.reply["calls"][0]["arguments"]}


def run_client(
    client: Client, origin: str, wanted: list[tuple[str, Feature]]
) -> list[dict[str, Any]]:
    """Return what the client made of each cell."""
    asked = "".join(
        json.dumps({"model": f"{feature.provider}-{target}/m-{feature.name}", "ask": feature.ask})
        + "\n"
        for target, feature in wanted
    )
    if client.python:
        command = [python_of(client), str(HERE / "in_python/run_client.py")]
    # packages are looked for beside a script, or from the working folder for a script in the
    # command
    else:
        script = (HERE / "in_javascript/run_client.mjs").read_text("utf-8")
        command = ["node", "--input-type=module", "--eval", script, "--"]
    with TemporaryDirectory() as folder:
        (Path(folder) / "cells").write_text(asked)
        with (Path(folder) / "cells").open() as cells:
            ran = subprocess.run(
                [*command, client.name, origin, KEY], stdin=cells, cwd=ENVIRONMENT,
                capture_output=True, text=True,
                timeout=MAX_CLIENT_S, check=False,
            )  # fmt: skip
    found = [
        json.loads(line)["result"]
        for line in ran.stdout.splitlines()
        if line.startswith('{"result"')
    ]
    if len(found) != len(wanted):
        raise RuntimeError(
            f"{client.name} ended after {len(found)} of {len(wanted)} cells: {ran.stderr[-3000:]}"
        )
    return found


CellKey = tuple[str, str]


def records(
    quick: RunningProvider, slow: RunningProvider
) -> tuple[dict[CellKey, list[Any]], dict[tuple[bool, int], tuple[int, int]], set[CellKey]]:
    """Return the requests of each cell, the token counts of each request, and the cells that were
    cancelled."""
    received: dict[CellKey, list[Any]] = {}
    tokens: dict[tuple[bool, int], tuple[int, int]] = {}
    closed: set[CellKey] = set()
    for provider in (quick, slow):
        by_id = {}
        for request in provider.requests():
            model = request.model or (re.search(r"models/([^:/]+)", request.path) or ["", ""])[1]
            if not model and isinstance(request.body, dict):
                model = request.body.get("model", "")
            target = "responses" if request.path.endswith("/responses") else request.api_format
            cell = (target, model.removeprefix("m-"))
            received.setdefault(cell, []).append(request)
            by_id[
                request.headers.get("x-client-request-id") or f"{provider.name}-{request.number}"
            ] = (request, cell)
        for record in truth(provider):
            if record["request_id"] not in by_id:
                continue
            request, cell = by_id[record["request_id"]]
            tokens[provider is slow, request.number] = (
                record["prompt_tokens"],
                record["output_tokens"],
            )
            if record["closed_by_client"]:
                closed.add(cell)
    return received, tokens, closed


def truth(provider: RunningProvider) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{provider.origin}/truth", timeout=60) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())
    return found


def python_of(client: Client) -> str:
    return str(ENVIRONMENT / ("apart/bin/python" if client.apart else "bin/python"))


def versions(client: Client) -> list[str]:
    """Return the versions of the client's packages."""
    if not client.python:
        folders = [
            ENVIRONMENT / "node_modules" / package / "package.json" for package in client.packages
        ]
        return [json.loads(each.read_text("utf-8"))["version"] for each in folders]
    code = "import sys, importlib.metadata as m; print(*[m.version(each) for each in sys.argv[1:]])"
    command = [python_of(client), "-c", code, *client.packages]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
