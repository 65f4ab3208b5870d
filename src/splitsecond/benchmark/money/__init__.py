"""Findings about money: break-even, prompt caches and gains of a policy."""
