"""Benchmarks, watches, capacity searches and batches: their plan, their execution and their results.

Everything here is asynchronous or returns at once. It prints nothing and knows no exit code: progress goes to an object
that the caller gives (`measuring.Progress`), failures are exceptions of `splitsecond.core.errors`, and cancelling the
task ends a run while keeping what was measured. The command line and the public API are two thin layers on it.
"""
