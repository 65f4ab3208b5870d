"""Observations to rows, without I/O: figures with intervals, validity, and the records of a run."""
