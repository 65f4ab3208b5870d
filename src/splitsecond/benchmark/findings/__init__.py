"""Observations to findings, without I/O: figures, intervals, comparisons, verdicts,
recommendations."""
