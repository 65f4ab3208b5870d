"""`python -m splitsecond` is `splitsecond`."""

from splitsecond.cli.app import main

main()
