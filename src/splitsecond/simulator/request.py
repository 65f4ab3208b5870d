"""One request to a simulated provider: parsed, checked, and with its fault decided before anything
is sent."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.events import RateLimits, Usage
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.validation import plain_value
from splitsecond.core.wire.api_format import ServerAnswer
from splitsecond.simulator.content import faults
from splitsecond.simulator.content.embeddings import EmbeddingRequest, with_dimensions
from splitsecond.simulator.content.faults import InjectedFault
from splitsecond.simulator.content.replies import ReplyRule, ReplyRules
from splitsecond.simulator.content.script import (
    ReplyScript,
    cut_off,
    given_answer,
    made_answer,
    plain_script,
    scripted,
    tool_name,
)
from splitsecond.simulator.content.tokens import count_tokens, token_text
from splitsecond.simulator.content.wants import (
    NOTHING,
    ConversationEnd,
    Wants,
    read_conversation,
    read_wants,
)
from splitsecond.simulator.endpoints import ApiEndpoint, TokenCountEndpoint
from splitsecond.simulator.parsing import ServerRequest
from splitsecond.simulator.profile import ANY_MODEL, Profile, TimingsForm
from splitsecond.simulator.prompt_cache import CacheLookup
from splitsecond.simulator.rate_limit import Headers

MAX_OUTPUT_TOKENS = 32_768
"""Most output tokens of a response, of all choices together."""
MAX_ID_CHARACTERS = 200
SESSION_HEADERS = (
    b"x-session-id",
    b"session-id",
    b"session_id",
    b"thread-id",
    b"x-claude-code-session-id",
    b"x-session-affinity",
    b"x-smg-routing-key",
    b"x-dynamo-session-id",
    b"x-litellm-trace-id",
)
"""Headers in which clients and routers name the session of a request; the first one that is there
counts."""
DEFAULT_USAGE_FACTOR = 2.0


@dataclass(eq=False)
class RejectedRequest(Exception):
    """A request that gets an HTTP error, which is sent in the endpoint's API format.

    `type` is the error's type in OpenAI's format ("": derived from the status). `retry_after` is in
    seconds.
    """

    status: int
    message: str
    _: KW_ONLY
    code: str
    type: str = ""
    retry_after: float | None = None
    headers: Headers = field(default_factory=list)


class SimulatedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the provider accepts.

    `number` counts the provider's requests from 1. `finish` is the finish reason of its response.
    `created` is the response's creation time, in seconds since 1970. `output_tokens` (of one
    choice) includes `reasoning_tokens`, with which the response begins. `script` is its content;
    None: plain words, as the argument of `tool` if that is a name. `top_logprobs`: how many
    alternatives to report for each token, None for no log-probabilities. `timings` is the form of
    the provider's own timings; for `early_role` see `Profile.role_chunk`. `session` is the id of
    the client's session, or "". `replica` is the number of the one that serves it. `cached` is the
    result of the prompt-cache lookup and `limits` the state of the rate limits; None without such a
    cache or limit.
    """

    request_id: str
    number: int
    received_ns: int
    arrived_ns: int
    created: int
    endpoint: ApiEndpoint
    parsed: ServerRequest
    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int
    finish: str
    fault: InjectedFault | None
    timings: TimingsForm
    early_role: bool = False
    script: ReplyScript | None = None
    tool: str = ""
    session: str = ""
    top_logprobs: int | None = None
    replica: int = 0
    cached: CacheLookup | None = None
    limits: RateLimits | None = None

    @property
    def cached_tokens(self) -> int:
        return 0 if self.cached is None else min(self.cached.read_tokens, self.prompt_tokens)

    @property
    def limit_headers(self) -> Headers:
        write = self.endpoint.limit_headers
        return [] if write is None or self.limits is None else write(self.limits, clock.wall_time())

    @property
    def fault_kind(self) -> str:
        return self.fault.kind if self.fault else ""

    @property
    def response_id(self) -> str:
        return f"{self.endpoint.id_prefix}{self.number}"

    @property
    def tool_call_id(self) -> str:
        return f"call_{self.number}"

    def usage(self) -> Usage:
        output = self.output_tokens * self.parsed.n
        if self.fault is not None and self.fault.kind == "wrong_usage":
            output = round(
                output * (DEFAULT_USAGE_FACTOR if self.fault.factor is None else self.fault.factor)
            )
        read, written = None, None
        if self.cached is not None:
            read, written = self.cached_tokens, self.cached.written_tokens
        reasoning = self.reasoning_tokens * self.parsed.n
        return Usage(0, self.prompt_tokens, output, reasoning or None, read, written)


def full_path(cycle: RequestCycle) -> str:
    return f"{cycle.path}?{cycle.query.decode('latin-1')}"


def read_request(
    profile: Profile,
    rules: ReplyRules,
    endpoint: ApiEndpoint,
    cycle: RequestCycle,
    body: bytes,
    *,
    count: Callable[[str], int],
    received_ns: int,
) -> SimulatedRequest:
    """Parse the request of `cycle`, whose content is `body`, as a provider with `profile` does.

    `count` counts the requests, all of them ("") and those with one fault of their own.
    `received_ns`: when the kernel had its first bytes; 0 if that is not known. A response ends by
    itself if it calls a tool, or if the request has no limit. Raises `RejectedRequest`.
    """
    number, headers = count(""), cycle.headers
    try:
        parsed = _parsed(profile, endpoint, body, full_path(cycle))
        wants = read_wants(parsed)
        conversation = read_conversation(parsed) if rules or wants.tools else ConversationEnd()
        rule = rules.take(parsed, wants, conversation) if rules else None
        if rule is None and profile.strict:
            raise RejectedRequest(
                404, "no reply rule fits this request (the simulator is strict)", code="no_rule"
            )
        fault = _fault_for(profile, rule, headers, number, count)
    except CallerFault as error:
        raise _invalid(error) from error
    output_tokens, ends_itself = _length(profile, parsed)
    given_id = headers.get(b"x-client-request-id", b"").decode("latin-1")[:MAX_ID_CHARACTERS]
    request = SimulatedRequest(
        request_id=given_id or f"{profile.name}-{number}",
        number=number,
        received_ns=received_ns,
        arrived_ns=cycle.arrived_ns,
        created=int(clock.wall_time().timestamp()),
        endpoint=endpoint,
        parsed=parsed,
        prompt_tokens=count_tokens(endpoint.operation, parsed.prompt_text),
        output_tokens=output_tokens,
        reasoning_tokens=min(_reasoning_tokens(profile, parsed), output_tokens - 1),
        finish="stop" if ends_itself else "length",
        fault=fault,
        timings=profile.server_timings,
        session=session_id(headers),
        early_role=profile.role_chunk == "early",
        top_logprobs=wants.top_logprobs,
    )
    if rule is None and wants is NOTHING and parsed.n == 1 and not parsed.tool:
        return request
    try:
        return _with_content(request, profile, rule, wants, conversation)
    except CallerFault as error:
        raise _invalid(error) from error


def _parsed(profile: Profile, endpoint: ApiEndpoint, body: bytes, path: str) -> ServerRequest:
    parsed = endpoint.parse(body, path)
    check_model(profile, parsed.model)
    if isinstance(parsed, EmbeddingRequest):
        parsed = with_dimensions(parsed, profile.embedding_dimensions)
    if profile.usage == "always":
        parsed = msgspec.structs.replace(parsed, include_usage=True)
    return parsed


def _reasoning_tokens(profile: Profile, parsed: ServerRequest) -> int:
    if not profile.effort_tokens:
        return profile.reasoning_tokens
    effort = plain_value(parsed.fields.get("reasoning_effort"))
    if isinstance(own := plain_value(parsed.fields.get("reasoning")), dict):
        effort = own.get("effort")  # of OpenAI's Responses
    return profile.effort_tokens.get(str(effort), profile.reasoning_tokens)


def _length(profile: Profile, parsed: ServerRequest) -> tuple[int, bool]:
    """Return the output tokens of one choice, and whether the model ends the response itself, below
    the limit."""
    limit = parsed.max_tokens or profile.output_tokens
    if limit * parsed.n > MAX_OUTPUT_TOKENS:
        message = (
            f"max_tokens is {limit:,} for {parsed.n:,} choices; the maximum is "
            f"{MAX_OUTPUT_TOKENS:,} in all"
        )
        raise RejectedRequest(400, message, code="max_tokens")
    if bytes(parsed.fields.get("ignore_eos", b"")) == b"true":
        return limit, False
    natural = profile.natural_tokens
    if natural is not None and natural < limit:
        return natural, True
    return limit, parsed.max_tokens is None


def _fault_for(
    profile: Profile,
    rule: ReplyRule | None,
    headers: Mapping[bytes, bytes],
    number: int,
    count: Callable[[str], int],
) -> InjectedFault | None:
    """Return the fault that strikes a request: its own, that of its rule, or one of the profile.
    Raises `RejectedRequest` for the error of a rule."""
    header = headers.get(faults.HEADER.encode())
    if header is not None:
        text = header.decode("latin-1")
        fault = faults.from_header(text)
        return fault if fault.first is None or fault.strikes(count(text)) else None
    if rule is not None and rule.error is not None:
        error = rule.error
        message = error.message or f"a simulated error {error.status}"
        code = error.code or error_code(error.status)
        raise RejectedRequest(
            error.status, message, code=code, type=error.type, retry_after=error.retry_after
        )
    if rule is not None and rule.fault:
        return faults.from_header(rule.fault)
    return faults.first_striking(profile.faults, number)


def session_id(headers: Mapping[bytes, bytes]) -> str:
    session = next((value for name in SESSION_HEADERS if (value := headers.get(name))), b"")
    return session.decode("latin-1")[:MAX_ID_CHARACTERS]


def error_code(status: int) -> str:
    return "invalid_api_key" if status == 401 else "simulated"


def _with_content(
    request: SimulatedRequest,
    profile: Profile,
    rule: ReplyRule | None,
    wants: Wants,
    conversation: ConversationEnd,
) -> SimulatedRequest:
    parsed = request.parsed
    call_id = request.tool_call_id
    if rule is not None and rule.has_content:
        answer: ServerAnswer | None = given_answer(rule, wants, call_id)
    else:
        answer = made_answer(parsed, wants, conversation, call_id)
        share, number = profile.invalid_share, request.number
        if answer is not None and int(number * share) > int((number - 1) * share):
            answer = cut_off(answer)
    if answer is not None:
        reasoning = answer.reasoning or "".join(map(token_text, range(profile.reasoning_tokens)))
        answer = msgspec.structs.replace(answer, reasoning=reasoning)
        script = scripted(answer, wants.stop, parsed.max_tokens or MAX_OUTPUT_TOKENS)
    elif tool := tool_name(parsed, wants, conversation):
        return msgspec.structs.replace(request, tool=tool, finish="tool_calls")
    else:
        script = plain_script(
            request.output_tokens, request.reasoning_tokens, request.finish, wants.stop
        )
        if script.stop_sequence is None and parsed.n == 1 and wants.top_logprobs is None:
            return request
    return msgspec.structs.replace(
        request,
        script=script,
        output_tokens=len(script.pieces),
        reasoning_tokens=script.reasoning_tokens,
        finish=request.endpoint.stop_reason
        if script.stop_sequence is not None
        else script.answer.finish,
    )


def _invalid(error: CallerFault) -> RejectedRequest:
    return RejectedRequest(400, str(error), code=error.kind)


def count_request_tokens(
    profile: Profile, endpoint: TokenCountEndpoint, path: str, body: bytes
) -> bytes:
    """Return the response to a request that only counts its tokens. Raises `RejectedRequest`."""
    try:
        request = endpoint.parse(body, path)
    except CallerFault as error:
        raise _invalid(error) from error
    check_model(profile, request.model)
    return endpoint.write(count_tokens(request.operation, request.prompt_text))


def check_model(profile: Profile, model: str) -> None:
    if profile.model != ANY_MODEL and model not in (profile.model, profile.name, *profile.aliases):
        message = f"unknown model {model!r}; this provider serves {profile.model!r}"
        raise RejectedRequest(404, message, code="model_not_found")
