"""Let the wall clock of this process show the time that a test has set: `noon_of_processes` of
`tests/noon.py`."""

import os
import time

from splitsecond.core import clock

_OFFSET_NS = int(os.environ["SPLITSECOND_TEST_WALL_OFFSET_NS"])
clock._wall_ns = lambda: time.monotonic_ns() + _OFFSET_NS
