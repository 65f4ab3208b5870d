"""A gateway for the program that starts it: it serves the configuration in the file that the
command line names, prints ``READY url``, and ends when its standard input closes, however that
program ends.

It is in a session of its own, so that signals of the terminal do not reach it.
"""

import os
import signal
import sys
from pathlib import Path
from threading import Thread

from msgspec import structs

from splitsecond.core.errors import Fault, say
from splitsecond.gateway.process import server
from splitsecond.gateway.process.reload import ConfigSource
from splitsecond.gateway.process.simulation import bind_simulator, simulator_url

MODULE = "splitsecond.gateway.process.attended"


def main() -> int:
    Thread(target=_end_with_input, daemon=True).start()
    source = ConfigSource(Path(sys.argv[1]), os.environ)
    try:
        with bind_simulator() as simulated:
            source = structs.replace(source, simulator=simulator_url(simulated))
            server.serve(source, source.load(), simulated)
    except Fault as fault:
        say(str(fault))
        return 2
    return 0


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
