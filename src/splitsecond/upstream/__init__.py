"""One target as a service: where the catalogue, the wire format, the transport and timing meet."""
