"""Summaries, intervals and comparisons of samples."""
