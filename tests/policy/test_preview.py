"""Where calls would go, without one going there."""

from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.policy.expression import parse
from splitsecond.policy.preview import Choice, preview, sample
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.standing import Standing
from splitsecond.testing.virtual_time import run_virtual
from splitsecond.timing.observation import FaultRecord, Observation


def answered(target: str, ttft_ms: int) -> Observation:
    return Observation(
        id="x", call="c", target=target, sent_ns=1, first_token_ns=1 + ttft_ms * NS_PER_MS, end_ns=2 * NS_PER_S
    )


def failed(target: str) -> Observation:
    fault = FaultRecord(type="NetworkFault", kind="refused", phase="connect", message="refused")
    return Observation(id="x", call="c", target=target, outcome="failed", fault=fault, end_ns=1)


def choices(policy: str, standing: Standing | None = None, prompt: str = "Hello.") -> list[Choice]:
    found: list[Choice] = []

    async def act() -> None:
        found.extend(await preview(parse(policy), standing or Standing(), sample(prompt), calls=20))

    run_virtual(act())
    return found


def test_all_of_a_race_are_asked_and_the_first_of_a_fallback() -> None:
    assert choices('fallback(race("a/x", "b/x"), "c/x")') == [Choice(calls=20, targets=("a/x", "b/x"))]


def test_one_that_is_down_is_passed_over() -> None:
    standing = Standing()

    async def break_it() -> None:
        for _ in range(5):
            standing.observe(failed("a/x"))
        assert not standing.available("a/x")
        (choice,) = await preview(parse('fallback("a/x", "b/x")'), standing, sample("Hello."), calls=3)
        assert choice == Choice(calls=3, targets=("b/x",))
        (choice,) = await preview(parse('retry("a/x")'), standing, sample(""), calls=3)
        assert choice.targets == ("a/x",)  # the last one is asked all the same
        assert standing.in_flight("a/x") == 0

    run_virtual(break_it())


def test_the_fastest_of_those_that_are_known_and_why() -> None:
    standing = Standing()

    async def act() -> None:
        for _ in range(50):
            standing.observe(answered("a/x", 900))
            standing.observe(answered("b/x", 100))
        first, *others = await preview(parse('fastest("a/x", "b/x", by="ttft")'), standing, sample("Hello."), calls=50)
        assert first.targets == ("b/x",)
        assert first.calls > 40
        assert "b/x" in first.why
        assert sum(choice.calls for choice in [first, *others]) == 50

    run_virtual(act())


def test_a_prompt_decides_and_prices_do() -> None:
    by_complexity = 'by_complexity(simple="a/x", complex="b/x")'
    assert choices(by_complexity)[0].targets == ("a/x",)
    facts = {"a/x": Facts(input_usd=2, output_usd=4), "b/x": Facts(input_usd=1, output_usd=2)}
    assert choices('cheapest("a/x", "b/x")', Standing(facts))[0].targets == ("b/x",)


def test_what_no_target_is_asked_for_says_why() -> None:
    (choice,) = choices('by_task(code="a/x")')
    assert choice.targets == ()
    assert "task" in choice.refused
