"""Virtual time for tests: `run_virtual(main())` waits an hour in a millisecond
(`core/virtual_time`)."""

from splitsecond.core.virtual_time import START_NS, Deadlock, VirtualLoop, run_virtual

__all__ = ["START_NS", "Deadlock", "VirtualLoop", "run_virtual"]
