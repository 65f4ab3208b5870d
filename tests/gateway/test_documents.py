"""Examples in the documents can be used unchanged."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from splitsecond.log.store.log import Log
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.configuration.warnings import problems
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.construction.user_policies import PolicyFile
from splitsecond.routing.router.router import check_settings

ROOT = Path(__file__).parents[2]
PROVIDERS = ("GROQ", "CEREBRAS", "TOGETHER", "DEEPINFRA", "OPENAI", "ANTHROPIC")
KEYS = ("WEB_KEY", *(f"{name}_API_KEY" for name in PROVIDERS))
SHARED = {"SHARED_URL": "postgresql://splitsecond:PASSWORD@db.internal/splitsecond"}
TEAM = {f"{name}_KEY": f"a-key-of-the-client-{name}" for name in ("ALICE", "BOB")}
ENVIRONMENT = {**dict.fromkeys(KEYS, "a-key-that-is-long-enough"), **TEAM, **SHARED}
ROUTES = "routes: {fast: {policy: sim/groq}}\n"
"""The rest of a configuration of which only a part is shown."""


@pytest.mark.parametrize(
    "document",
    ["README.md", "docs/agents.md", "docs/gateway.md", "docs/fleet.md", "docs/policies.md"],
)
def test_each_configuration_can_be_served(document: str, tmp_path: Path) -> None:
    (tmp_path / "my_policies.py").write_text(own_policies())
    shown = re.findall(r"```yaml\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert shown
    for text in shown:
        whole = text if "routes:" in text else text + ROUTES
        settings = read(whole, ENVIRONMENT, folder=tmp_path)
        check_settings(settings)
        assert settings.routes
        assert [each for each in problems(settings) if not each.startswith("seeds")] == []


def test_every_policy_is_documented_with_valid_examples() -> None:
    text = (ROOT / "docs/policies.md").read_text()
    shown = [found for found in re.findall(r"`([a-z_]+\(.*?\))`", text) if "…" not in found]
    described = {found.partition("(")[0] for found in shown}
    assert described == set(POLICIES)
    for found in shown:
        assert parse(found)


def own_policies() -> str:
    """Return the file of policies that docs/policies.md shows. Its other block of Python is a
    policy as text."""
    policy, shown = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/policies.md").read_text(), re.DOTALL
    )
    assert parse(policy)
    return str(shown)


def test_the_policy_file_that_is_shown_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "my_policies.py").write_text(own_policies())
    assert list(PolicyFile.read(tmp_path / "my_policies.py").policies()) == ["small_first"]


def test_the_query_that_is_shown_runs(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/gateway.md").read_text(), re.DOTALL)
    path = tmp_path / "log.db"
    Log.open(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as log:
        assert [column for column, *_ in log.execute(shown).description] == [
            "target", "ttft_ms", "queue_ms", "outside_ms",
        ]  # fmt: skip
