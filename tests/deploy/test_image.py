"""The container image: its file is linted, and its command runs with the rights that a container
leaves it.

The test of the command needs no container engine. It makes a root file system of read-only mounts
in new namespaces, and runs the image's ENTRYPOINT and CMD there as process 1, as another user
without any right.
"""

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
import urllib.response
from pathlib import Path

import pytest
from tests.processes import Process
from tests.waiting import START_S, WITHIN_S

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/Containerfile"
KEY = "a-key-of-a-client-of-ours"
CONFIG = """
keys: [{name: web, key: file:/etc/splitsecond/web_key}]
routes: {fast: {policy: '"sim/groq"'}}
log: sqlite:////var/lib/splitsecond/log.db
"""
INSIDE = r"""
set -e
mount -t tmpfs none {root}
cd {root}
mkdir tmp
mount -t tmpfs none tmp
for each in {mounts}; do
  mkdir -p ".$each"
  mount --rbind "$each" ".$each"
  mount -o remount,bind,ro ".$each" 2>/dev/null || true
done
mkdir -p proc dev etc/splitsecond var/lib/splitsecond
mount --rbind /dev dev
mount -t proc none proc
mount --bind {config} etc/splitsecond
mount --bind {data} var/lib/splitsecond
mount -o remount,bind,ro etc/splitsecond
mkdir before
pivot_root . before
cd /var/lib/splitsecond
umount -l /before
mount -o remount,ro /
exec unshare --user --map-user=10001 --map-group=10001 \
  setpriv --no-new-privs --inh-caps=-all --bounding-set=-all -- "$@"
"""


def instruction(name: str) -> list[str]:
    """Return the arguments of an instruction in JSON form, such as ENTRYPOINT. HEALTHCHECK's CMD is
    indented."""
    found = re.search(rf"^{name} (\[.*\])$", FILE.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    arguments: list[str] = json.loads(found[1])
    return arguments


def allowed() -> bool:
    """Return whether this user may create the namespaces."""
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "mount",
        "-t",
        "tmpfs",
        "none",
        "/mnt",
    ]
    return (
        all(map(shutil.which, ("unshare", "setpriv")))
        and not subprocess.run(command, capture_output=True).returncode
    )


def answer(url: str) -> "contextlib.AbstractContextManager[urllib.response.addinfourl]":
    """Send a request for a stream of about a second."""
    body = {
        "model": "fast",
        "stream": True,
        "max_tokens": 300,
        "messages": [{"role": "user", "content": "hi"}],
    }
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    found: contextlib.AbstractContextManager[urllib.response.addinfourl] = urllib.request.urlopen(
        request, timeout=WITHIN_S
    )
    return found


def first_process(parent: int) -> int:
    """Return the host's number of process 1 of the namespace that `unshare` (`parent`) has made."""
    return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("root", "config", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "config/splitsecond.yaml").write_text(CONFIG)
    (tmp_path / "config/web_key").write_text(KEY)
    return tmp_path


def container(folder: Path) -> "subprocess.Popen[bytes]":
    """Start the command of the image as in a container, at a free port."""
    scripts = Path(sys.executable).parent
    mounts = [
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/etc/ssl",
        sys.prefix,
        sys.base_prefix,
        str(ROOT),
    ]
    paths = {name: str(folder / name) for name in ("root", "config", "data")}
    inside = INSIDE.format(
        mounts=shlex.join(dict.fromkeys(filter(os.path.exists, mounts))), **paths
    )
    namespaces = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ]
    environment = {
        "PATH": f"{scripts}:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/var/lib/splitsecond",
    }
    return Process(
        [
            *namespaces,
            "sh",
            "-c",
            inside,
            "sh",
            *instruction("ENTRYPOINT"),
            *instruction("CMD"),
            "--port",
            "0",
        ],
        env=environment
        | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )


@pytest.mark.system
def test_the_command_serves_without_rights_and_drains(folder: Path) -> None:
    if not allowed() and "CI" not in os.environ:
        pytest.skip("this user may not create namespaces")
    with container(folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert select.select([process.stdout], [], [], START_S)[0], "the gateway does not answer"
        line = process.stdout.readline().decode()
        assert line.startswith("READY http://0.0.0.0:"), process.stderr.read().decode()
        url = line.split()[1].replace("0.0.0.0", "127.0.0.1")
        pid = first_process(process.pid)
        status = Path(f"/proc/{pid}/status").read_text()
        assert re.search(r"^NSpid:.*\t1$", status, re.MULTILINE)
        assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        writable = {
            fields[4]
            for fields in map(str.split, Path(f"/proc/{pid}/mountinfo").read_text().splitlines())
            if "rw" in fields[5].split(",") and not fields[4].startswith(("/dev", "/proc"))
        }
        assert writable == {"/tmp", "/var/lib/splitsecond"}
        healthy = [
            each.replace(":8800", ":" + url.split(":")[2].split("/")[0])
            for each in instruction("  CMD")
        ]
        subprocess.run([sys.executable, *healthy[1:]], check=True, timeout=WITHIN_S)
        with answer(url) as stream:
            stream.readline()
            os.kill(pid, signal.SIGTERM)
            assert stream.read().rstrip().endswith(b"data: [DONE]")
        assert process.wait(WITHIN_S) == 0, process.stderr.read().decode()
    assert sorted(each.name for each in (folder / "data").iterdir()) == [
        "log.db",
        "log.db.secret",
        "log.db.sessions",
    ]


@pytest.mark.system
def test_hadolint_finds_nothing() -> None:
    command = [str(Path(sys.executable).with_name("hadolint")), str(FILE)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_build_context_has_only_the_copied_files() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").split()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert lines[0] == "*"
    lines = re.findall(r"^COPY ((?!--).*) \S+$", FILE.read_text("utf-8"), re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    assert copied == kept


def test_the_user_is_a_number_and_not_root() -> None:
    users = re.findall(r"^USER (\d+):(\d+)$", FILE.read_text("utf-8"), re.MULTILINE)
    assert users == [("10001", "10001")]
