"""Completion in real shells: each installs it as a user does, and completes what is typed into its
terminal."""

import os
import pty
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from threading import Thread

import pytest
from tests.processes import Process
from tests.waiting import WITHIN_S, until

pytestmark = pytest.mark.system

PROGRAM = """#!{python}
import os, sys
if "_SPLITSECOND_COMPLETE" in os.environ or "--install-completion" in sys.argv:
    from splitsecond.cli.app import main
    main()
else:
    open("{ran}", "a").write(" ".join(sys.argv[1:]) + "\\n")
"""
"""The command, but it only notes what it was asked to do."""
PROMPT = "ready> "
SHELLS = {
    "bash": (".bashrc", f"PS1='{PROMPT}'"),
    "zsh": (".zshrc", f"PS1='{PROMPT}'"),
    "fish": (".config/fish/config.fish", f"function fish_prompt; echo -n '{PROMPT}'; end"),
}
"""For each shell the file that it reads when it starts, and what sets its prompt."""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_options_and_files(shell: str, tmp_path: Path) -> None:
    assert shutil.which(shell), f"this test needs {shell}"
    ran = tmp_path / "ran"
    program = tmp_path / "bin/splitsecond"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, ran=ran))
    program.chmod(0o755)
    (tmp_path / "monday").mkdir()
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    environment |= {
        "TERM": "xterm",
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "XDG_DATA_HOME": str(tmp_path / ".data"),
        "ZDOTDIR": str(tmp_path),
    }
    # else fish begins to read all manuals of the machine, for a minute and after the test has ended
    (tmp_path / ".data/fish/generated_completions").mkdir(parents=True)
    # the shell must not become the command
    install = [shell, "-c", "splitsecond --install-completion; true"]
    subprocess.run(
        install,
        env=environment,
        cwd=tmp_path,
        check=True,
        timeout=WITHIN_S,
        stdout=subprocess.DEVNULL,
    )
    start, prompt = SHELLS[shell]
    (tmp_path / start).parent.mkdir(parents=True, exist_ok=True)
    with (tmp_path / start).open("a") as file:
        file.write(f"\n{prompt}\n")
    typed = {
        "capac": "capacity",
        "bench --side-by": "bench --side-by-side",
        "report mon": "report monday",
    }
    with terminal([shell, "-i"], environment, tmp_path) as (keys, shown):
        assert {beginning: completed(keys, shown, ran, beginning) for beginning in typed} == typed


def completed(keys: int, shown: list[str], ran: Path, beginning: str) -> str:
    """Type the beginning of a command, Tab and Enter after the next prompt, and return what ran."""
    before = len(ran.read_text().splitlines()) if ran.exists() else 0
    until(lambda: "".join(shown).count(PROMPT) > before, f"no prompt: {shown}")
    os.write(keys, f"splitsecond {beginning}\t\r".encode())
    until(
        lambda: ran.exists() and len(ran.read_text().splitlines()) > before, f"nothing ran: {shown}"
    )
    return ran.read_text().splitlines()[-1].rstrip("/ ")


@contextmanager
def terminal(
    command: list[str], environment: dict[str, str], folder: Path
) -> Iterator[tuple[int, list[str]]]:
    """Run a command in a terminal of its own. Yield where to write keys, and what it has printed so
    far."""
    ours, theirs = pty.openpty()
    shown: list[str] = []

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                shown.append(data.decode(errors="replace"))
        except OSError:  # how Linux reports that the terminal is closed
            pass

    with Process(
        command,
        env=environment,
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(theirs)
        reader = Thread(target=read)
        reader.start()
        try:
            yield ours, shown
        finally:
            process.kill()  # an interactive shell ignores SIGTERM
    reader.join(WITHIN_S)
    os.close(ours)
