"""Benchmarks, watches, capacity searches and batches: planned, executed and concluded.

Nothing here prints or knows an exit code: progress goes to `measuring.Progress`, failures are
exceptions of `splitsecond.core.errors`, and cancelling the task ends a run while keeping what was
measured.
"""
