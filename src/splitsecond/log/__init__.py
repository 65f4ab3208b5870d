"""Observations at rest, and what production traffic says about targets."""
