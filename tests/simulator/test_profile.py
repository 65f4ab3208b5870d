"""Profiles: the shipped ones have the published figures, and errors in a file name their place."""

from pathlib import Path

import pytest
from tests.cases import each_case
from tests.simulator.published import PUBLISHED

from splitsecond.core.errors import CallerFault
from splitsecond.simulator import profile


def test_the_shipped_tables_are_the_published_ones() -> None:
    shipped = [
        (alias, row.concurrency, row.ttft_ms.p50, row.tps.p50, row.ttft_ms.p95, row.tps.p95)
        for alias in sorted({row.profile for row in PUBLISHED})
        for row in profile.load(alias).table
    ]
    assert sorted(shipped) == sorted(tuple(row) for row in PUBLISHED)


@pytest.fixture(scope="module")
def shipped() -> dict[str, profile.Profile]:
    """The shipped profiles by name."""
    return {name: profile.load(name) for name in profile.names()}


def test_every_shipped_profile_loads_and_states_its_source(
    shipped: dict[str, profile.Profile],
) -> None:
    assert len(shipped) > 25
    for name, found in shipped.items():
        assert found.name == name
        assert found.source
        assert found.title


def test_names_and_aliases_do_not_clash(shipped: dict[str, profile.Profile]) -> None:
    aliases = profile.aliases()
    assert not aliases.keys() & shipped.keys()
    assert sum(len(found.aliases) for found in shipped.values()) == len(aliases)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("grok", "groq"),
        ("mixtral", "groq-mixtral, together-mixtral"),
        ("openai", "openai-gpt-4-turbo, openai-gpt-5-mini, openai-gpt-5.2"),
        ("zzzz", "--list"),
        ("", "--list"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(name: str, hint: str) -> None:
    with pytest.raises(CallerFault) as caught:
        profile.load(name)
    assert caught.value.kind == "unknown_profile"
    assert hint in caught.value.hint


GOOD = """
title = "Mine"
model = "m"
[[table]]
concurrency = 1
ttft_ms = { p50 = 100, p95 = 200 }
tps = { p50 = 50, p95 = 40 }
"""
ENGINE = """
[engine]
slots = 1
prefill_tokens_per_s = 1000
prefill_chunk_tokens = 512
step_base_ms = 10
step_per_sequence_ms = 1
"""


def test_profile_from_a_file_has_the_name_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    assert profile.load(str(file)).name == "mine"


def test_missing_or_unreadable_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match=r"cannot read the profile .*absent.toml"):
        profile.load(str(tmp_path / "absent.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CallerFault, match="cannot read"):
        profile.load(str(tmp_path / "binary.toml"))


@each_case(
    "text, message",
    [
        ("title = ", "x.toml: Invalid value"),
        (GOOD.replace('model = "m"', ""), "missing required field `model`"),
        (
            GOOD.replace("p50 = 100", "p50 = 'fast'"),
            r"table\[0\].ttft_ms.p50: .*Expected `float`, got `str`",
        ),
        (
            GOOD.replace("p50 = 100", "p50 = 300"),
            r"table\[0\]: .*0 < p50 <= p95, not 300.0 and 200.0",
        ),
        (GOOD.replace("p95 = 40", "p95 = 60"), r"slow tail\), not 60.0 and 50.0"),
        (
            GOOD.replace("concurrency = 1", "concurrency = 0"),
            r"table\[0\].concurrency: .*Expected `int` >= 1",
        ),
        (GOOD + GOOD[GOOD.index("[[table]]") :], r"increasing concurrency, not \[1, 1\]"),
        (GOOD + ENGINE, "either .* or an .engine., and not both"),
        ('title = "a"\nmodel = "m"', "either .* or an .engine., and not both"),
        (GOOD.replace('model = "m"', 'model = "m"\noutput_tokens = 0'), r"output_tokens: .*>= 1"),
        (
            GOOD.replace('model = "m"', 'model = "m"\nreasoning_tokens = -1'),
            r"reasoning_tokens: .*>= 0",
        ),
        (GOOD + "colour = 1", "unknown field `colour`"),
        (GOOD.replace("title", "titel"), "unknown field `titel`. Did you mean title"),
        (
            GOOD + "[[replies]]\npromt = 'x'",
            r"replies\[0\]: .*unknown field `promt`. Did you mean prompt",
        ),
        (
            GOOD + "[[replies]]\ntext = 'x'\nrefusal = 'y'",
            r"replies\[0\]: .*one of text, json, calls, refusal and error",
        ),
        (GOOD + "[[replies]]\nfault = 'stahl'", r"replies\[0\]: .*Invalid enum value 'stahl'"),
        (GOOD + "[[replies]]\npattern = '('", r"replies\[0\]: .*not a regular expression"),
        (
            GOOD + "[[replies]]\ncalls = [{ nam = 'x' }]",
            r"replies\[0\].calls\[0\]: .*`nam`. Did you mean name",
        ),
        (GOOD + '[[faults]]\nkind = "stahl"', r"faults\[0\].kind: .*Invalid enum value 'stahl'"),
        (
            'title = "a"\nmodel = "m"' + ENGINE.replace("slots = 1", "slots = 0"),
            r"engine.slots: .*Expected `int` >= 1",
        ),
        (
            'title = "a"\nmodel = "m"'
            + ENGINE
            + "step_per_sequence_ms = -1".replace("step_per", "x_per"),
            "x_per_sequence_ms",
        ),
        (
            'title = "a"\nmodel = "m"'
            + ENGINE.replace("step_per_sequence_ms = 1", "step_per_sequence_ms = -1"),
            r"engine.step_per_sequence_ms: .*Expected `float` >= 0.0",
        ),
        ('title = "a"\nmodel = "m"' + ENGINE + "queue_limit = -1", r"engine.queue_limit: .*>= 0"),
        ('title = "a"\nmodel = "m"' + ENGINE + "full_status = 200", r"engine.full_status: .*200"),
        (GOOD + "[prompt_cache]\nblock_tokens = 0", r"prompt_cache.block_tokens: .*>= 1"),
        (
            'title = "a"\nmodel = "m"\nprefill_tokens_per_s = 9' + ENGINE,
            "prefill_tokens_per_s .* for tables only",
        ),
        (
            "prefill_tokens_per_s = 9" + GOOD + "[prompt_cache]\nsaves = 0.5",
            "either prefill_tokens_per_s or .*saves",
        ),
        (GOOD + "[replicas]\ncount = 0", r"replicas.count: .*>= 1"),
        (GOOD + "[replicas]\ncount = 2\nrouting = 'prefix'", r"needs a \[prompt_cache\]"),
        (
            GOOD + "[prompt_cache]\ncapacity_tokens = 128_000_001",
            "more than 1,000,000 blocks; take longer blocks",
        ),
        (GOOD + "[prompt_cache]\nsaves = 1", "saves must be from 0 to below 1, not 1.0"),
        (
            'title = "a"\nmodel = "m"' + ENGINE + "[prompt_cache]\nsaves = 0.5",
            "saves is for tables only",
        ),
    ],
)
def test_invalid_profile_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(CallerFault, match=message) as caught:
        profile.parse(text, name="x", where="x.toml")
    assert str(caught.value).startswith("x.toml: ")
    assert caught.value.kind == "bad_profile"
