"""Stored data: a run as a folder, the gateway's log as a database."""
