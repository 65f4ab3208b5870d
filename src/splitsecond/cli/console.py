"""Rich's console, as commands use it."""

import rich.console


class Console(rich.console.Console):
    """Console that raises `BrokenPipeError` when its output has lost its reader (`| head`). Rich's
    own ends the process with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
