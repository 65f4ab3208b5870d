"""State of each target: circuit breaker, rate limits, measured speed, static facts."""
