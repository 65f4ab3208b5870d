"""What is written down of each call: log, metrics, what clients may use."""
