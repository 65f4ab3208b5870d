"""Batches: the requests of a file, answered as fast as their targets accept them."""
