"""The processes of the gateway: one worker or several, reload, signals."""
