"""The last calls and the last failures of one worker, in memory, for the dashboard."""

from collections import deque

from splitsecond.core.observation import Observation
from splitsecond.log.store.call_record import CallRecord

CALLS, FAILURES = 20, 10


class RecentCalls:
    """The records of the last calls that reached a target or failed, and of the last failures.

    `failures`: a call with the attempt that failed; None: the call failed without one.
    """

    def __init__(self) -> None:
        self.calls: deque[CallRecord] = deque(maxlen=CALLS)
        self.failures: deque[tuple[CallRecord, Observation | None]] = deque(maxlen=FAILURES)

    def add(self, record: CallRecord) -> None:
        self.calls.append(record)
        failed = False
        for attempt in record.attempts:
            if attempt.outcome == "failed":
                self.failures.append((record, attempt))
                failed = True
        if record.outcome == "failed" and not failed:
            self.failures.append((record, None))
