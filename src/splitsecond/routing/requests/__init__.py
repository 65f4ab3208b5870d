"""Requests of clients, as far as routing needs them, and responses to errors."""
