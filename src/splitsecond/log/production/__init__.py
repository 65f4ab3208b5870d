"""Speed and spending of production traffic, from the log."""
