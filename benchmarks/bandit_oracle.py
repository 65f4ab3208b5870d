"""The estimators of `replay/robust` beside those of the Open Bandit Pipeline: `python -m
benchmarks.bandit_oracle`.

It needs obp, which wants torch and in its latest version a Python before 3.11, so it is no
dependency. Its estimators need no torch: with `pip install --no-deps obp==0.4.1` and numpy, pandas,
scikit-learn, pyyaml and tqdm they run here. `tests/replay/test_robust.py` has the figures that it
printed.
"""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

CALLS = 1000


def bandit() -> dict[str, npt.NDArray[Any]]:
    """Return calls of a logged policy between two targets, made without chance, so that they are
    the same everywhere.

    `odds`: the probability of the logged target. `reward`: seconds. `by_model`: seconds that a
    model expects at target 0, which knows nothing of hard calls.
    """
    place = np.arange(CALLS)
    hard = place * 7 % 10 < 4
    odds_of_0 = np.where(hard, 0.3, 0.8)
    target = (place * 137 % 100 / 100 >= odds_of_0).astype(np.int64)
    scatter = 1 + (place * 61 % 41 - 20) / 100
    reward = np.where(hard, 0.4, 0.1) * np.where(target == 1, 2.0, 1.0) * scatter
    return {
        "target": target,
        "odds": np.where(target == 0, odds_of_0, 1 - odds_of_0),
        "reward": reward,
        "by_model": 0.15 + place * 29 % 31 / 1000,
    }


class _Class(type):
    """A class that has a class of every name."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Class(name, (), {})


class _Absent(ModuleType):
    """A module that has a class of every name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_Class("", (), {}), name)


def main() -> None:
    parts = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils.data",
             "matplotlib", "matplotlib.pyplot", "seaborn")  # fmt: skip
    sys.modules.update({name: _Absent(name) for name in parts})
    import obp  # type: ignore[import-not-found]
    from obp.ope import estimators  # type: ignore[import-not-found]

    for name in parts:  # scipy would take it for the real one
        del sys.modules[name]
    found = bandit()
    always_0 = np.zeros((CALLS, 2, 1))
    always_0[:, 0] = 1
    expected = np.repeat(found["by_model"][:, None, None], 2, axis=1)
    given = {
        "reward": found["reward"],
        "action": found["target"],
        "pscore": found["odds"],
        "action_dist": always_0,
        "estimated_rewards_by_reg_model": expected,
        "position": np.zeros(CALLS, np.int64),
    }
    print(f"obp {obp.__version__}")
    for name in ("DirectMethod", "SelfNormalizedInverseProbabilityWeighting",
                 "SelfNormalizedDoublyRobust"):  # fmt: skip
        value = getattr(estimators, name)().estimate_policy_value(**given)
        print(f"{name}: {value!r}")


if __name__ == "__main__":
    main()
