"""Processes of the gateway: supervisor, workers and their helpers, reload, signals, systemd."""
