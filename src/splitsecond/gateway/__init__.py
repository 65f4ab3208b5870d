"""The gateway: an OpenAI-compatible front door whose routes are policies over targets.

A request goes through these files in order: `connection` hears of it and makes a `visit`, `app` takes that, `asked`
reads the body, `routes` finds its service, then `relay` passes a stream on as it came, or `assemble` makes one answer
of it; `refusal` says what went wrong.
"""
