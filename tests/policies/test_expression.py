"""Policies as text: parsing, printing, and messages for mistakes."""

import sys
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Service
from splitsecond.core.timing.uses import FIRST_TOKEN_USES
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.construction.expression import (
    DEEPEST,
    LONGEST,
    Expression,
    PolicyExpression,
    TargetName,
    parse,
    targets,
)
from splitsecond.routing.machinery.choosing.session_choice import CacheUse
from splitsecond.routing.machinery.settings import (
    Count,
    Duration,
    MemorySize,
    QueueLength,
    RegionName,
    SettingLiteral,
    Share,
    SpendingRate,
    Statistic,
    TokenRate,
    UseCase,
    Weights,
)
from splitsecond.routing.policies.cascade import AcceptanceRule
from splitsecond.routing.policies.fallback import HowOrOff
from splitsecond.routing.policies.fastest import Figure
from splitsecond.routing.policies.pipeline import EarlyStart
from splitsecond.routing.policies.race import RaceFigure
from splitsecond.routing.policies.resume import MIN_TOKENS
from splitsecond.routing.policies.split import Unit
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService

WHOLE = 'fallback(race("a/x", "b/x"), hedge("c/x", "d/x", extra_load=0.05), ttft="2s")'

NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8).filter(
    str.isprintable
)
DURATIONS = st.builds(
    "{}{}".format, st.integers(1, 1000), st.sampled_from(["ms", "s", "m"])
) | st.sampled_from(["24h", "0.5h", "1d"])
SHARES = st.floats(0.001, 1) | st.just(1) | st.sampled_from(["10%", "2.5%"])
VALUES: dict[object, st.SearchStrategy[SettingLiteral]] = {
    Duration: DURATIONS,
    Share: SHARES,
    Count: st.integers(1, 1_000_000),
    QueueLength: st.integers(0, 1_000_000),
    Figure: st.sampled_from(get_args(Figure)),
    Statistic: st.floats(0.5, 0.99) | st.just("mean"),
    UseCase: st.sampled_from(sorted(FIRST_TOKEN_USES)),
    RegionName: st.sampled_from(["eu", "eu-west"]),
    bool: st.booleans(),
    RaceFigure: st.sampled_from(get_args(RaceFigure)),
    MemorySize: st.sampled_from(["1MB", "64MB", "2GB"]),
    AcceptanceRule: st.sampled_from(["finished", "json", "re:^w", "re:never", "logprob>-0.5"]),
    EarlyStart: st.just(True) | DURATIONS,
    HowOrOff: st.sampled_from(get_args(HowOrOff)),
    CacheUse: st.sampled_from(get_args(CacheUse)),
    SpendingRate: st.sampled_from(["0.60/h", "0.01/m", "3/h"]),
    Unit: st.sampled_from(get_args(Unit)),
    TokenRate: st.sampled_from(["8tok/s", "4000tok/s", "0.5tok/s"]),
}
ANY_NAME = ("code", "chat", "default")


@st.composite
def rules(draw: st.DrawFn, branches: st.SearchStrategy[Expression]) -> PolicyExpression:
    policy = draw(st.sampled_from(sorted(POLICIES)))
    form = POLICIES[policy]
    drawn = draw(
        st.lists(branches, min_size=form.least, max_size=4 if form.most is None else form.most)
    )
    must = draw(st.sampled_from(form.one_of or form.required or ("",)))
    names = [
        name
        for name in draw(st.permutations(sorted(form.settings)))
        if name == must or draw(st.booleans())
    ]
    values = {**VALUES, Weights: weights(len(drawn))}
    settings = tuple(
        (name, draw(values[form.settings[name]])) for name in names if name in form.settings
    )
    possible = ANY_NAME if form.named is None else form.named
    if policy == "hedge":  # a hedge of one target with itself is refused
        assume(set(targets(drawn[0])) != set(targets(drawn[1])))
    # a time without a floor is refused, and a floor of less than four tokens
    if "over" in form.settings:
        rate, over = (dict(settings).get(name) for name in ("floor", "over"))
        assume(over is None or (rate is not None and _tokens(rate, over) >= MIN_TOKENS))
    given = [
        name for name in draw(st.permutations(possible)) if name == must or draw(st.booleans())
    ]
    if not drawn and not given:
        given = [possible[0]]
    return PolicyExpression(
        policy, tuple(drawn), settings, tuple((name, draw(branches)) for name in given)
    )


def _tokens(rate: SettingLiteral, over: SettingLiteral) -> float:
    return TokenRate.parse("floor", rate).tokens_per_s * Duration.parse("over", over).ns / NS_PER_S


def weights(of: int) -> st.SearchStrategy[SettingLiteral]:
    return st.lists(st.integers(1, 1000), min_size=of, max_size=of).map(
        lambda drawn: ",".join(map(str, drawn))
    )


def in_region(where: str = "eu-west") -> TargetStates:
    """Return states of targets that are all in the region `where`; nothing else is known."""
    return TargetStates(lambda name: TargetInfo(region=where))


def made(expression: Expression) -> Service:
    return build(expression, _Named, in_region())


def expressions(
    names: st.SearchStrategy[str] = NAMES, leaves: int = 8
) -> st.SearchStrategy[Expression]:
    return st.recursive(st.builds(TargetName, names), rules, max_leaves=leaves)


def test_policy_is_parsed_into_a_tree() -> None:
    assert parse(WHOLE) == PolicyExpression(
        "fallback",
        (
            PolicyExpression("race", (TargetName("a/x"), TargetName("b/x"))),
            PolicyExpression(
                "hedge", (TargetName("c/x"), TargetName("d/x")), (("extra_load", 0.05),)
            ),
        ),
        (("ttft", "2s"),),
    )


def test_a_target_is_a_policy() -> None:
    assert parse(' "a/x" ') == TargetName("a/x")


@pytest.mark.parametrize(
    "name",
    [
        "a/x",
        "groq/openai/gpt-oss-120b",
        "ollama/llama3.1:8b",
        "fireworks/accounts/fireworks/models/m-1",
        "a/1",
    ],
)
def test_a_target_alone_needs_no_quotes(name: str) -> None:
    assert parse(name) == parse(f" {name}\n") == parse(f'"{name}"') == TargetName(name)


def test_expression_prints_as_it_was_written() -> None:
    assert repr(parse(WHOLE)) == WHOLE


def test_expression_may_have_line_breaks_anywhere() -> None:
    broken = WHOLE.replace("(", "\n  (\n  ").replace(",", "\t,\r\n")
    assert parse(f"\n  {broken}\n") == parse(WHOLE)


@given(expressions())
def test_printed_expressions_can_be_parsed(expression: Expression) -> None:
    assert parse(repr(expression)) == expression


@given(expressions())
def test_a_printed_service_can_be_built_again(expression: Expression) -> None:
    printed = repr(made(expression))
    assert repr(made(parse(printed))) == printed


class _Named(FakeService):
    """A fake whose `repr` is its target in an expression, with any characters."""

    def __init__(self, name: str) -> None:
        super().__init__(target=name)
        self._name = name

    def __repr__(self) -> str:
        return repr(TargetName(self._name))


def test_each_target_is_made_once() -> None:
    made: list[str] = []

    def target(name: str) -> FakeService:
        made.append(name)
        return FakeService(target=name)

    expression = parse('fallback(race("a/x", "b/x"), "a/x")')
    service = build(expression, target)
    assert made == targets(expression) == ["a/x", "b/x"]
    assert repr(service) == repr(expression)


WRONG = [
    ('rase("a/x", "b/x")', 1, "unknown policy rase", "Did you mean race"),
    ('fallback("a/x", zz("b/x"))', 17, "unknown policy zz", "There are: race, hedge"),
    ('race("a/x")', 1, "race has 1 branch, expected 2 or more", 'race("a/x", "b/x")'),
    ("race()", 1, "race has 0 branches", 'race("a/x", "b/x")'),
    ("race", 1, "race has no branches", 'race("a/x", "b/x")'),
    ('hedge("a/x", "b/x", "c/x")', 1, "hedge has 3 branches, expected 2", "extra_load=0.05"),
    ('hedge("a/x", "b/x", load=0.1)', 21, "hedge has no setting load", "Did you mean extra_load?"),
    ('race("a/x", "b/x", ttft="2s")', 20, "race has no setting ttft", "There are: by, spend."),
    (
        'race("a/x", "b/x", spend=1)',
        20,
        'spend is 1, expected US dollars an hour or a minute such as "0.60/h"',
        "",
    ),
    ('race("a/x", "b/x", spend="0/h")', 20, 'spend is "0/h"', ""),
    (
        'resume("a/x", "b/x", how="replay")',
        22,
        "resume has no setting how",
        "There are: stall, floor, over.",
    ),
    (
        'fallback("a/x", "b/x", resume="prefill")',
        24,
        'resume is "prefill", expected one of replay, off',
        "",
    ),
    ('fallback("a/x", "b/x", resume=True)', 24, "resume is True, expected one of replay, off", ""),
    ('hedge("a/x", "b/x", extra_load="5")', 21, 'extra_load is "5", expected a number', ""),
    ('hedge("a/x", "b/x", extra_load=True)', 21, "extra_load is True", ""),
    (
        'hedge("a/x", "b/x", extra_load=5)',
        21,
        "extra_load is 5, expected a number from 0.001 to 1",
        "",
    ),
    (
        'hedge("a/x", "b/x", extra_load=1e999 - 1e999)',
        21,
        "is not a plain value: 1e999 - 1e999",
        "",
    ),
    ('hedge("a/x", "b/x", extra_load=-0.05)', 21, "extra_load is -0.05", ""),
    ('hedge("a/x", "b/x", extra_load=0.1, extra_load=0.1)', 37, "extra_load is given twice", ""),
    ('hedge("a/x", "b/x", **more)', 21, "hedge has no setting **", ""),
    ('fallback("a/x", "b/x", ttft=2)', 24, "ttft is 2, expected a duration", ""),
    ('fallback("a/x", "b/x", ttft="0s")', 24, 'ttft is "0s"', ""),
    ('fallback("a/x", "b/x", ttft="2 s")', 24, 'ttft is "2 s"', ""),
    ('fallback("a/x", "b/x", ttft="99999m")', 24, "at most a day", ""),
    ('deadline("a/x")', 1, "deadline needs total or ttft", 'total="10s"'),
    ('limit("a/x", queue=3)', 1, "limit needs concurrency", ""),
    ('limit("a/x", concurrency=0)', 14, "concurrency is 0, expected a whole number, 1 or more", ""),
    ('limit("a/x", concurrency=1.5)', 14, "concurrency is 1.5", ""),
    ('fastest("a/x")', 1, "fastest has 1 branch, expected 2 or more", "fastest("),
    (
        'fastest("a/x", "b/x", by="speed")',
        23,
        'by is "speed", expected one of total, ttft, tps',
        "",
    ),
    (
        'fastest("a/x", "b/x", at=1)',
        23,
        'at is 1, expected "mean", or a number from 0.5 to 0.99',
        "",
    ),
    ('fastest("a/x", "b/x", at=True)', 23, "at is True", ""),
    (
        'cheapest("a/x", "b/x", within="radio")',
        24,
        'within is "radio", expected one of edge, translation, voice',
        "",
    ),
    ('cheapest("a/x", "b/x", ttft="300")', 24, 'ttft is "300", expected a duration', ""),
    (
        'weighted("a/x", "b/x", weights="3,0")',
        24,
        'weights is "3,0", expected whole numbers from 1 to 1000',
        "",
    ),
    ('weighted("a/x", "b/x", weights=3)', 24, "weights is 3", ""),
    ('sticky("a/x", "b/x", ttl="0s")', 22, 'ttl is "0s", expected a duration', ""),
    ('near("a/x", "b/x")', 1, "near needs region", 'region="eu"'),
    (
        'near("a/x", region="EU west")',
        13,
        'region is "EU west", expected a region such as "eu"',
        "",
    ),
    ('limit("a/x", concurrency=1, queue=-1)', 29, "queue is -1", ""),
    ("race(a/x, b/x)", 6, "expected a target or a policy, got a/x", "in quotes"),
    ('race("a/x", *others)', 13, "got *others", ""),
    ('"é/é" + race("b/x")', 1, "expected a target or a policy", ""),
    ('race("é/é", 5)', 13, "got 5", ""),
    ('race("a x", "b/x")', 6, '"a x" is not a target\'s name', "provider/model"),
    ('race("", "b/x")', 6, '"" is not a target\'s name', "provider/model"),
    ('race("a/x", b"b/x")', 13, "got b", ""),
    ('race("a/x", f"{secret}")', 13, "got f", ""),
    ('  race("a/x",', 7, "never closed", ""),
    ('race("\\d", "b/x")', 6 if sys.version_info < (3, 14) else 7, "escape", ""),
    ('a.race("a/x", "b/x")', 1, "expected a target or a policy, got a.race", ""),
    ('(lambda: 0)("a/x")', 1, "expected a target or a policy", ""),
    ('__import__("os")', 1, "unknown policy __import__", ""),
    ("", 1, "", ""),
    ("race(" * 300, 1, "", ""),
    ('"a\0b"', 1, "", ""),
    ('"\ud800"', 1, "cannot be read", ""),
]


@each_case(("text", "place", "message", "hint"), WRONG)
def test_messages_name_the_place_of_a_mistake(
    text: str, place: int, message: str, hint: str
) -> None:
    with pytest.raises(CallerFault) as raised:
        parse(text)
    fault = raised.value
    assert fault.kind == "bad_policy"
    assert message in fault.message
    assert hint in fault.hint
    if message:
        assert f"at character {place}:" in fault.message


def test_too_deep_or_too_long_expressions_are_refused() -> None:
    nested = '"a/x"'
    for _ in range(DEEPEST):
        nested = f"retry({nested})"
    parse(nested)
    with pytest.raises(CallerFault, match=f"more than {DEEPEST} deep"):
        parse(f"retry({nested})")
    with pytest.raises(CallerFault, match=f"the maximum is {LONGEST:,}"):
        parse('"' + "a" * LONGEST + '"')
    for text in (
        "-" * (LONGEST - 1) + "1",
        "(" * (LONGEST // 2) + ")" * (LONGEST // 2),
        "a." * (LONGEST // 2) + "b",
    ):
        with pytest.raises(CallerFault):
            parse(text)


@given(
    st.text(st.sampled_from('race(hdg)fb"/x,=.0125stl \n*{}[]:\\'), max_size=40)
    | st.text(max_size=40)
)
def test_any_text_is_a_policy_or_raises_caller_fault(text: str) -> None:
    try:
        expression = parse(text)
    except CallerFault:
        return
    assert parse(repr(expression)) == expression


def test_half_a_surrogate_is_escaped_in_messages_and_in_repr() -> None:
    with pytest.raises(CallerFault, match=r'"\\ud800/x" is not a target'):
        parse('"\\ud800/x"')
    policy = parse('cascade("a/x", "b/x", accept="re:\\ud800\U000e0001")')
    repr(policy).encode()
    assert parse(repr(policy)) == policy


@each_case("policy", sorted(POLICIES))
def test_every_example_can_be_parsed_and_built(policy: str) -> None:
    example = POLICIES[policy].example
    assert repr(parse(example)) == example
    assert repr(made(parse(example))) == example
    assert POLICIES[policy].name == policy


def test_a_long_value_is_cut_in_messages() -> None:
    with pytest.raises(CallerFault) as raised:
        Duration.parse("ttft", "x" * 1000)
    assert len(raised.value.message) < 200
    with pytest.raises(CallerFault, match="not a number"):
        Share.parse("extra_load", float("nan"))
    with pytest.raises(CallerFault, match="None"):
        Share.parse("extra_load", None)
