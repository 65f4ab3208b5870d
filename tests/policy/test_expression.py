"""Policies as text: what is read, what is printed, and what is said of text that is wrong."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from splitsecond.errors import CallerFault
from splitsecond.policy.answers.acceptance import acceptance
from splitsecond.policy.building import build
from splitsecond.policy.expression import DEEPEST, LONGEST, Expression, Rule, TargetName, parse, targets
from splitsecond.policy.forms import POLICIES
from splitsecond.policy.pipeline import early_start
from splitsecond.policy.resume import way
from splitsecond.policy.settings import (
    FIGURES,
    Setting,
    count,
    duration,
    figure,
    flag,
    length,
    memory,
    quantile,
    region,
    share,
    shares,
    spending,
    use,
)
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Service
from splitsecond.testing.fake_service import FakeService
from splitsecond.timing.uses import USES

WHOLE = 'fallback(race("a/x", "b/x"), hedge("c/x", "d/x", extra_load=0.05), ttft="2s")'

NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8).filter(str.isprintable)
DURATIONS = st.builds("{}{}".format, st.integers(1, 1000), st.sampled_from(["ms", "s", "m"])) | st.sampled_from(
    ["24h", "0.5h", "1d"]
)
SHARES = st.floats(0.001, 1) | st.just(1)
VALUES: dict[object, st.SearchStrategy[Setting]] = {
    duration: DURATIONS,
    share: SHARES,
    count: st.integers(1, 1_000_000),
    length: st.integers(0, 1_000_000),
    figure: st.sampled_from(FIGURES),
    quantile: st.floats(0.5, 0.99),
    use: st.sampled_from(sorted(USES)),
    region: st.sampled_from(["eu", "eu-west"]),
    flag: st.booleans(),
    memory: st.sampled_from(["1MB", "64MB", "2GB"]),
    acceptance: st.sampled_from(["finished", "json", "re:^w", "re:never", "logprob>-0.5"]),
    early_start: st.just(True) | DURATIONS,
    way: st.sampled_from(["replay", "prefill"]),
    spending: st.sampled_from(["0.60/h", "0.01/m", "3/h"]),
}
ANY_NAME = ("code", "chat", "default")


@st.composite
def rules(draw: st.DrawFn, branches: st.SearchStrategy[Expression]) -> Rule:
    policy = draw(st.sampled_from(sorted(POLICIES)))
    form = POLICIES[policy]
    drawn = draw(st.lists(branches, min_size=form.least, max_size=4 if form.most is None else form.most))
    must = draw(st.sampled_from(form.needs)) if form.needs else ""
    names = [name for name in draw(st.permutations(sorted(form.settings))) if name == must or draw(st.booleans())]
    values = {**VALUES, shares: weights(len(drawn))}
    settings = tuple((name, draw(values[form.settings[name]])) for name in names if name in form.settings)
    possible = ANY_NAME if form.named is None else form.named
    if policy == "hedge":  # of one target with itself it cannot be made
        assume(set(targets(drawn[0])) != set(targets(drawn[1])))
    given = [name for name in draw(st.permutations(possible)) if name == must or draw(st.booleans())]
    if not drawn and not given:
        given = [possible[0]]
    return Rule(policy, tuple(drawn), settings, tuple((name, draw(branches)) for name in given))


def weights(of: int) -> st.SearchStrategy[Setting]:
    return st.lists(st.integers(1, 1000), min_size=of, max_size=of).map(lambda drawn: ",".join(map(str, drawn)))


def in_region(where: str = "eu-west") -> Standing:
    """Of targets that are all there; nothing else is known of them."""
    return Standing(lambda name: Facts(region=where))


def made(expression: Expression) -> Service:
    return build(expression, _Named, in_region())


def expressions(names: st.SearchStrategy[str] = NAMES, leaves: int = 8) -> st.SearchStrategy[Expression]:
    return st.recursive(st.builds(TargetName, names), rules, max_leaves=leaves)


def test_a_policy_is_a_tree() -> None:
    assert parse(WHOLE) == Rule(
        "fallback",
        (
            Rule("race", (TargetName("a/x"), TargetName("b/x"))),
            Rule("hedge", (TargetName("c/x"), TargetName("d/x")), (("extra_load", 0.05),)),
        ),
        (("ttft", "2s"),),
    )


def test_a_target_is_a_policy() -> None:
    assert parse(' "a/x" ') == TargetName("a/x")


@pytest.mark.parametrize(
    "name",
    ["a/x", "groq/openai/gpt-oss-120b", "ollama/llama3.1:8b", "fireworks/accounts/fireworks/models/m-1", "a/1"],
)
def test_a_target_alone_needs_no_quotes(name: str) -> None:
    assert parse(name) == parse(f" {name}\n") == parse(f'"{name}"') == TargetName(name)


def test_it_prints_as_it_was_written() -> None:
    assert repr(parse(WHOLE)) == WHOLE


def test_lines_may_be_broken_anywhere() -> None:
    broken = WHOLE.replace("(", "\n  (\n  ").replace(",", "\t,\r\n")
    assert parse(f"\n  {broken}\n") == parse(WHOLE)


@given(expressions())
def test_what_is_printed_is_read_back(expression: Expression) -> None:
    assert parse(repr(expression)) == expression


@given(expressions())
def test_a_service_prints_as_what_makes_it_again(expression: Expression) -> None:
    printed = repr(made(expression))
    assert repr(made(parse(printed))) == printed


class _Named(FakeService):
    """Prints as it is written in an expression, whatever characters its name has."""

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
    ('race("a/x", "b/x", ttft="2s")', 20, "race has no setting ttft", "There are: spend."),
    ('race("a/x", "b/x", spend=1)', 20, 'spend is 1, expected US dollars an hour or a minute such as "0.60/h"', ""),
    ('race("a/x", "b/x", spend="0/h")', 20, 'spend is "0/h"', ""),
    ('resume("a/x", "b/x", how="again")', 22, 'how is "again", expected one of replay, prefill', ""),
    ('fallback("a/x", "b/x", resume=True)', 24, "resume is True, expected one of replay, prefill", ""),
    ('hedge("a/x", "b/x", extra_load="5%")', 21, 'extra_load is "5%", expected a number', ""),
    ('hedge("a/x", "b/x", extra_load=True)', 21, "extra_load is True", ""),
    ('hedge("a/x", "b/x", extra_load=5)', 21, "extra_load is 5, expected a number from 0.001 to 1", ""),
    ('hedge("a/x", "b/x", extra_load=1e999 - 1e999)', 21, "no plain value: 1e999 - 1e999", ""),
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
    ('fastest("a/x", "b/x", by="speed")', 23, 'by is "speed", expected one of total, ttft, tps', ""),
    ('fastest("a/x", "b/x", at=1)', 23, "at is 1, expected a number from 0.5 to 0.99", ""),
    ('fastest("a/x", "b/x", at=True)', 23, "at is True", ""),
    ('cheapest("a/x", "b/x", within="radio")', 24, 'within is "radio", expected one of edge, translation, voice', ""),
    ('cheapest("a/x", "b/x", ttft="300")', 24, 'ttft is "300", expected a duration', ""),
    ('weighted("a/x", "b/x", weights="3,0")', 24, 'weights is "3,0", expected whole numbers from 1 to 1000', ""),
    ('weighted("a/x", "b/x", weights=3)', 24, "weights is 3", ""),
    ('sticky("a/x", "b/x", ttl="0s")', 22, 'ttl is "0s", expected a duration', ""),
    ('near("a/x", "b/x")', 1, "near needs region", 'region="eu"'),
    ('near("a/x", region="EU west")', 13, 'region is "EU west", expected a region such as "eu"', ""),
    ('limit("a/x", concurrency=1, queue=-1)', 29, "queue is -1", ""),
    ("race(a/x, b/x)", 6, "expected a target or a policy, got a/x", "in quotes"),
    ('race("a/x", *others)', 13, "got *others", ""),
    ('"é/é" + race("b/x")', 1, "expected a target or a policy", ""),
    ('race("é/é", 5)', 13, "got 5", ""),
    ('race("a x", "b/x")', 6, '"a x" is no target\'s name', "provider/model"),
    ('race("", "b/x")', 6, '"" is no target\'s name', "provider/model"),
    ('race("a/x", b"b/x")', 13, "got b", ""),
    ('race("a/x", f"{secret}")', 13, "got f", ""),
    ('  race("a/x",', 7, "never closed", ""),
    ('race("\\d", "b/x")', 6, "escape", ""),
    ('a.race("a/x", "b/x")', 1, "expected a target or a policy, got a.race", ""),
    ('(lambda: 0)("a/x")', 1, "expected a target or a policy", ""),
    ('__import__("os")', 1, "unknown policy __import__", ""),
    ("", 1, "", ""),
    ("race(" * 300, 1, "", ""),
    ('"a\0b"', 1, "", ""),
    ('"\ud800"', 1, "cannot be read", ""),
]


@pytest.mark.parametrize(("text", "place", "message", "hint"), WRONG)
def test_what_is_wrong_is_said_with_its_place(text: str, place: int, message: str, hint: str) -> None:
    with pytest.raises(CallerFault) as raised:
        parse(text)
    fault = raised.value
    assert fault.kind == "bad_policy"
    assert message in fault.message
    assert hint in fault.hint
    if message:
        assert f"at character {place}:" in fault.message


def test_too_deep_and_too_long() -> None:
    nested = '"a/x"'
    for _ in range(DEEPEST):
        nested = f"retry({nested})"
    parse(nested)
    with pytest.raises(CallerFault, match=f"more than {DEEPEST} deep"):
        parse(f"retry({nested})")
    with pytest.raises(CallerFault, match=f"at most {LONGEST}"):
        parse('"' + "a" * LONGEST + '"')
    for text in ("-" * (LONGEST - 1) + "1", "(" * (LONGEST // 2) + ")" * (LONGEST // 2), "a." * (LONGEST // 2) + "b"):
        with pytest.raises(CallerFault):
            parse(text)


@given(st.text(st.sampled_from('race(hdg)fb"/x,=.0125stl \n*{}[]:\\'), max_size=40) | st.text(max_size=40))
def test_any_text_is_a_policy_or_the_callers_fault(text: str) -> None:
    try:
        expression = parse(text)
    except CallerFault:
        return
    assert parse(repr(expression)) == expression


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_example_is_right(policy: str) -> None:
    example = POLICIES[policy].example
    assert repr(parse(example)) == example
    assert repr(made(parse(example))) == example
    assert POLICIES[policy].make.__name__ == policy


def test_a_long_value_is_cut_in_messages() -> None:
    with pytest.raises(CallerFault) as raised:
        duration("ttft", "x" * 1000)
    assert len(raised.value.message) < 200
    with pytest.raises(CallerFault, match="not a number"):
        share("extra_load", float("nan"))
    with pytest.raises(CallerFault, match="None"):
        share("extra_load", None)
