"""Policies as definitions: how a policy is written, read from its signature, and how its service is
made."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter
from random import Random
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from msgspec import Struct, field
from msgspec.structs import replace

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.budget import ExtraRequestBudget
from splitsecond.routing.machinery.choosing.branch import Branch
from splitsecond.routing.machinery.replies.resumable import MakeEncoder
from splitsecond.routing.machinery.settings import (
    Setting,
    SettingLiteral,
    Share,
    flag,
    one_of,
    policy_text,
)
from splitsecond.routing.targets.target_states import TargetStates

ANY_NAME = None
"""In place of the names of branches: every name that is not a setting."""
ALWAYS = None
"""In place of the names of settings: with any settings."""


class PolicyContext(Struct, frozen=True, kw_only=True):
    """Context of a policy, beside its branches and settings.

    `states`: the states of all targets. `names`: for each branch the names of its targets, named
    branches last; empty where a policy is made in Python. `budget`: the budget for extra requests
    that all policies of an expression share. `make_encoder`: makes the encoder with which `resume`
    continues an answer; None: answers are not continued. `trim_logprobs`: removes log-probabilities
    that only a policy asked for from the bytes of an answer; None: they stay in it. `continued`: a
    policy around it continues its broken answers. `text`: the policy as it is written. `route`:
    the name of its route, "" without one. `chance`: the source of random numbers.
    """

    states: TargetStates = field(default_factory=TargetStates)
    names: Sequence[Sequence[str]] = ()
    budget: ExtraRequestBudget | None = None
    make_encoder: MakeEncoder | None = None
    trim_logprobs: Callable[[bytes], bytes] | None = None
    continued: bool = False
    text: str = ""
    route: str = ""
    chance: Random = field(default_factory=Random)

    def branches(self, services: Sequence[Service], *, best: tuple[type, ...] = ()) -> list[Branch]:
        names = self.names or [()] * len(services)
        return [
            Branch(service, inside, place=place, by_best=isinstance(service, best))
            for place, (service, inside) in enumerate(zip(services, names, strict=True))
        ]


class ExtraLoad(NamedTuple):
    """`share`: the share of calls that extra requests follow; None: the setting `extra_load`.
    `reserve`: so many are allowed from the start."""

    share: Share | None = None
    reserve: int = 0


class PolicyService:
    """Base of the services that policies make. Its `repr` is the expression of the policy."""

    def __init__(self, context: PolicyContext) -> None:
        self._text = context.text
        self._states = context.states

    def __repr__(self) -> str:
        return self._text

    async def __call__(self, call: Call) -> Reply:
        raise NotImplementedError


class Policy:
    """A policy: its branches, its settings, and what makes its service.

    These are read from the signature of `make`, a class or a function that returns a service:

    - Positional parameters are branches. ``*others`` stands for any number of further branches.
    - Keyword parameters of the type `Service` are branches with a name. ``**branches`` accepts any
      name.
    - All other keyword parameters are settings. Their type is a subclass of `Setting`, a `Literal`
      of words, or `bool`. A setting without a default must be given.
    - A first parameter of the type `PolicyContext` gets the context.

    The rest cannot be seen from a signature. `example` begins with the name of the policy. Of
    `one_of`, settings or named branches, at least one must be given. `branches`, by what they can
    do for each other: "alternatives", every branch can answer every call, so a branch that is down
    is left out; "takes over", only the first branch can, and the others take over where its answer
    breaks off; "backed", the second branch answers what the first does not, so the first is left
    out while it is down. `reachable`: the targets that can get a call, of branches with the given
    names of targets (default: all). `extra`: its extra requests. `needs_stream`: the settings with
    which it waits for first tokens or follows the stream; `ALWAYS`: it does so without any.
    """

    def __init__(
        self,
        make: Callable[..., Service],
        *,
        example: str,
        one_of: tuple[str, ...] = (),
        branches: Literal["", "alternatives", "takes over", "backed"] = "",
        reachable: Callable[..., list[str]] | None = None,
        extra: ExtraLoad | None = None,
        needs_stream: Collection[str] | None = ALWAYS,
    ) -> None:
        self.name = example.partition("(")[0]
        self.make = make
        self.example = example
        self.one_of = one_of
        self.alternatives = branches == "alternatives"
        self.takes_over = branches == "takes over"
        self.backed = branches == "backed"
        self.reachable = reachable
        self._extra = extra or ExtraLoad()
        self._needs_stream = needs_stream
        self._read_signature(make)

    def __repr__(self) -> str:
        return f"<Policy {self.name}>"

    def __call__(
        self, *services: Service, context: PolicyContext | None = None, **keywords: Any
    ) -> Service:
        """Return the service of this policy over `services`.

        A setting is a literal (``ttft="2s"``) or its parsed value; None: not given. Raises
        `CallerFault` for what is not valid.
        """
        arguments = {name: value for name, value in keywords.items() if value is not None}
        named_branches = {
            name: value for name, value in arguments.items() if self.names_branch(name)
        }
        settings = {name: value for name, value in arguments.items() if name not in named_branches}
        self.check_count(len(services))
        self.check_names(len(services), arguments)
        return self.service(services, named_branches, settings, context or PolicyContext())

    def service(
        self,
        branches: Sequence[Service],
        named_branches: Mapping[str, Service],
        settings: Mapping[str, object],
        context: PolicyContext,
    ) -> Service:
        """Return the service of this policy. Raises `CallerFault` for a setting that is not
        valid."""
        parsed = {name: self.setting(name, value) for name, value in settings.items()}
        all_settings = {name: parsed.get(name, default) for name, default in self._defaults.items()}
        if not self._takes_context:
            return self.make(*branches, **named_branches, **parsed)
        text = policy_text(self.name, branches, named_branches, all_settings)
        return self.make(replace(context, text=text), *branches, **named_branches, **parsed)

    def names_branch(self, keyword: str) -> bool:
        if self.named is ANY_NAME:
            return keyword.isidentifier() and keyword not in self.settings
        return keyword in self.named

    def setting(self, name: str, value: object) -> object:
        kind = self.settings.get(name)
        if kind is None:
            raise CallerFault(
                f"{self.name} has no setting {name}", kind="bad_policy", hint=self.hint
            )
        return value if isinstance(value, Setting) else _parse(kind, name, value)

    def check_count(self, count: int) -> None:
        if count >= self.least and (self.most is None or count <= self.most):
            return
        expected = f"{self.least}" if self.most == self.least else f"{self.least} or more"
        expected = "none without a name" if self.most == 0 else expected
        raise self._fault(f"has {count} branch{'es' * (count != 1)}, expected {expected}")

    def check_names(self, count: int, names: Collection[str]) -> None:
        """Raise `CallerFault` where no branch is given, or a setting or named branch is missing."""
        if not count and not any(map(self.names_branch, names)):
            raise self._fault("has no branches")
        if missing := [name for name in self.required if name not in names]:
            raise self._fault(f"needs {' and '.join(missing)}")
        if self.one_of and not any(name in names for name in self.one_of):
            raise self._fault(f"needs {' or '.join(self.one_of)}")

    def extra_requests(self, settings: Mapping[str, SettingLiteral]) -> tuple[float, int] | None:
        share = self._extra.share or self._defaults.get("extra_load")
        if "extra_load" in settings:
            share = self.setting("extra_load", settings["extra_load"])
        return (share.value, self._extra.reserve) if isinstance(share, Share) else None

    def waits_for_token(self, settings: Mapping[str, SettingLiteral]) -> bool:
        return self._needs_stream is ALWAYS or any(name in settings for name in self._needs_stream)

    def compares_caches(self, settings: Mapping[str, SettingLiteral]) -> bool:
        """Return whether it may keep a session where its prompt is cached."""
        return "cache" in self.settings and settings.get("cache") != "off"

    def continues(self, settings: Mapping[str, SettingLiteral]) -> bool:
        return self.takes_over or ("resume" in self.settings and settings.get("resume") != "off")

    @property
    def hint(self) -> str:
        return f"Write it as {self.example}."

    def _fault(self, message: str) -> CallerFault:
        return CallerFault(f"{self.name} {message}", kind="bad_policy", hint=self.hint)

    def _read_signature(self, make: Callable[..., Service]) -> None:
        parameters = inspect.signature(make, eval_str=True).parameters
        first = next(iter(parameters.values()), None)
        self._takes_context = first is not None and first.annotation is PolicyContext
        kinds = [each.kind for each in parameters.values()][self._takes_context :]
        positional = kinds.count(Parameter.POSITIONAL_ONLY) + kinds.count(
            Parameter.POSITIONAL_OR_KEYWORD
        )
        keywords = [
            name for name, each in parameters.items() if each.kind is Parameter.KEYWORD_ONLY
        ]
        types = {name: _without_none(parameters[name].annotation) for name in keywords}
        _check_types(make, types)
        self.least: int = positional
        self.most: int | None = None if Parameter.VAR_POSITIONAL in kinds else positional
        self.named: tuple[str, ...] | None = tuple(
            name for name, kind in types.items() if kind is Service
        )
        if Parameter.VAR_KEYWORD in kinds:
            self.named = ANY_NAME
        self.settings: Mapping[str, Any] = {
            name: kind for name, kind in types.items() if kind is not Service
        }
        defaults = {name: parameters[name].default for name in self.settings}
        self.required = tuple(
            name for name, default in defaults.items() if default is Parameter.empty
        )
        self._defaults: Mapping[str, object] = defaults | dict.fromkeys(self.required)


def _check_types(make: Callable[..., Service], types: Mapping[str, Any]) -> None:
    for name, kind in types.items():
        if kind is not Service and not _is_setting(kind):
            raise TypeError(
                f"{make.__name__}: {name} is no setting: {kind} is not a Setting, a Literal or bool"
            )


def _without_none(hint: Any) -> Any:
    args = [each for each in get_args(hint) if each is not NoneType]
    return args[0] if NoneType in get_args(hint) and len(args) == 1 else hint


def _is_setting(kind: Any) -> bool:
    return (
        kind is bool
        or get_origin(kind) is Literal
        or (isinstance(kind, type) and issubclass(kind, Setting))
    )


def _parse(kind: Any, name: str, value: object) -> object:
    if kind is bool:
        return flag(name, value)
    return (
        one_of(name, value, get_args(kind))
        if get_origin(kind) is Literal
        else kind.parse(name, value)
    )
