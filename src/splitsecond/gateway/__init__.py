"""The gateway: an OpenAI-compatible HTTP server whose routes are policies over targets.

A request passes through these modules in order: `app` receives it from `serving` as a `RequestCycle`, `parsed_request`
reads its body, and the `router` finds the service of its model. The API format of the client
(`core.wire.client_format`) then relays a stream or assembles a whole response. `error_response` reports errors.
"""
