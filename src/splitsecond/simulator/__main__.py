"""`python -m splitsecond.simulator PROFILE...`: the process by itself, for whoever starts one (`process`)."""

import argparse
import sys
from pathlib import Path

from splitsecond.errors import CallerFault
from splitsecond.simulator.server import serve


def main() -> int:
    """Serve what the command line asks for. Gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m splitsecond.simulator", description=__doc__)
    parser.add_argument("profiles", metavar="PROFILE", nargs="+")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--until-eof", action="store_true", help="end, too, when standard input is closed")
    asked = parser.parse_args()
    try:
        serve(**vars(asked))
    except CallerFault as fault:
        print(f"splitsecond: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
