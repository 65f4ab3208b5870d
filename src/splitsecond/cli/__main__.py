"""`splitsecond`, also as `python -m splitsecond.cli`."""

import sys

from splitsecond.core.loading import loading


def main() -> None:
    try:
        with loading():
            from splitsecond.cli.app import main as run_command

        run_command()
    except KeyboardInterrupt:  # while modules are imported, which takes a moment
        print("splitsecond: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
