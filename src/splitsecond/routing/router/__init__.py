"""Router: targets, their states, routes and the call tracker, for the gateway, batch, explain and
the API."""
