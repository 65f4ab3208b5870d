"""`race(a, b, ...)`: all are asked at once, and the first to bring a token answers.

What it does. Every branch gets the call at the same moment. The first one with a content-bearing token wins: headers,
a role or a ping do not count, or else a target that greets early and then stalls would win. Losers are closed at once.
A branch that fails, or ends without a token, has not won; the others run on. When all fail: `AllFailed`, in the order
in which the branches stand.

What it costs. The input tokens of every branch, and what each loser had made by the time it was closed; some providers
bill a closed request to its end. Also a place under every provider's rate limit.

When it helps. Where a late first token is worth money: the race is as fast as its best branch on each single call, so
it cuts the median and the tail, and it rides out the failure of any one branch without a pause.

When it hurts. On long prompts (input dominates the price), near a rate limit, and where the branches share what is
slow: two requests to one overloaded provider make it slower. A target with a fast first token and few tokens per
second wins every race, and loses the time again afterwards.

Where it stands. Inside `fallback`, because falling back begins when every racer has failed. Around `limit`, because a
racer that is refused must not stop the others. Around `deadline` or inside it: the same, but around means that each
branch has its own.
"""

from splitsecond.policy.contest import Contest
from splitsecond.policy.settings import written
from splitsecond.service import Call, Reply, Service


def race(*branches: Service) -> Service:
    """The service that races `branches`."""
    return Race(branches)


class Race:
    """See `race`."""

    def __init__(self, branches: tuple[Service, ...]) -> None:
        self._branches = branches

    def __repr__(self) -> str:
        return written("race", self._branches)

    async def __call__(self, call: Call) -> Reply:
        async with Contest(call) as contest:
            for branch in self._branches:
                contest.enter(branch)
        return contest.reply()
