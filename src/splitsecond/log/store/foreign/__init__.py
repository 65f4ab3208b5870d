"""Logs of other programs as calls of ours: LiteLLM's spend log, Langfuse, OpenRouter's activity,
any table."""
