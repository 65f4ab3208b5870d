"""Policies of users: in a file that several processes run, and what their mistakes become."""

from pathlib import Path

import pytest
from tests.policies.branches import a_call, play, scripted

from splitsecond.core.errors import CallerFault
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.construction.expression import PolicyExpression, parse
from splitsecond.routing.construction.user_policies import REGISTERED, PolicyFailed, PolicyFile
from splitsecond.testing.fake_service import Script

SECOND_FIRST = """
import splitsecond as ss

@ss.policy
async def second_first(call, a, b, *, loud: bool = False):
    return await b(call)
"""


def read(folder: Path, text: str) -> PolicyFile:
    """The policy file with `text`."""
    path = folder / "mine.py"
    path.write_text(text)
    return PolicyFile.read(path)


def test_policies_of_a_file_are_known_only_where_it_is_given(tmp_path: Path) -> None:
    own = read(tmp_path, SECOND_FIRST).policies()
    text = 'fallback(second_first("a/x", "b/x", loud=True), "c/x")'
    expression = parse(text, own)
    assert repr(expression) == text
    fakes = {name: scripted(Script(), target=name) for name in ("a/x", "b/x", "c/x")}

    async def main() -> None:
        async with await build(expression, fakes.__getitem__)(a_call()) as reply:
            assert reply.target == "b/x"

    play(main, list(fakes.values()))
    assert "second_first" not in {*REGISTERED, *POLICIES}
    with pytest.raises(CallerFault, match="unknown policy second_first"):
        parse(text)
    with pytest.raises(CallerFault, match="second_first has 1 branch, expected 2"):
        parse('second_first("a/x")', own)


def test_same_file_text_gives_equal_policies(tmp_path: Path) -> None:
    text = 'second_first("a/x", "b/x")'
    first, again = (parse(text, read(tmp_path, SECOND_FIRST).policies()) for _ in range(2))
    changed = parse(text, read(tmp_path, SECOND_FIRST.replace("b(call)", "a(call)")).policies())
    assert first == again != changed
    assert isinstance(first, PolicyExpression)
    assert first.definition.name == "second_first"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n", "mine.py, line 1: invalid syntax. Correct the file."),
        (
            "x = 1\n\nnothing_here()\n",
            "mine.py, line 3: NameError: name 'nothing_here' is not defined",
        ),
        ("import sys\nsys.exit('no')\n", "mine.py, line 2: SystemExit: no"),
        ("import absent_package_x\n", "mine.py, line 1: ModuleNotFoundError"),
        (
            "x = 1\n",
            "mine.py has no policy. Put @splitsecond.policy above an asynchronous function.",
        ),
        (
            SECOND_FIRST.replace("second_first", "race"),
            "mine.py, line 4: race is a built-in policy. Use another name.",
        ),
        (
            SECOND_FIRST.replace("async def", "def").replace("await ", ""),
            "line 4: second_first cannot be a policy",
        ),
        (
            SECOND_FIRST.replace("loud: bool", "loud: int"),
            "line 4: second_first: loud is no setting",
        ),
    ],
    ids=[
        "syntax",
        "exception",
        "exit",
        "import",
        "empty",
        "built-in",
        "not asynchronous",
        "setting",
    ],
)
def test_unusable_policy_file_is_refused_with_line_and_reason(
    tmp_path: Path, text: str, words: str
) -> None:
    known = dict(REGISTERED)
    with pytest.raises(CallerFault) as raised:
        read(tmp_path, text)
    assert words in str(raised.value)
    assert raised.value.kind == "bad_policy_file"
    assert known == REGISTERED


def test_unreadable_policy_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match=r"cannot read .*absent\.py: No such file"):
        PolicyFile.read(tmp_path / "absent.py")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    with pytest.raises(CallerFault, match=r"cannot read .*latin\.py"):
        PolicyFile.read(tmp_path / "latin.py")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "return {}['tier']",
            r"the policy second_first failed: KeyError: 'tier' \(.*mine\.py, line 6\)",
        ),
        ("return None", "the policy second_first failed: it returned None"),
    ],
)
def test_mistake_in_a_policy_raises_policy_failed(tmp_path: Path, body: str, words: str) -> None:
    own = read(tmp_path, SECOND_FIRST.replace("return await b(call)", body)).policies()
    fakes = {name: scripted(Script(), target=name) for name in ("a/x", "b/x")}
    service = build(parse('second_first("a/x", "b/x")', own), fakes.__getitem__)

    async def main() -> None:
        with pytest.raises(PolicyFailed, match=words):
            await service(a_call())

    play(main, list(fakes.values()))


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_no_exception_of_a_file_ends_the_program(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"raise {kind}\n")
    with pytest.raises(CallerFault, match=f"line 1: {kind}"):
        PolicyFile.read(file)
