"""One request, understood: what it asks for, and what is to go wrong with it. Decided before anything is done."""

from collections.abc import Mapping

import msgspec

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.events import RateLimits, Usage
from splitsecond.simulator import faults
from splitsecond.simulator.counting import Counting
from splitsecond.simulator.endpoints import Endpoint
from splitsecond.simulator.faults import PlannedFault
from splitsecond.simulator.profile import Profile, TimingsForm
from splitsecond.simulator.prompt_cache import Recalled
from splitsecond.simulator.words import count_tokens
from splitsecond.wire.dialect import ServerRequest
from splitsecond.wire.limit_headers import Headers

MAX_OUTPUT_TOKENS = 32_768
MAX_ID_CHARACTERS = 200
DEFAULT_USAGE_FACTOR = 2.0


class Refusal(Exception):
    """A request that is answered with an HTTP error, in its dialect's form.

    `type` is OpenAI's word for the error ("": by the status), `retry_after` is in seconds.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        type: str = "",  # noqa: A002
        retry_after: float | None = None,
        headers: Headers | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.type = type
        self.retry_after = retry_after
        self.headers = headers or []


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `number` counts the provider's requests from 1; `finish` is why the answer will end; `created` is when
    the answer is said to be from, in seconds since 1970.

    `output_tokens` includes `reasoning_tokens`, the thoughts with which the answer begins. `timings` is the form in
    which the provider says where its time went. `recalled` is what its prompt cache knows of the prompt, `limits` how
    its rate limits stand; None: it has none.
    """

    request_id: str
    number: int
    arrived_ns: int
    created: int
    endpoint: Endpoint
    request: ServerRequest
    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int
    finish: str
    fault: PlannedFault | None
    timings: TimingsForm
    recalled: Recalled | None = None
    limits: RateLimits | None = None

    @property
    def cached_tokens(self) -> int:
        """How much of the prompt need not be worked off again."""
        return 0 if self.recalled is None else min(self.recalled.read_tokens, self.prompt_tokens)

    @property
    def limit_headers(self) -> Headers:
        """What the answer's head says of the rate limits."""
        write = self.endpoint.limit_headers
        return [] if write is None or self.limits is None else write(self.limits, clock.wall_time())

    @property
    def fault_kind(self) -> str:
        """The kind of fault that strikes it, or ""."""
        return self.fault.kind if self.fault else ""

    @property
    def answer_id(self) -> str:
        """The id of its answer."""
        return f"{self.endpoint.id_prefix}{self.number}"

    @property
    def call_id(self) -> str:
        """The id of the tool call that it asks for."""
        return f"call_{self.number}"

    def usage(self) -> Usage:
        """What will be reported: the truth, unless the fault is `wrong_usage`."""
        output = self.output_tokens
        if self.fault is not None and self.fault.kind == "wrong_usage":
            output = round(output * (DEFAULT_USAGE_FACTOR if self.fault.factor is None else self.fault.factor))
        cached, written = None, None
        if self.recalled is not None:
            cached, written = self.cached_tokens, self.recalled.written_tokens
        return Usage(0, self.prompt_tokens, output, self.reasoning_tokens or None, cached, written)


def understand(
    profile: Profile,
    endpoint: Endpoint,
    path: str,
    headers: Mapping[bytes, bytes],
    body: bytes,
    *,
    number: int,
    arrived_ns: int,
) -> Asked:
    """The request in `body`, for `path` with its query, as `profile` would take it.

    Raises `Refusal` for one that it would not. An answer that calls a tool ends by itself.
    """
    try:
        request = endpoint.parse(body, path)
        header = headers.get(faults.HEADER.encode())
        if header is not None:
            fault: PlannedFault | None = faults.from_header(header.decode("latin-1"))
        else:
            fault = faults.first_striking(profile.faults, number)
    except CallerFault as error:
        raise Refusal(400, str(error), code=error.kind) from error
    _check_model(profile, request.model)
    limit = request.max_tokens or profile.output_tokens
    if limit > MAX_OUTPUT_TOKENS:
        raise Refusal(400, f"max_tokens is {limit}, more than {MAX_OUTPUT_TOKENS}", code="max_tokens")
    if request.n != 1:
        raise Refusal(400, f"n is {request.n}, but a simulated provider gives one choice", code="n")
    natural = profile.natural_tokens
    ignores_eos = bytes(request.fields.get("ignore_eos", b"")) == b"true"
    ends_itself = natural is not None and natural < limit and not ignores_eos
    output_tokens = natural if natural is not None and ends_itself else limit
    given_id = headers.get(b"x-client-request-id", b"").decode("latin-1")[:MAX_ID_CHARACTERS]
    return Asked(
        request_id=given_id or f"{profile.name}-{number}",
        number=number,
        arrived_ns=arrived_ns,
        created=int(clock.wall_time().timestamp()),
        endpoint=endpoint,
        request=request,
        prompt_tokens=count_tokens(endpoint.operation, request.prompt_text),
        output_tokens=output_tokens,
        reasoning_tokens=min(profile.reasoning_tokens, output_tokens - 1),
        finish="tool_calls" if request.tool else "stop" if ends_itself else "length",
        fault=fault,
        timings=profile.server_timings,
    )


def counted(profile: Profile, counting: Counting, path: str, body: bytes) -> bytes:
    """The answer to a request that asks only how many tokens it has. Raises `Refusal` as `understand` does."""
    try:
        request = counting.parse(body, path)
    except CallerFault as error:
        raise Refusal(400, str(error), code=error.kind) from error
    _check_model(profile, request.model)
    return counting.write(count_tokens(request.operation, request.prompt_text))


def _check_model(profile: Profile, model: str) -> None:
    if model not in (profile.model, profile.name, *profile.aliases):
        words = f"the model {model!r} does not exist here; this is {profile.model!r}"
        raise Refusal(404, words, code="model_not_found")
