"""Whether there is a PostgreSQL server to keep a log in.

A machine without one leaves `in_postgres` out, except in CI, where a missing one must show.
"""

import os

from tests.store.server import programs

collect_ignore = [] if programs() or "CI" in os.environ else ["in_postgres"]
