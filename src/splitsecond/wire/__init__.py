"""Bytes to events and back, for each dialect, in both roles: client and server. No sockets, no clock."""
