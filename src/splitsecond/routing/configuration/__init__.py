"""Configuration of the gateway: reading, checking and writing `splitsecond.yaml`."""
