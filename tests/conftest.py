"""How generated cases are run: with no limit on the time of one (machines are shared); in CI the same each time."""

import os

from hypothesis import settings

settings.register_profile("splitsecond", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("splitsecond")
