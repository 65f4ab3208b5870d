"""What whoever runs the gateway is told at once, on standard error: a key that is refused, a model that is not served.

Once, and once more when it is over; not for each request. Where several workers share a `folder`, the first to find it
says it: it leaves a mark there, which is taken away when it is over.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from splitsecond.errors import CallerFault
from splitsecond.gateway.advice import Advice
from splitsecond.policy.remedy import BAD_KEY
from splitsecond.policy.targets.standing import Standing
from splitsecond.policy.targets.verdict import Verdict, verdict
from splitsecond.timing.observation import FaultRecord, Observation

MOST = 256
"""Of such as are said and not over; each is an account, or a target that a route names."""


class Notices:
    """Must be told of each attempt that has failed, and while `open` is not empty of every other too, once `standing`
    has been."""

    def __init__(self, standing: Standing, say: Callable[[str], None], folder: Path | None = None) -> None:
        self.open: dict[str, str] = {}
        """What is wrong, by the account or the target, in the words for its end."""
        self._standing = standing
        self._say = say
        self._folder = folder

    def heard(self, attempt: Observation, advice: Advice) -> None:
        """An attempt has ended."""
        if attempt.outcome == "ok":
            self._over(attempt.target)
        elif attempt.fault is not None and len(self.open) < MOST:
            with suppress(CallerFault):  # its provider is in the configuration no more
                self._failed(attempt.target, attempt.fault, verdict(attempt), advice)

    def renew(self) -> None:
        """Other settings are in force: what is still wrong is said once more."""
        for name in [*self.open]:
            del self.open[name]
            self._unmark(name)

    def _failed(self, target: str, fault: FaultRecord, says: Verdict, advice: Advice) -> None:
        stands = self._standing.describe(target)
        if says in ("locked", "unpaid") or fault.kind == BAD_KEY:
            name, end = self._account(target), f"{target.partition('/')[0]} takes its key again"
        elif says == "unserved" and stands.state == "down":  # else it was about the request
            name, end = target, f"{target} is served again"
        else:
            return
        if name in self.open:
            return
        words = advice.of_model(target, fault) if name == target else advice.of_key(target, fault, says)
        if stands.state == "locked" and stands.until_ns is None:
            words += " It is not asked again until that changes."
        if words:
            self.open[name] = end
            if self._mark(name):
                self._say(words)

    def _over(self, target: str) -> None:
        for name in (target, self._account(target)):
            end = self.open.pop(name, None)
            if end is not None and self._unmark(name):
                self._say(f"{end}.")

    def _account(self, target: str) -> str:
        """Whose key; where that is refused, it is for all targets of the account."""
        return f"key {self._standing.facts(target).account}"

    def _mark(self, name: str) -> bool:
        """Whether this worker is the first."""
        if self._folder is None:
            return True
        try:
            self._file(self._folder, name).touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError:  # a disk that is full must not make it silent
            return True
        return True

    def _unmark(self, name: str) -> bool:
        if self._folder is None:
            return True
        try:
            self._file(self._folder, name).unlink()
        except OSError:
            return False
        return True

    @staticmethod
    def _file(folder: Path, name: str) -> Path:
        return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.said"
