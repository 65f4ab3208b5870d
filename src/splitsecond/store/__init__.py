"""Observations at rest."""
