"""The package as users get it: a wheel made from the sdist, in an environment with its dependencies
only."""

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from tests.processes import Process

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[1]
WITHIN_S = 600
EXAMPLES = """
import asyncio
import splitsecond as ss

assert "site-packages" in ss.__file__, ss.__file__

@ss.policy
async def mine(call, a, b):
    try:
        return await a(call)
    except ss.Fault:
        return await b(call)

async def main():
    short = {"requests": 8, "output_tokens": 8, "quick": True, "progress": False}
    run = await ss.bench("sim/groq", "sim/together", concurrency=(1, 8), out="runs/first", **short)
    p50 = run["sim/groq", 8].ttft_ms.p50
    print("figure", p50 > 0, len(p50.ci95))
    try:
        run.to_frame()
    except ss.CallerFault as fault:
        print("frame", fault.kind)
    print("report", run.report("report.html").stat().st_size > 20_000)
    print("load", list(ss.load("runs/first")) == list(run))
    print("compare", len(ss.compare(run, ss.load(run.path)).conditions))
    async with ss.connect('race("sim/groq", "sim/together")') as fast:
        reply = await fast.chat("Hello", max_tokens=4)
        print("connect", bool(reply.text), reply.observation.ttft_ms > 0)
    async with ss.connect('mine("sim/groq", "sim/together")') as own:
        print("policy", (await own.chat("Hello", max_tokens=4)).target)

if __name__ == "__main__":
    asyncio.run(main())
"""


def installed(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Add the package `name` and what it needs, without extras, to `found`."""
    try:
        package = distribution(name)
    except PackageNotFoundError:  # needed on other systems only
        return found
    if package.name not in found:
        found[package.name] = package
        for requirement in package.requires or ():
            if "extra ==" not in requirement:
                installed(re.split(r"[^A-Za-z0-9._-]", requirement)[0], found)
    return found


@pytest.fixture(scope="module")
def clean(system: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and with links to its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # the sdist, and from it the wheel
    build: list[str | Path] = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, timeout=WITHIN_S, stdout=subprocess.DEVNULL)
    venv.create(folder / "venv", symlinks=True)
    (site,) = folder.glob("venv/lib/python*/site-packages")
    for package in installed("splitsecond", {}).values():
        if package.name != "splitsecond":
            for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
                (site / top).symlink_to(Path(str(package.locate_file(top))))
    (wheel,) = folder.glob("*.whl")
    python = folder / "venv/bin/python"
    subprocess.run(
        [*pip, "--python", python, "install", "--no-deps", "--no-index", wheel],
        check=True,
        timeout=WITHIN_S,
    )
    return python.parent


def test_the_examples_run_from_a_wheel(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "examples.py").write_text(EXAMPLES)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    demo: list[str | Path] = [clean / "splitsecond", "demo", "--out", "demo"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Both wait for simulated providers most of the time.
    with Process[str](demo, cwd=tmp_path, env=environment, **pipes) as shown:
        ended = subprocess.run(
            [clean / "python", "examples.py"],
            cwd=tmp_path,
            env=environment,
            timeout=WITHIN_S,
            **pipes,
        )
        out, err = shown.communicate(timeout=WITHIN_S)
        assert shown.returncode == 0, out + err
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "figure True 2",
        "frame no_data_frames",
        "report True",
        "load True",
        "compare 4",
        "connect True True",
        "policy sim/groq",
    ]
    assert (tmp_path / "demo/report.html").stat().st_size > 100_000
    version = subprocess.run(
        [clean / "splitsecond", "--version"], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert version.stdout.startswith("splitsecond ")


def test_pytest_finds_the_plugin_of_a_wheel(clean: Path, tmp_path: Path) -> None:
    (site,) = clean.parent.glob("lib/python*/site-packages")
    for package in installed("pytest", {}).values():
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))))
    (tmp_path / "test_mock.py").write_text(
        "def test_it(splitsecond_simulator):\n"
        "    splitsecond_simulator.reply('Hi.')\n"
        "    assert splitsecond_simulator.requests() == []\n"
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST"))
    }
    command: list[str | Path] = [
        clean / "python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_mock.py",
    ]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_index_can_show_the_readme(clean: Path) -> None:
    """Its links are absolute or plain text, because the package index has none of our files."""
    (metadata,) = clean.parent.glob("lib/python*/site-packages/splitsecond-*.dist-info/METADATA")
    text = metadata.read_text("utf-8")
    assert "make demo" in text
    assert "docs/pictures" not in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
