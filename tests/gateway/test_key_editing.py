"""Edits of the clients in a configuration's text: only what is meant changes, whatever the
layout."""

import pytest

from splitsecond.core.errors import CallerFault
from splitsecond.routing.configuration.key_editing import with_key, with_rotated_key, without_key

NEW = {"name": "new", "key": "env:NEW", "usd_per_day": 5}
LINE = "{name: new, key: 'env:NEW', usd_per_day: 5}"
BLOCK = """# ours
keys:
  # the first
  - name: web   # the site
    key: env:WEB   # in the environment
    routes: [fast]
  - {name: app, key: env:APP, routes: [a, b]}   # the app
  # an end

# the routes
routes: {fast: {policy: a/b}}
"""
FLOW = "keys: [{name: web, key: env:WEB}, {name: app, key: env:APP}]\nroutes: {}\n"
UNTIL = "2026-12-04"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BLOCK, BLOCK.replace("# the app\n", f"# the app\n  - {LINE}\n")),
        (FLOW, FLOW.replace("APP}]", f"APP}}, {LINE}]")),
        ("keys: []\n", f"keys: [{LINE}]\n"),
        ("routes: {}", f"routes: {{}}\nkeys:\n  - {LINE}\n"),
        ("keys:\n  # - none\nlog: x", f"keys:\n  - {LINE}\n  # - none\nlog: x"),
        ("keys:\n- {name: a}", f"keys:\n- {{name: a}}\n- {LINE}\n"),
        ("keys:\r\n- {name: a}\r\nlog: x\r\n", f"keys:\r\n- {{name: a}}\r\n- {LINE}\r\nlog: x\r\n"),
        ("keys: [\n  {name: a},  # one\n]\n", f"keys: [\n  {{name: a}}, {LINE},  # one\n]\n"),
        (
            '{"keys": [{"name": "a"}]}',
            '{"keys": [{"name": "a"}, {"name": "new", "key": "env:NEW", "usd_per_day": 5}]}',
        ),
    ],
)
def test_a_client_is_added_where_the_others_are(before: str, after: str) -> None:
    assert with_key(before, NEW) == after


@pytest.mark.parametrize(
    ("name", "until", "old", "new"),
    [
        ("app", "", "key: env:APP", "key: file:n.key"),
        (
            "app",
            UNTIL,
            "key: env:APP",
            "key: file:n.key, former_keys: [{key: 'env:APP', until: '2026-12-04'}]",
        ),
        (
            "web",
            UNTIL,
            "key: env:WEB   # in the environment\n",
            "key: file:n.key   # in the environment\n"
            "    former_keys: [{key: 'env:WEB', until: '2026-12-04'}]\n",
        ),
    ],
)
def test_a_rotated_key_keeps_the_rest_of_its_entry(
    name: str, until: str, old: str, new: str
) -> None:
    rotated = with_rotated_key(BLOCK, name, "file:n.key", until)
    assert rotated == BLOCK.replace(old, new.replace("key: file:n.key", "key: 'file:n.key'"))


@pytest.mark.parametrize(
    ("former", "more"),
    [
        (
            "former_keys: [{key: env:OLD}]",
            "former_keys: [{key: env:OLD}, {key: 'env:WEB', until: '",
        ),
        (
            "former_keys:\n    - key: env:OLD   # old\n",
            "former_keys:\n    - key: env:OLD   # old\n    - {key: 'env:WEB', until: '",
        ),
    ],
)
def test_a_second_rotation_adds_a_former_key(former: str, more: str) -> None:
    text = BLOCK.replace("routes: [fast]\n", former.rstrip("\n") + "\n    routes: [fast]\n")
    assert more in with_rotated_key(text, "web", "file:n.key", UNTIL)


@pytest.mark.parametrize(
    ("text", "name", "after"),
    [
        (
            BLOCK,
            "web",
            BLOCK.replace(
                "  - name: web   # the site\n    key: env:WEB   # in the environment\n"
                "    routes: [fast]\n",
                "",
            ),
        ),
        (BLOCK, "app", BLOCK.replace(BLOCK.splitlines()[6] + "\n", "")),
        (FLOW, "web", FLOW.replace("{name: web, key: env:WEB}, ", "")),
        (FLOW, "app", FLOW.replace(", {name: app, key: env:APP}", "")),
    ],
)
def test_a_removed_client_leaves_the_others(text: str, name: str, after: str) -> None:
    assert without_key(text, name) == after


@pytest.mark.parametrize(
    "text",
    [
        "keys: null\n",
        "{routes: {}}",
        "first: &all [{name: a, key: env:A}]\nkeys: *all\nlast: *all\n",
        "---\nroutes: {}\n...\n",
    ],
)
def test_a_layout_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(CallerFault, match=r"cannot edit. Add to keys: .*name.*new"):
        with_key(text, NEW)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (BLOCK, "wep", "there is no client wep. Did you mean web"),
        ("keys: [{name: web, key: env:WEB}]", "web", "web is the only client"),
        ("keys: {}", "web", "keys: expected a list"),
        ("- 1", "web", "expected entries"),
        ("keys: [", "web", "line 1"),
        ("keys: [{name: web, key: [1]}, 2]", "web", r"keys\[0\]\.key: expected env:NAME"),
    ],
)
def test_a_client_that_cannot_be_removed_is_named(text: str, name: str, message: str) -> None:
    with pytest.raises(CallerFault, match=message):
        without_key(text, name)
