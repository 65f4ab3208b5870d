"""docs/simulator.md: its examples run as they stand, and it names all settings, fields and
paths."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from tests.cases import each_case

from splitsecond.simulator.content.faults import FaultKind, InjectedFault
from splitsecond.simulator.content.replies import ReplyRule, RuleCall, RuleError
from splitsecond.simulator.endpoints import endpoint_at
from splitsecond.simulator.profile import (
    EngineSpec,
    PromptCacheSpec,
    RateLimitSpec,
    ReplicasSpec,
    TimingsForm,
    load,
    parse,
)
from splitsecond.simulator.truth import TruthRecord

pytest_plugins = ["pytester"]
TEXT = (Path(__file__).parents[2] / "docs/simulator.md").read_text()
UNTOLD = {"profile"}


def test_each_documented_profile_is_valid() -> None:
    shown = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    table, engine, agents = (parse(text, name="shown", where="docs/simulator.md") for text in shown)
    assert table.prompt_cache is not None
    assert table.rate_limits is not None
    assert table.faults
    assert table.replies
    assert table.keys
    assert engine.engine is not None
    assert agents.replicas is not None


@each_case(
    "spec",
    [
        EngineSpec,
        PromptCacheSpec,
        RateLimitSpec,
        ReplicasSpec,
        TruthRecord,
        ReplyRule,
        RuleCall,
        RuleError,
        InjectedFault,
    ],
)
def test_each_setting_and_each_field_is_named(spec: type[msgspec.Struct]) -> None:
    named = set(re.findall(r"\w+", TEXT))
    assert set(spec.__struct_fields__) - UNTOLD <= named


def test_each_kind_of_fault_and_each_form_is_named() -> None:
    named = set(re.findall(r"`([\w.]+)`", TEXT))
    assert set(get_args(FaultKind)) <= named
    forms = {form for group in get_args(TimingsForm) for form in get_args(group) if form}
    assert len(forms) == 4
    assert forms <= named


def test_each_documented_path_and_profile_exists() -> None:
    paths = re.findall(r"`(/v1[^`]*|/v2[^`]*|/api[^`]*)`", TEXT)
    answered = [path for path in paths if endpoint_at(path.replace("MODEL", "m"))]
    assert len(answered) >= 12
    assert load("steady-cached").prompt_cache is not None


def test_the_examples_for_pytest_pass(
    system: None, pytester: pytest.Pytester, plugin_options: list[str]
) -> None:
    examples = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    pytester.makepyfile(**{f"test_example_{number}": text for number, text in enumerate(examples)})
    pytester.runpytest_subprocess(*plugin_options, "-p", "no:cacheprovider").assert_outcomes(
        passed=3
    )
