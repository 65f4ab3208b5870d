"""The uses of an answer, and how long each bears to wait for the first token."""

USES: dict[str, float] = {
    "edge": 100.0,
    "translation": 200.0,
    "voice": 300.0,
    "completion": 500.0,
    "chat": 3000.0,
    "batch": 10_000.0,
}
"""Time to first token in ms that each use bears at p95."""
