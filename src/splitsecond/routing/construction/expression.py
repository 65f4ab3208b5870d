"""A policy as text, and text as a policy.

    fallback(race("a/x", "b/x"), hedge("c/x", "d/x", extra_load=0.05), ttft="2s")

Python's own parser reads the text into a tree of names, calls and literals. Nothing is evaluated:
anything else is refused, with its place, what was expected there, and the nearest names. The tree
is a value: it can be compared, sent to another process as text, and printed; ``parse(repr(x)) ==
x``. `building` makes services of it.
"""

import ast
import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from splitsecond.core.errors import CallerFault
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.construction.user_policies import REGISTERED
from splitsecond.routing.machinery.definition import Policy
from splitsecond.routing.machinery.settings import SettingLiteral, policy_text, setting_text

LONGEST = 4000
"""The most characters of a policy."""
DEEPEST = 8
"""The most policies inside each other. Deeper nesting is a mistake or an attack."""
_UNQUOTED = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.:@/-]*[A-Za-z0-9]")
_BARE_SHARE = re.compile(r"=\s*[\d.]+%", re.ASCII)


class TargetName(Struct, frozen=True):
    name: str

    def __repr__(self) -> str:
        return setting_text(self.name)


class PolicyExpression(Struct, frozen=True):
    """A policy over branches, with the settings that were written, in their order.

    `named` holds the branches that were given by name, as in ``by_complexity(simple="a/x",
    complex="b/x")``. `own` is the definition of a policy of a user, None for a built-in one.
    """

    policy: str
    branches: "tuple[Expression, ...]"
    settings: tuple[tuple[str, SettingLiteral], ...] = ()
    named: "tuple[tuple[str, Expression], ...]" = ()
    own: Policy | None = None

    def __repr__(self) -> str:
        return policy_text(self.policy, self.branches, dict(self.named), dict(self.settings))

    @property
    def definition(self) -> Policy:
        return self.own or POLICIES[self.policy]

    @property
    def parts(self) -> "tuple[Expression, ...]":
        return (*self.branches, *(branch for _, branch in self.named))


Expression = TargetName | PolicyExpression


def parse(
    text: str, policies: Mapping[str, Policy] | None = None, *, longest: int = LONGEST
) -> Expression:
    """Return the tree that `text` describes.

    It may name the built-in policies and `policies`, which are those of users; None: those
    registered in this process. A single target needs no quotes, because YAML and shells remove
    them. Raises `CallerFault` with the place of the mistake, counted in characters.
    """
    if len(text) > longest:
        raise CallerFault(
            f"the policy has {len(text):,} characters; the maximum is {longest:,}",
            kind="bad_policy",
        )
    if _UNQUOTED.fullmatch(text.strip()):
        return TargetName(text.strip())
    line = re.sub(r"\s", " ", text)  # line breaks are allowed anywhere; places stay the same
    begin = len(line) - len(line.lstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "\d" and the like
            tree = ast.parse(line[begin:], mode="eval")
    except SyntaxError as error:
        hint = 'Write a share as "10%" or 0.1.' if _BARE_SHARE.search(line) else ""
        raise _fault(error.msg, begin + (error.offset or 1), hint) from None
    except (
        ValueError,
        RecursionError,
        MemoryError,
    ):  # invalid characters, or nesting that is too deep
        raise _fault("this cannot be read", begin + 1) from None
    all_policies = {**POLICIES, **(REGISTERED if policies is None else policies)}
    return _Reader(line, begin, all_policies).expression(tree.body, 1)


def targets(expression: Expression) -> list[str]:
    return list(dict.fromkeys(_names(expression)))


def hedge_targets(policy: Expression) -> frozenset[str]:
    """Return the targets to which a policy may send hedges."""
    if isinstance(policy, TargetName):
        return frozenset()
    if policy.own is not None:
        return frozenset(targets(policy))
    second = targets(policy.branches[1]) if policy.policy == "hedge" else []
    return frozenset(second).union(*map(hedge_targets, policy.parts))


def first(expression: Expression, policy: str) -> PolicyExpression | None:
    """Return the first part, from the outside, that is the built-in `policy`; None: there is
    none."""
    if isinstance(expression, TargetName):
        return None
    if expression.policy == policy and expression.own is None:
        return expression
    return next(filter(None, (first(part, policy) for part in expression.parts)), None)


def user_policies(expression: Expression) -> list[str]:
    if isinstance(expression, TargetName):
        return []
    own = [expression.policy] if expression.own else []
    return own + [name for part in expression.parts for name in user_policies(part)]


def _names(expression: Expression) -> Iterator[str]:
    if isinstance(expression, TargetName):
        yield expression.name
    else:
        for branch in expression.parts:
            yield from _names(branch)


class _Reader:
    def __init__(self, line: str, begin: int, policies: Mapping[str, Policy]) -> None:
        self._begin = begin
        self._bytes = line[begin:].encode()
        self._policies = policies

    def expression(self, node: ast.expr, depth: int) -> Expression:
        match node:
            case ast.Constant(value=str(name)):
                if not name or not name.isprintable() or " " in name:
                    raise self._fault(
                        node,
                        f"{setting_text(name)} is not a target's name",
                        'Write one as "provider/model".',
                    )
                return TargetName(name)
            case ast.Call(func=ast.Name(id=name)):
                return self._policy(node, name, depth)
            case ast.Name(id=name) if name in self._policies:
                raise self._fault(node, f"{name} has no branches", self._policies[name].hint)
            case _:
                hint = 'Put targets in quotes, as in race("a/x", "b/x").'
                raise self._fault(
                    node, f"expected a target or a policy, got {self._text(node)}", hint
                )

    def _policy(self, node: ast.Call, name: str, depth: int) -> PolicyExpression:
        policy = self._policies.get(name)
        if policy is None:
            raise self._fault(node, f"unknown policy {name}", _nearest(name, self._policies))
        if depth > DEEPEST:
            raise self._fault(node, f"policies are more than {DEEPEST} deep", "")
        self._check(node, lambda: policy.check_count(len(node.args)))
        branches = tuple(self.expression(branch, depth + 1) for branch in node.args)
        settings: list[tuple[str, SettingLiteral]] = []
        named_branches: list[tuple[str, Expression]] = []
        keys: set[str] = set()
        for keyword in node.keywords:
            key = keyword.arg or "**"
            if key in keys:
                raise self._fault(keyword, f"{key} is given twice", "")
            keys.add(key)
            if policy.names_branch(key):
                named_branches.append((key, self.expression(keyword.value, depth + 1)))
            else:
                settings.append((key, self._setting(keyword, key, policy)))
        self._check(node, lambda: policy.check_names(len(branches), keys))
        own = None if policy is POLICIES.get(name) else policy
        return PolicyExpression(name, branches, tuple(settings), tuple(named_branches), own)

    def _setting(self, keyword: ast.keyword, name: str, policy: Policy) -> SettingLiteral:
        if name not in policy.settings:
            setting_names = [*policy.settings, *(policy.named or ())]
            hint = _nearest(name, setting_names) if setting_names else policy.hint
            raise self._fault(keyword, f"{policy.name} has no setting {name}", hint)
        value = _literal(keyword.value)
        if value is None:
            raise self._fault(
                keyword, f"{name} is not a plain value: {self._text(keyword.value)}", policy.hint
            )
        self._check(keyword, lambda: policy.setting(name, value))
        return value

    def _check(self, node: "ast.expr | ast.keyword", check: Callable[[], object]) -> None:
        try:
            check()
        except CallerFault as fault:
            raise self._fault(node, fault.message, fault.hint) from None

    def _fault(self, node: "ast.expr | ast.keyword", message: str, hint: str) -> CallerFault:
        return _fault(message, self._begin + len(self._bytes[: node.col_offset].decode()) + 1, hint)

    def _text(self, node: ast.expr) -> str:
        text = self._bytes[node.col_offset : node.end_col_offset].decode()
        return text if len(text) <= 40 else text[:39] + "…"


def _literal(node: ast.expr) -> SettingLiteral | None:
    match node:
        case ast.Constant(value=str() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    return None


def _fault(message: str, place: int, hint: str = "") -> CallerFault:
    return CallerFault(f"policy: at character {place}: {message}", kind="bad_policy", hint=hint)


def _nearest(name: str, names: Iterable[str]) -> str:
    names = list(names)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(names)}."
