"""`by_task(code=a, chat=b, default=c)`: the client names its task, and the task decides which
branch answers."""

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import short_text

DEFAULT = "default"


class ByTask(PolicyService):
    def __init__(self, context: PolicyContext, /, **branches: Service) -> None:
        super().__init__(context)
        self._branches = branches

    async def __call__(self, call: Call) -> Reply:
        task = call.hints.get("task", "")
        name = task if task in self._branches else DEFAULT
        branch = self._branches.get(name)
        if branch is None:
            message = (
                f"there is no task {short_text(task)} here" if task else "the request names no task"
            )
            hint = f"Send x-splitsecond-task: one of {', '.join(self._branches)}."
            raise CallerFault(message, kind="unknown_task", hint=hint)
        call.notes.chosen = f"by_task: {name}"
        return await branch(call)


by_task = Policy(ByTask, example='by_task(code="a/x", default="b/x")', needs_stream=())
