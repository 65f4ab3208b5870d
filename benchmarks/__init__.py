"""Measurements of Splitsecond itself. They take minutes and depend on the machine, so no test runs
them."""
