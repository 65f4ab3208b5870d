"""`python -m splitsecond.cli` is `splitsecond`."""

from splitsecond.cli.app import main

main()
