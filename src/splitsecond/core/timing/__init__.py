"""From a stream of events to one observation. This room knows events and times, but no bytes,
sockets or providers."""
