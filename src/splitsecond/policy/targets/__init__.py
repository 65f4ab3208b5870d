"""How each target stands: its health, its rate limits, its speed, and what is known of it."""
