"""Rows to findings, without I/O: comparisons, verdicts, recommendations and their sentences."""
