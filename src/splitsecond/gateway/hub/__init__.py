"""Hub: the one process beside the workers of a gateway. It owns the log and the fleet, and connects
the workers."""
