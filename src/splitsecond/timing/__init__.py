"""One stream in, one observation out. Knows events and moments; knows no bytes, no sockets and no provider."""
