"""`bench --policy`: a rule over targets is a row of its own."""

from collections import Counter
from pathlib import Path

import pytest
from tests.cli.conftest import Split

from splitsecond.log.store.folder import read_observations
from splitsecond.routing.construction.user_policies import REGISTERED

FEW = ("-c", 1, "-n", 4, "--warmup", 1, "--input-tokens", 64, "--output-tokens", 20, "--no-html")


def test_a_policy_is_timed_like_a_target(
    split: Split, endpoint: list[str], quick_profile: Path, tmp_path: Path
) -> None:
    rule = f"race('quick','sim/{quick_profile}')"
    ended = split("bench", *endpoint, "--policy", rule, *FEW, "--json", "-", "--out", "run")
    assert ended.code == 0
    written = f'race("quick", "sim/{quick_profile}")'
    plain, raced = ended.json["conditions"]
    # the second provider was not asked for by itself
    assert (plain["target"], raced["target"]) == ("quick", written)
    assert (raced["requests"], raced["errors"]) == (4, 0)
    assert raced["ttft_ms"]["p50"] > 0
    seen = [o for o in read_observations(tmp_path / "run") if o.condition == raced["condition"]]
    roles = Counter(o.role for o in seen)
    calls = roles["measured"] + roles["warmup"] + roles["cooldown"]
    assert (roles["measured"], roles["warmup"]) == (4, raced["warmups"])
    assert (roles["winner"], roles["loser"]) == (calls, calls)
    assert len({o.id for o in seen}) == len(seen)
    for call in (o for o in seen if o.role == "measured"):
        winner = next(o for o in seen if o.call == call.call and o.role == "winner")
        assert (call.target, call.token_at) == (written, winner.token_at)


def test_a_policy_of_the_user_runs_in_the_worker_processes(
    split: Split, endpoint: list[str], quick_profile: Path
) -> None:
    Path("mine.py").write_text(
        "import splitsecond as ss\n\n@ss.policy\nasync def mine(call, a, b):\n    return await "
        "b(call)\n"
    )
    rule = f"mine('quick', 'sim/{quick_profile}')"
    ended = split(
        "bench",
        *endpoint,
        "--policy",
        rule,
        "--policies",
        "mine.py",
        *FEW,
        "--json",
        "-",
        "--out",
        "run",
    )
    assert ended.code == 0
    assert ended.json["conditions"][1]["target"] == rule.replace("'", '"')
    seen = [o for o in read_observations(Path("run")) if o.role == "winner"]
    assert {o.target for o in seen} == {f"sim/{quick_profile}"}
    REGISTERED.pop("mine")
    assert split("report", "run").code == 0  # a recorded run needs no file
    assert "unknown policy mine" in split("bench", *endpoint, "--policy", rule, *FEW).complaint
    Path("mine.py").write_text("x = 1\n")
    assert (
        "mine.py has no policy"
        in split("bench", *endpoint, "--policies", "mine.py", *FEW).complaint
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--policy", "race(groq/x, b)"],
            "at character 6: expected a target or a policy, got groq/x",
        ),
        (["--policy", 'rase("sim/groq", "sim/steady")'], "Did you mean race"),
        (["--policy", 'race("sim/steady", "nobody/x")'], "nobody"),
        (["--policy", 'race("sim/steady", "sim/groq")', "--side-by-side"], "--side-by-side"),
        (["--policy", 'retry("sim/steady")', "--policy", "retry('sim/steady')"], "given twice"),
    ],
)
def test_a_policy_that_makes_no_sense(split: Split, options: list[str], words: str) -> None:
    ended = split("bench", *options, *FEW)
    assert ended.code == 2
    assert words in ended.complaint
