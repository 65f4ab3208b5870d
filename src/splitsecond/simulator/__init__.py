"""Providers whose truth is known: servers of every API format that send each token at a planned
time."""
