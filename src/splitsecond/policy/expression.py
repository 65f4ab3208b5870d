"""A policy as text, and text as a policy.

    fallback(race("a/x", "b/x"), hedge("c/x", "d/x", extra_load=0.05), ttft="2s")

The text is read by Python's own parser into a tree of three things: names, calls and literals. Nothing is evaluated:
what is neither of these is refused, with its place, what was expected there, and the nearest names (`forms`). The tree
is a value: it can be compared, sent to another process as its text, and printed; ``parse(repr(x)) == x``. `building`
makes services of it.
"""

import ast
import difflib
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from splitsecond.errors import CallerFault
from splitsecond.policy.forms import POLICIES, Form
from splitsecond.policy.settings import (
    Setting,
    setting_text,
    written,
)

LONGEST = 4000
"""Characters."""
_ALONE = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.:@/-]*[A-Za-z0-9]")
DEEPEST = 8
"""Policies inside each other. What is deeper was made by mistake, or to do harm."""


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


def parse(text: str) -> Expression:
    """The tree that `text` describes; a target alone needs no quotes, which YAML and shells take off.

    Raises `CallerFault` with the place of what is wrong, counted in characters.
    """
    if len(text) > LONGEST:
        raise CallerFault(f"the policy has {len(text)} characters, at most {LONGEST} may be", kind="bad_policy")
    if _ALONE.fullmatch(text.strip()):
        return TargetName(text.strip())
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
