"""One request to one target: bytes to events to one observation. Also formats, sockets, clock,
catalogue and prices."""
