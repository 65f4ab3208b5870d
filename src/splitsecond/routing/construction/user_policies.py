"""Policies that users write as functions, in this process or in a file that other processes read as
well."""

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, TypeVar

from msgspec import Struct

from splitsecond.core.errors import CallerFault, Fault, file_faults, read_file
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService

F = TypeVar("F", bound=Callable[..., Awaitable[Reply]])

REGISTERED: dict[str, Policy] = {}
_MARK = "__splitsecond_policy__"


class PolicyFailed(Fault):
    """A policy of a user raised an exception that is no `Fault`, or returned no reply: a mistake in
    its code."""


def policy(function: F) -> F:
    """Register an asynchronous function as a policy under its name, and return it unchanged.

    Its first parameter is the call. Further positional parameters are branches, ``*others`` any
    number of them, and keyword-only parameters are settings: their type is `bool`, a `Literal` of
    words, or a class of `splitsecond.routing.machinery.settings`. The function returns a reply of
    one of its branches, or raises a `Fault`::

        @policy
        async def small_first(call, small, large):
            try:
                return await small(call)
            except Fault:
                return await large(call)

    The policy can then be used in the expressions of this process. Defining it again replaces it.
    Raises `CallerFault` for the name of a built-in policy, and for a function that cannot be one.
    """
    name = function.__name__
    if name in POLICIES:
        raise CallerFault(
            f"{name} is a built-in policy", kind="bad_policy", hint="Use another name."
        )
    signature = inspect.signature(function, eval_str=True)
    others = list(signature.parameters.values())[1:]
    asynchronous: bool = inspect.iscoroutinefunction(function)
    if not asynchronous or not others:
        raise CallerFault(
            f"{name} cannot be a policy",
            kind="bad_policy",
            hint=f"Write it as `async def {name}(call, first, second)`.",
        )

    def make(context: PolicyContext, *branches: Service, **settings: Any) -> Service:
        return _FunctionService(context, function, branches, settings)

    context = Parameter("context", Parameter.POSITIONAL_ONLY, annotation=PolicyContext)
    make.__name__ = name
    make.__signature__ = signature.replace(parameters=[context, *others])  # type: ignore[attr-defined]
    names = [each.name for each in others if each.kind is not Parameter.KEYWORD_ONLY]
    example = ", ".join(f'"{branch}/x"' for branch in names)
    try:
        definition = Policy(make, example=f"{name}({example})")
    except TypeError as error:
        raise CallerFault(
            str(error), kind="bad_policy", hint="Give it one of these types."
        ) from None
    vars(function)[_MARK] = REGISTERED[name] = definition
    return function


class PolicyFile(Struct, frozen=True):
    """A Python file with policies. `text` is its content, so that all processes run the same
    version."""

    path: str
    text: str

    @classmethod
    def read(cls, path: Path) -> "PolicyFile":
        with file_faults(f"cannot read {path}", kind="bad_policy_file"):
            file = cls(str(path), read_file(path))
        file.policies()
        return file

    def policies(self) -> Mapping[str, Policy]:
        """Run the file and return its policies by name: the same objects for the same text.

        Raises `CallerFault` with the line if it is not Python, raises an exception, or has no
        policy.
        """
        return _run(self)


@lru_cache(maxsize=8)
def _run(file: PolicyFile) -> Mapping[str, Policy]:
    module = ModuleType(f"policies_in_{Path(file.path).stem}")
    module.__file__ = file.path
    sys.modules[module.__name__] = module  # dataclasses look up their module
    before = dict(REGISTERED)
    try:
        exec(compile(file.text, file.path, "exec"), vars(module))
    except (
        BaseException
    ) as error:  # also its SystemExit and KeyboardInterrupt: a reload must not end the gateway
        raise _not_run(file.path, error) from None
    finally:
        REGISTERED.clear()
        REGISTERED.update(before)
    policies = [
        definition
        for value in vars(module).values()
        if isinstance(definition := getattr(value, _MARK, None), Policy)
    ]
    if not policies:
        hint = "Put @splitsecond.policy above an asynchronous function."
        raise CallerFault(f"{file.path} has no policy", kind="bad_policy_file", hint=hint)
    return {definition.name: definition for definition in policies}


def _not_run(path: str, error: BaseException) -> CallerFault:
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines, words = [error.lineno], error.msg
    else:
        words = error.message if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, Fault) else "Correct the file."
    return CallerFault(
        f"{path}, line {lines[-1] if lines else '?'}: {words}", kind="bad_policy_file", hint=hint
    )


class _FunctionService(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        function: Callable[..., Awaitable[Reply]],
        branches: Sequence[Service],
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(context)
        self._function = function
        self._branches = branches
        self._settings = settings

    async def __call__(self, call: Call) -> Reply:
        try:
            reply = await self._function(call, *self._branches, **self._settings)
        except Fault:
            raise
        except Exception as error:
            frame = extract_tb(error.__traceback__)[-1]
            place = f"{frame.filename}, line {frame.lineno}"
            raise self._failed(f"{type(error).__name__}: {error} ({place})") from error
        if not hasattr(reply, "aclose"):
            raise self._failed(f"it returned {reply!r:.60}, expected the reply of a branch")
        return reply

    def _failed(self, words: str) -> PolicyFailed:
        name = self._function.__name__
        return PolicyFailed(
            f"the policy {name} failed: {words}", kind="policy_failed", phase="queue"
        )
