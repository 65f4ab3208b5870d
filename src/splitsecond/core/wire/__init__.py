"""Bytes to events and back for each API format, in both roles: client and server. No sockets."""
