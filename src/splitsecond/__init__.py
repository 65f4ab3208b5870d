"""Splitsecond times LLM inference, and sends each request where the timing says it will be fastest."""

__version__ = "0.1.0"
