"""Statistics of rounds: control charts, searches, steady windows."""
