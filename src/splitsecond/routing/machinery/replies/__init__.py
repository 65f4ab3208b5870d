"""Replies that policies inspect, store, share between calls, or continue at another target."""
