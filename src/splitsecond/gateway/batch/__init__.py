"""Many requests of a file, answered as fast as their targets take them."""
