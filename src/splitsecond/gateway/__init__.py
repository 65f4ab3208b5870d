"""The gateway: an OpenAI-compatible HTTP server whose routes are policies over targets."""
