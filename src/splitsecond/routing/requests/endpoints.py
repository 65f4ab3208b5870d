"""The gateway's paths for requests to models: what each path requests, and in which API format."""

from collections.abc import Mapping

from msgspec import Struct

from splitsecond.core.service import Operation
from splitsecond.core.wire.client_format import (
    ANTHROPIC_MESSAGES,
    FORMATS,
    OPENAI_CHAT,
    ClientFormat,
    listing_at,
    listing_format,
)


class Endpoint(Struct, frozen=True):
    """Operation and API format of a path. `counts`: it returns only the number of tokens of the
    request; `details`: only a description of its model.

    `model`, `stream`: what the path says instead of the body; "" and None: nothing.
    """

    operation: Operation
    format: ClientFormat
    counts: bool = False
    details: bool = False
    model: str = ""
    stream: bool | None = None


ENDPOINTS: dict[str, Endpoint] = {
    path: Endpoint(operation, form) for form in FORMATS for path, operation in form.paths.items()
} | {
    form.counting.path: Endpoint("chat", form, counts=True)
    for form in FORMATS
    if form.counting and form.counting.path
}
ENDPOINTS |= {
    form.models.details_path: Endpoint("chat", form, details=True)
    for form in FORMATS
    if form.models and form.models.details_path
}
# Vercel's library, which opencode uses, expects /v1 in the address of Anthropic's API; Anthropic's
# own library adds it. Both read the same variable.
ENDPOINTS |= {
    path.removeprefix("/v1"): endpoint
    for path, endpoint in ENDPOINTS.items()
    if endpoint.format is ANTHROPIC_MESSAGES
}
# Clients of Groq and Azure put "openai" before the path.
ENDPOINTS |= {
    f"/openai{path}": endpoint
    for path, endpoint in ENDPOINTS.items()
    if endpoint.format is OPENAI_CHAT
}


def endpoint_at(path: str) -> Endpoint | None:
    exact = ENDPOINTS.get(path)
    if exact is not None or path[-1:] == "/":
        return exact
    for form in FORMATS:
        root = next(filter(path.startswith, form.method_roots), "")
        model, _, method = path[len(root) :].rpartition(":") if root else ("", "", "")
        if model and method in form.methods:
            return Endpoint(form.method_operation, form, model=model, stream=form.methods[method])
        if model and form.counting is not None and method == form.counting.method:
            return Endpoint("chat", form, counts=True, model=model, stream=False)
    return None


def format_at(path: str, headers: Mapping[bytes, bytes]) -> ClientFormat:
    """Return the API format of errors at `path`: OpenAI's where no format has a path."""
    endpoint = endpoint_at(path)
    if endpoint is not None:
        return endpoint.format
    below = next((form for form in FORMATS if form.root and path.startswith(form.root)), None)
    listing = listing_format(path, headers)
    return below or (OPENAI_CHAT if listing is None else listing[0])


def near_path(path: str) -> str:
    """Return the existing path that differs from `path` only by ``/v1`` at its beginning; "" if
    there is none."""
    near = ("/v1" + path, path.removeprefix("/v1"))
    return next(
        (each for each in near if each in ENDPOINTS or listing_at(each, {}) is not None), ""
    )
