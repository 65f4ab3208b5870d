"""Fleet: state that several gateways share in PostgreSQL. Only the hub uses it, and only with
`shared`."""
