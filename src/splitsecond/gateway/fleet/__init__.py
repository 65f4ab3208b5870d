"""Fleet: state that several gateways share in PostgreSQL. Only the fleet process uses it, and only with `shared`."""
