"""`by_task(code=a, chat=b, default=c)`: the client says what it is about, and that decides who answers.

What it does. The client names the task beside the request (the header ``x-splitsecond-task``), and the branch of that
name answers. A task that has no branch, or none at all, goes to `default`; without one it is refused, with the names of
the tasks that there are.

What it costs. Nothing.

When it helps. Where the application knows what it is doing, and models or settings differ by it: one model for code,
a quick one for titles, a careful one for contracts. It needs no guess.

When it hurts. It does not, as long as clients say it; what they do not say is not guessed (`by_complexity` does that).

Where it stands. Outside of all else, as each task wants its own policy.
"""

from splitsecond.errors import CallerFault
from splitsecond.policy.settings import setting_text_of, written
from splitsecond.service import Call, Reply, Service

DEFAULT = "default"


def by_task(**branches: Service) -> Service:
    """The service that asks the branch with the name of the call's task."""
    if not branches:
        raise CallerFault(
            "by_task has no branches", kind="bad_policy", hint='Write by_task(code="a/x", default="b/x").'
        )
    return ByTask(branches)


class ByTask:
    """See `by_task`."""

    def __init__(self, branches: dict[str, Service]) -> None:
        self._branches = branches

    def __repr__(self) -> str:
        return written("by_task", (), self._branches)

    async def __call__(self, call: Call) -> Reply:
        task = call.hints.get("task", "")
        name = task if task in self._branches else DEFAULT
        branch = self._branches.get(name)
        if branch is None:
            said = f"there is no task {setting_text_of(task)} here" if task else "the request names no task"
            hint = f"Send x-splitsecond-task: one of {', '.join(self._branches)}."
            raise CallerFault(said, kind="unknown_task", hint=hint)
        call.notes.chosen = f"by_task: {name}"
        return await branch(call)
