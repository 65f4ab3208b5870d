"""Records of calls: metrics, OpenTelemetry, access log, journals, and the limits of client keys."""
