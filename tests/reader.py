"""The machine of somebody who reads the documents: commands, keys, files, and simulated servers and
providers."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.pages import ROOT, Block, blocks
from tests.store.test_import import LITELLM, OPENROUTER, as_csv, as_json

from splitsecond.core import clock
from splitsecond.log.store.importing import import_log
from splitsecond.simulator.process import RunningProvider, run_simulator

MINE = """title = "The reader's server"
model = "mine"
[[table]]
concurrency = 1
ttft_ms = { p50 = 5, p95 = 6 }
tps = { p50 = 2000, p95 = 1900 }
"""
"""The server of the reader, as a profile of the simulator."""
PROVIDERS = f"""{MINE.replace('"mine"', '"*"')}
[prompt_cache]
from_tokens = 1024
"""
"""All the providers that the documents name, as one profile."""
CATALOGUE = ROOT / "src/splitsecond/core/catalog/providers"
PROGRAMS = {
    "splitsecond": "-m splitsecond.cli",
    "python": "",
    "sqlite3": "-c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])'",
}
VARIABLE = re.compile(r'"([A-Z_]+_(?:API_KEY|ACCESS_TOKEN))"')
LOGGED = 600
"""Calls in the logs of other programs: as many as a grade needs, and more."""
TARGETS = ("groq/openai/gpt-oss-120b", "cerebras/gpt-oss-120b")
"""Targets in the log of the reader's gateway."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with the commands `splitsecond`, `python` and `sqlite3`, and without anybody's
    keys."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, options in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(("_API_KEY", "_TOKEN"))
    }
    return {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "120",
    }


@pytest.fixture(scope="session")
def servers(
    system: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RunningProvider]]:
    """The server of the reader, and that of all providers."""
    folder = tmp_path_factory.mktemp("servers")
    for name, profile in (("mine", MINE), ("providers", PROVIDERS)):
        (folder / f"{name}.toml").write_text(profile)
    with run_simulator(str(folder / "mine.toml"), str(folder / "providers.toml")) as running:
        yield running


def with_providers(folder: Path, provider: RunningProvider, guide: list[Block]) -> Path:
    """Make the package anew in `folder`, with all providers of its catalogue, and that of the
    `guide`, at one address.

    All but the catalogue are links. Return the folder to import from.
    """
    package = folder / "splitsecond"
    real_folders = CATALOGUE.parents[2], CATALOGUE.parents[1], CATALOGUE.parent
    for made, source in zip(
        (package, package / "core", package / "core/catalog"), real_folders, strict=True
    ):
        made.mkdir(parents=True)
        for path in source.iterdir():
            if path not in (CATALOGUE, *real_folders):
                (made / path.name).symlink_to(path)
    texts = {path.name: path.read_text("utf-8") for path in CATALOGUE.glob("*.toml")}
    if guide:
        texts["example.toml"] = "\n".join(block.text for block in guide if block.kind == "toml")
    (package / "core/catalog/providers").mkdir()
    for name, text in texts.items():
        address = rf'"{provider.origin}\1"' if "\napi_format" in text else f'"{provider.base_url}"'
        (package / "core/catalog/providers" / name).write_text(
            re.sub(r'"https://[^/"]+(/[^"]*)"', address, text)
        )
    return folder


def keys(sources: Path, provider: RunningProvider) -> dict[str, str]:
    """Return another key for each provider of the catalogue in `sources`, and what the addresses of
    some contain."""
    files = sources.glob("splitsecond/core/catalog/providers/*.toml")
    variables = {name for path in files for name in VARIABLE.findall(path.read_text("utf-8"))}
    azure = {
        f"AZURE_OPENAI_ENDPOINT{region}": provider.origin for region in ("_EASTUS", "_WESTEUROPE")
    }
    others = ("AWS_BEARER_TOKEN_BEDROCK", "GOOGLE_CLOUD_PROJECT")
    return {**{name: f"example-{name}" for name in (*sorted(variables), *others)}, **azure}


def write_files(folder: Path) -> None:
    """Write what readers have: a profile of their server, a client, and the logs of LiteLLM and
    OpenRouter."""
    for name in ("mine.toml", "my.toml"):
        (folder / name).write_text(MINE)
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "client.py").symlink_to(ROOT / "examples/client.py")
    as_csv(folder / "spend-logs.csv", spend_logs("azure/gpt-4o"))
    activity = [
        {
            **OPENROUTER,
            "created_at": f"{began:%Y-%m-%d %H:%M:%S.%f}",
            "generation_id": f"gen-{number}",
        }
        for number, began in enumerate(beginnings())
    ]
    for name in ("activity.csv", "openrouter_activity.csv"):
        as_csv(folder / name, activity)
    as_json(folder / "spend_logs.json", spend_logs("azure/gpt-4o"))
    titled = [
        block
        for name in ("choosing", "coming-from/litellm")
        for block in blocks(ROOT / f"docs/{name}.md")
    ]
    for block in titled:  # what one page shows, others use
        if block.title.endswith(("litellm.yaml", "quality.toml")):
            (folder / block.title).write_text(block.text)


def write_log(folder: Path) -> None:
    """Write the log of the reader's gateway, splitsecond.db, and a copy of it, calls.db."""
    source = as_csv(folder / "gateway.csv", spend_logs(*TARGETS))
    assert import_log(source, f"sqlite:///{folder}/splitsecond.db", {}).written == LOGGED
    own = [
        {"ts": f"{began:%Y-%m-%dT%H:%M:%SZ}", "model": TARGETS[0], "latency": 900, "out": 200}
        for began in beginnings()
    ]
    as_csv(folder / "calls.csv", own)
    shutil.copy(folder / "splitsecond.db", folder / "calls.db")


def beginnings() -> list[datetime]:
    """Return the time of each logged call, a minute apart, the last of them an hour ago."""
    return [clock.wall_time() - timedelta(minutes=number, hours=1) for number in range(LOGGED)]


def spend_logs(*targets: str) -> list[dict[str, Any]]:
    """Return the log that LiteLLM keeps of calls to these targets in turns."""
    rows = []
    for number, began in enumerate(beginnings()):
        provider, model = targets[number % len(targets)].split("/", 1)
        after = {"startTime": 0.0, "completionStartTime": 0.4, "endTime": 2 + number % 7 / 10}
        times = {
            name: (began + timedelta(seconds=seconds)).isoformat()
            for name, seconds in after.items()
        }
        row = {**LITELLM, **times, "request_id": f"chatcmpl-{number}", "model": model}
        rows.append({**row, "custom_llm_provider": provider})
    return rows
