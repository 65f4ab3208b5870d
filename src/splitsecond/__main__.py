"""`python -m splitsecond` is `splitsecond`."""

from splitsecond.core.loading import loading

with loading():
    from splitsecond.cli.app import main

main()
