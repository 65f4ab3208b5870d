"""`python -m splitsecond.simulator PROFILE...`: the simulator as a process, for programs that start
one (`process`)."""

import argparse
import socket
import sys
from pathlib import Path

from splitsecond.core.loading import loading

with loading():
    from splitsecond.core.errors import CallerFault
    from splitsecond.simulator.server import serve, serve_by_path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m splitsecond.simulator", description=__doc__)
    parser.add_argument("profiles", metavar="PROFILE", nargs="*")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument(
        "--until-eof", action="store_true", help="also stop when standard input is closed"
    )
    parser.add_argument(
        "--descriptor",
        type=int,
        help="serve all shipped profiles by path at this listening socket, and nothing else",
    )
    arguments = parser.parse_args()
    descriptor = arguments.__dict__.pop("descriptor")
    if descriptor is not None:
        serve_by_path(socket.socket(fileno=descriptor))
        return 0
    try:
        serve(**vars(arguments))
    except CallerFault as fault:
        print(f"splitsecond: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
