"""`python -m splitsecond` is `splitsecond`."""

from splitsecond.cli.__main__ import main

main()
