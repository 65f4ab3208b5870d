"""A policy as text, and text as a policy.

    fallback(race("a/x", "b/x"), hedge("c/x", "d/x", extra_load=0.05), ttft="2s")

The text is read by Python's own parser into a tree of three things: names, calls and literals. Nothing is evaluated:
what is neither of these is refused, with its place, what was expected there, and the nearest names. The tree is a
value: it can be compared, sent to another process as its text, and printed; ``parse(repr(x)) == x``.

`POLICIES` is the one list of what can be written. A new policy is a file and a line there.
"""

import ast
import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from splitsecond.errors import CallerFault
from splitsecond.policy.acceptance import acceptance
from splitsecond.policy.budget import MOST_SAVED, Budget, Counted
from splitsecond.policy.by_complexity import LEVELS, by_complexity
from splitsecond.policy.by_task import by_task
from splitsecond.policy.cache import cache
from splitsecond.policy.cap import cap
from splitsecond.policy.carrying import MakeTeller
from splitsecond.policy.cascade import Trim, cascade
from splitsecond.policy.cheapest import cheapest
from splitsecond.policy.deadline import deadline
from splitsecond.policy.fallback import SECOND_TRIES, fallback
from splitsecond.policy.fastest import fastest
from splitsecond.policy.hedge import EXTRA_LOAD as HEDGED
from splitsecond.policy.hedge import hedge
from splitsecond.policy.limit import limit
from splitsecond.policy.near import inside, near
from splitsecond.policy.pipeline import early_start, pipeline
from splitsecond.policy.race import race
from splitsecond.policy.resume import resume, way
from splitsecond.policy.retry import EXTRA_LOAD as RETRIED
from splitsecond.policy.retry import retry
from splitsecond.policy.settings import (
    Setting,
    count,
    duration,
    figure,
    flag,
    length,
    memory,
    quantile,
    region,
    setting_text,
    share,
    shares,
    spending,
    use,
    written,
)
from splitsecond.policy.standing import Standing
from splitsecond.policy.sticky import sticky
from splitsecond.policy.weighted import weighted
from splitsecond.service import Service

LONGEST = 4000
"""Characters."""
DEEPEST = 8
"""Policies inside each other. What is deeper was made by mistake, or to do harm."""

Reader = Callable[[str, object], object]


class TargetName(Struct, frozen=True):
    """A target, by its name: ``"provider/model"``."""

    name: str

    def __repr__(self) -> str:
        return setting_text(self.name)


class Rule(Struct, frozen=True):
    """A policy over branches, with the settings that were written, in their order.

    `named` holds the branches that were given by name, as in ``by_complexity(simple="a/x", complex="b/x")``.
    """

    policy: str
    branches: "tuple[Expression, ...]"
    settings: tuple[tuple[str, Setting], ...] = ()
    named: "tuple[tuple[str, Expression], ...]" = ()

    def __repr__(self) -> str:
        return written(self.policy, self.branches, dict(self.named), **dict(self.settings))

    @property
    def parts(self) -> "tuple[Expression, ...]":
        """All branches."""
        return (*self.branches, *(branch for _, branch in self.named))


Expression = TargetName | Rule


class Form(Struct, frozen=True, kw_only=True):
    """How a policy is written: what makes it, how many branches, which settings, and which of those it must have.

    `least` and `most` count the branches without a name. `named`: the branches that may be given by name; None: any
    name that is no setting's. `needs`: one of these settings or named branches at least.
    `alternatives`: any of its branches may answer any call, so that one which is down can be left out. `reaches`: which
    targets those are, of the branches with given names of targets; None: all. `steps_in`: only its first branch
    may, and any of the others where that has not been enough.
    `live`: `make` gets ``standing=``, the `Standing` of all targets, and ``names=``, for each branch without a name the
    names of the targets in it. `trims`: `make` gets ``without_logprobs=``, if `build` was given one.
    `extra`: it sends extra requests, after this share of its calls (or its ``extra_load``), and this many more; `make`
    gets ``budget=``, which all of an expression draw on. `tells`: `make` gets ``teller=``, as `build` was given it.
    """

    make: Callable[..., Service]
    example: str
    least: int
    most: int | None = None
    named: tuple[str, ...] | None = ()
    settings: Mapping[str, Reader] = {}
    needs: tuple[str, ...] = ()
    alternatives: bool = False
    reaches: Callable[..., list[str]] | None = None
    live: bool = False
    trims: bool = False
    extra: tuple[float, int] | None = None
    tells: bool = False
    steps_in: bool = False


POLICIES: Mapping[str, Form] = {
    "race": Form(
        alternatives=True,
        live=True,
        make=race,
        example='race("a/x", "b/x")',
        least=2,
        settings={"spend": spending},
    ),
    "hedge": Form(
        alternatives=True,
        live=True,
        extra=(HEDGED, 0),
        make=hedge,
        example='hedge("a/x", "b/x", extra_load=0.05)',
        least=2,
        most=2,
        settings={"extra_load": share},
    ),
    "fallback": Form(
        alternatives=True,
        live=True,
        tells=True,
        extra=(SECOND_TRIES, MOST_SAVED),
        make=fallback,
        example='fallback("a/x", "b/x", ttft="2s")',
        least=2,
        settings={"ttft": duration, "stall": duration, "resume": way},
    ),
    "resume": Form(
        steps_in=True,
        live=True,
        tells=True,
        make=resume,
        example='resume("a/x", "b/x", how="replay", stall="10s")',
        least=1,
        settings={"how": way, "stall": duration},
    ),
    "deadline": Form(
        make=deadline,
        example='deadline("a/x", total="10s", ttft="2s")',
        least=1,
        most=1,
        settings={"total": duration, "ttft": duration},
        needs=("total", "ttft"),
    ),
    "retry": Form(
        extra=(RETRIED, MOST_SAVED),
        make=retry,
        example='retry("a/x", times=2, extra_load=0.1)',
        least=1,
        most=1,
        settings={"times": count, "extra_load": share},
    ),
    "limit": Form(
        make=limit,
        example='limit("a/x", concurrency=8, queue=0)',
        least=1,
        most=1,
        settings={"concurrency": count, "queue": length},
        needs=("concurrency",),
    ),
    "fastest": Form(
        alternatives=True,
        live=True,
        make=fastest,
        example='fastest("a/x", "b/x", by="total", at=0.5)',
        least=2,
        settings={"by": figure, "at": quantile},
    ),
    "cheapest": Form(
        alternatives=True,
        live=True,
        make=cheapest,
        example='cheapest("a/x", "b/x", within="voice")',
        least=2,
        settings={"within": use, "ttft": duration},
    ),
    "weighted": Form(
        alternatives=True,
        live=True,
        make=weighted,
        example='weighted("a/x", "b/x", weights="3,1")',
        least=2,
        settings={"weights": shares},
    ),
    "sticky": Form(
        alternatives=True,
        live=True,
        make=sticky,
        example='sticky("a/x", "b/x", ttl="10m")',
        least=2,
        settings={"ttl": duration},
    ),
    "near": Form(
        alternatives=True,
        reaches=inside,
        live=True,
        make=near,
        example='near("a/x", "b/x", region="eu")',
        least=1,
        settings={"region": region},
        needs=("region",),
    ),
    # here the policies that look into requests and answers begin
    "cascade": Form(
        trims=True,
        make=cascade,
        example='cascade("a/small", "a/large", accept="json", hold="5s")',
        least=2,
        most=2,
        named=("judge",),
        settings={"accept": acceptance, "hold": duration},
    ),
    "pipeline": Form(
        make=pipeline,
        example='pipeline("a/fast", "a/slow", early="300ms")',
        least=2,
        most=2,
        settings={"early": early_start},
    ),
    "by_complexity": Form(
        make=by_complexity,
        example='by_complexity(simple="a/small", complex="a/large")',
        least=0,
        most=0,
        named=LEVELS,
        needs=LEVELS,
    ),
    "by_task": Form(
        make=by_task,
        example='by_task(code="a/x", default="b/x")',
        least=0,
        most=0,
        named=None,
    ),
    "cap": Form(
        make=cap,
        example='cap("a/x", max_tokens=500)',
        least=1,
        most=1,
        settings={"max_tokens": count},
        needs=("max_tokens",),
    ),
    "cache": Form(
        make=cache,
        example='cache("a/x", ttl="10m", size="64MB", sampled=True)',
        least=1,
        most=1,
        settings={"ttl": duration, "size": memory, "sampled": flag},
    ),
}


def parse(text: str) -> Expression:
    """The tree that `text` describes. Raises `CallerFault` with the place of what is wrong, counted in characters."""
    if len(text) > LONGEST:
        raise CallerFault(f"the policy has {len(text)} characters, at most {LONGEST} may be", kind="bad_policy")
    line = re.sub(r"\s", " ", text)  # a policy may be broken into lines anywhere; places stay the same
    begin = len(line) - len(line.lstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "\d" and the like
            tree = ast.parse(line[begin:], mode="eval")
    except SyntaxError as error:
        raise _bad(error.msg, begin + (error.offset or 1)) from None
    except (ValueError, RecursionError, MemoryError):  # characters that are none, or nesting without end
        raise _bad("this cannot be read", begin + 1) from None
    return _Reading(line, begin).expression(tree.body, 1)


def build(
    expression: Expression,
    target: Callable[[str], Service],
    standing: Standing | None = None,
    *,
    without_logprobs: Trim | None = None,
    teller: MakeTeller | None = None,
    guarded: bool = True,
) -> Service:
    """The service that `expression` describes; `target` gives the service of each name, and is asked once for each.

    `standing`: how the targets stand, which the policies choose by and each attempt is guarded by. It must be told of
    each observation. None: nothing is guarded, and policies that choose by it begin with nothing known.
    `without_logprobs` takes log-probabilities that only a policy asked for out of an answer's bytes.
    `teller` makes it possible to carry on an answer that broke; None: none is.
    `guarded` False: `standing` is only chosen by.
    """
    services = {name: target(name) for name in targets(expression)}
    known = standing or Standing()
    budget = _budget(expression)

    def made(part: Expression, others: frozenset[str]) -> Service:
        if isinstance(part, TargetName):
            service = services[part.name]
            if standing is None or not guarded:
                return service
            return standing.guard(part.name, service, others | {part.name})
        form = POLICIES[part.policy]
        if form.alternatives:
            given = others | _reached(part, known)
        else:
            given = others if len(part.parts) == 1 or form.steps_in else frozenset[str]()
        later = given.union(*(_reached(branch, known) for branch in part.branches[1:])) if form.steps_in else given
        more: dict[str, object] = {"standing": known, "names": list(map(targets, part.branches))} if form.live else {}
        if form.trims:
            more["without_logprobs"] = without_logprobs
        if form.extra is not None:
            more["budget"] = budget
        if form.tells:
            more["teller"] = teller
        named = {name: made(branch, given) for name, branch in part.named}
        branches = [made(branch, given if n == 0 else later) for n, branch in enumerate(part.branches)]
        return form.make(*branches, **named, **dict(part.settings), **more)

    service = made(expression, frozenset())
    return service if budget is None else Counted(service, budget)


def _budget(expression: Expression) -> Budget | None:
    """For the extra requests of all policies in `expression`: as much as the most generous may send alone."""
    found = list(_extras(expression))
    if not found:
        return None
    return Budget(max(share for share, _ in found), reserve=max(reserve for _, reserve in found))


def _extras(expression: Expression) -> Iterator[tuple[float, int]]:
    if isinstance(expression, TargetName):
        return
    extra = POLICIES[expression.policy].extra
    if extra is not None:
        yield share("extra_load", dict(expression.settings).get("extra_load", extra[0])), extra[1]
    for branch in expression.parts:
        yield from _extras(branch)


def _reached(part: Expression, standing: Standing) -> frozenset[str]:
    """The targets of `part` that a call may go to."""
    if isinstance(part, TargetName):
        return frozenset({part.name})
    form = POLICIES[part.policy]
    if form.reaches is not None:
        return frozenset(form.reaches(list(map(targets, part.branches)), standing, **dict(part.settings)))
    return frozenset[str]().union(*(_reached(branch, standing) for branch in part.parts))


def targets(expression: Expression) -> list[str]:
    """The names of the targets in `expression`, each once, in order."""
    return list(dict.fromkeys(_names(expression)))


def _names(expression: Expression) -> Iterator[str]:
    if isinstance(expression, TargetName):
        yield expression.name
    else:
        for branch in expression.parts:
            yield from _names(branch)


class _Reading:
    """Python's tree of `line`, from the character `begin` on, to ours."""

    def __init__(self, line: str, begin: int) -> None:
        self._begin = begin
        self._bytes = line[begin:].encode()

    def expression(self, node: ast.expr, depth: int) -> Expression:
        match node:
            case ast.Constant(value=str(name)):
                if not name or not name.isprintable() or " " in name:
                    raise self._wrong(
                        node, f"{setting_text(name)} is no target's name", 'Write one as "provider/model".'
                    )
                return TargetName(name)
            case ast.Call(func=ast.Name(id=policy)):
                return self._rule(node, policy, depth)
            case ast.Name(id=policy) if policy in POLICIES:
                raise self._wrong(node, f"{policy} has no branches", f"Write it as {POLICIES[policy].example}.")
            case _:
                hint = 'Targets stand in quotes, as in race("a/x", "b/x").'
                raise self._wrong(node, f"expected a target or a policy, got {self._text(node)}", hint)

    def _rule(self, node: ast.Call, policy: str, depth: int) -> Rule:
        form = POLICIES.get(policy)
        if form is None:
            raise self._wrong(node, f"unknown policy {policy}", _nearest(policy, POLICIES))
        if depth > DEEPEST:
            raise self._wrong(node, f"policies are more than {DEEPEST} deep", "")
        given = len(node.args)
        if given < form.least or (form.most is not None and given > form.most):
            expected = f"{form.least}" if form.most == form.least else f"{form.least} or more"
            expected = "none without a name" if form.most == 0 else expected
            words = f"{policy} has {given} branch{'es' * (given != 1)}, expected {expected}"
            raise self._wrong(node, words, f"Write it as {form.example}.")
        branches = tuple(self.expression(branch, depth + 1) for branch in node.args)
        settings: list[tuple[str, Setting]] = []
        named: list[tuple[str, Expression]] = []
        names: set[str] = set()
        for keyword in node.keywords:
            name = keyword.arg or "**"
            if name in names:
                raise self._wrong(keyword, f"{name} is given twice", "")
            names.add(name)
            if _is_branch(name, form):
                named.append((name, self.expression(keyword.value, depth + 1)))
            else:
                settings.append(self._setting(keyword, policy, form))
        if not branches and not named:
            raise self._wrong(node, f"{policy} has no branches", f"Write it as {form.example}.")
        if form.needs and not names & set(form.needs):
            raise self._wrong(node, f"{policy} needs {' or '.join(form.needs)}", f"Write it as {form.example}.")
        return Rule(policy, branches, tuple(settings), tuple(named))

    def _setting(self, keyword: ast.keyword, policy: str, form: Form) -> tuple[str, Setting]:
        name = keyword.arg or "**"
        if name not in form.settings:
            known = {**form.settings, **dict.fromkeys(form.named or ())}
            hint = _nearest(name, known) if known else f"Write it as {form.example}."
            raise self._wrong(keyword, f"{policy} has no setting {name}", hint)
        value = _literal(keyword.value)
        if value is None:
            hint = f"Write it as {form.example}."
            raise self._wrong(keyword, f"{name} is no plain value: {self._text(keyword.value)}", hint)
        try:
            form.settings[name](name, value)
        except CallerFault as fault:
            raise self._wrong(keyword, fault.message, "") from None
        return name, value

    def _wrong(self, node: "ast.expr | ast.keyword", message: str, hint: str) -> CallerFault:
        return _bad(message, self._begin + len(self._bytes[: node.col_offset].decode()) + 1, hint)

    def _text(self, node: ast.expr) -> str:
        text = self._bytes[node.col_offset : node.end_col_offset].decode()
        return text if len(text) <= 40 else text[:39] + "…"


def _is_branch(name: str, form: Form) -> bool:
    """Whether the keyword `name` gives a branch."""
    return name.isidentifier() and name not in form.settings if form.named is None else name in form.named


def _literal(node: ast.expr) -> Setting | None:
    match node:
        case ast.Constant(value=str() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    return None


def _bad(message: str, place: int, hint: str = "") -> CallerFault:
    return CallerFault(f"policy: at character {place}: {message}", kind="bad_policy", hint=hint)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(known)}."
