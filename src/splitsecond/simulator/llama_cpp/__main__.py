"""``python -m splitsecond.simulator.llama_cpp``: serve a small model on 127.0.0.1 until SIGTERM or
Ctrl-C.

Prints one line, ``READY http://127.0.0.1:PORT/v1 model=tiny``, when it is ready. Exit codes: 0
standard input was closed (``--until-eof``), 1 llama.cpp could not start, 2 wrong usage, 3 the
engine is not installed; or the signal.
"""

import argparse
import sys
from collections.abc import Callable

from splitsecond.simulator.llama_cpp.process import MODELS, unavailable_reason


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m splitsecond.simulator.llama_cpp", description="A real engine, a small model."
    )
    parser.add_argument("--model", choices=MODELS, default=MODELS[0], help="the model (tiny)")
    parser.add_argument(
        "--port", type=_from(0, to=65535), default=0, help="0, the default, takes a free one"
    )
    parser.add_argument(
        "--slots", type=_from(1, to=256), default=8, help="requests decoded at once (8)"
    )
    parser.add_argument(
        "--context",
        type=_from(1, to=32768),
        default=2048,
        help="tokens of one request, in + out (2048)",
    )
    parser.add_argument(
        "--prompt-cache", action="store_true", help="reuse a slot's last prompt, as llama.cpp does"
    )
    parser.add_argument("--api-key", default="", help="require this API key")
    parser.add_argument(
        "--until-eof", action="store_true", help="also stop when standard input is closed"
    )
    arguments = parser.parse_args()
    if reason := unavailable_reason():
        print(reason, file=sys.stderr)
        return 3
    from splitsecond.simulator.llama_cpp.server import serve  # needs the extra's packages

    try:
        serve(**vars(arguments))
    except (RuntimeError, OSError) as error:
        print(f"llama.cpp did not start on 127.0.0.1:{arguments.port}: {error}", file=sys.stderr)
        return 1


def _from(low: int, *, to: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        if not low <= (number := int(text)) <= to:
            raise argparse.ArgumentTypeError(f"{number} is not from {low} to {to}")
        return number

    return whole_number


if __name__ == "__main__":
    sys.exit(main())
