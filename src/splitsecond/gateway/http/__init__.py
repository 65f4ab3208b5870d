"""HTTP front of the gateway: endpoints, limits, headers and pages."""
