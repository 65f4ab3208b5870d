"""`by_task(code=a, chat=b, default=c)`: the client names its task, and the task decides which branch answers.

What it does. The client names the task beside the request (the header ``x-splitsecond-task``), and the branch of that
name answers. Calls without a task, or with one that has no branch, go to `default`; if there is no `default` they are
refused, with the names of the tasks.

What it costs. Nothing.

When it helps. When the application knows its task, and models or settings differ by it: one model for code, a fast one
for titles, a careful one for contracts. No guess is needed.

When it hurts. It does not, as long as clients name the task; nothing is guessed here (`by_complexity` does that).

Where it goes. Outside of all else, because each task has its own policy.
"""

from splitsecond.errors import CallerFault
from splitsecond.policies.definition import Policy, PolicyContext, PolicyService
from splitsecond.policies.settings import short_text
from splitsecond.service import Call, Reply, Service

DEFAULT = "default"


class ByTask(PolicyService):
    """Asks the branch with the name of the call's task."""

    def __init__(self, context: PolicyContext, /, **branches: Service) -> None:
        super().__init__(context)
        self._branches = branches

    async def __call__(self, call: Call) -> Reply:
        task = call.hints.get("task", "")
        name = task if task in self._branches else DEFAULT
        branch = self._branches.get(name)
        if branch is None:
            message = f"there is no task {short_text(task)} here" if task else "the request names no task"
            hint = f"Send x-splitsecond-task: one of {', '.join(self._branches)}."
            raise CallerFault(message, kind="unknown_task", hint=hint)
        call.notes.chosen = f"by_task: {name}"
        return await branch(call)


by_task = Policy(ByTask, example='by_task(code="a/x", default="b/x")', needs_stream=())
