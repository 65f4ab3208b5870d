"""Calibration: the first requests to each target, which test whether it can be measured and fit the
prompts' length.

The endpoint reports how many input tokens it counted, a number that is nearly linear in the number
of plain words. Two short requests give the line, and a third one of the required length checks it;
if it is off, the line through the last two corrects it. The line of a trace is drawn through its
shortest request and one of the median length.

A fault that every other request would meet ends the run before anything is measured; a target that
cannot be reached, or has another API, only if that holds for every target. After any other failure
the request is sent again.

The last request is a pilot of full length. Its duration tells how long the warm-up of an open loop
must last, and about how long the run takes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from statistics import median
from typing import Any

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.workload.prompt_files import LENGTH_FIELDS
from splitsecond.benchmark.workload.traced_prompts import INSTRUCTION, PromptScale
from splitsecond.benchmark.workload.traces import BLOCK_TOKENS, TracedRequest
from splitsecond.benchmark.workload.words import WORDS
from splitsecond.benchmark.workload.workload import SYSTEM, USER, Composer, Workload
from splitsecond.core import clock
from splitsecond.core.errors import (
    KEY_REFUSED,
    MODEL_NOT_SERVED,
    NO_CREDIT,
    USAGE_LIMIT,
    CallerFault,
    Fault,
    ProviderFault,
)
from splitsecond.core.events import Broken, Usage
from splitsecond.core.observation import FaultRecord
from splitsecond.core.service import Call, Service
from splitsecond.core.timing.timeline import record_fault

SYSTEM_TOKENS = 256
"""Tokens of the system prompt, as in published benchmarks of 512-token prompts; at most half of the
input."""
TOLERANCE = 0.02
SPAN = 32
"""Minimum words between two prompts that a line is drawn through; nearer ones may differ by chance
alone."""
RETRIES = 2
PAUSE_S = 0.5
SESSION_TOKENS = 2048
"""Most tokens of the prompt that gives the scale of sessions, whose own prompts are long and
expensive."""
CHECKS = 3
"""One request checks the line, two can correct it."""
CHARACTERS_PER_TOKEN = sum(map(len, WORDS)) / len(WORDS) + 1
"""Estimate for our words without a usage report: most of them are one token together with the space
before."""

WHAT_TO_CHECK: Mapping[str, str] = {
    "http_401": "Check the API key, and the variable that holds it.",
    KEY_REFUSED: "Check the API key, and the variable that holds it.",
    NO_CREDIT: "Check the plan and the billing of the account.",
    USAGE_LIMIT: "Check the spending limit of the account.",
    "http_403": "Check that the API key may use this model.",
    "http_404": "Check the model's name and the base URL (does it end in /v1?).",
    MODEL_NOT_SERVED: "Check the model's name.",
    "dns": "Check the host name in the base URL, and the network.",
    "certificate": "Check the base URL; for a private authority set SSL_CERT_FILE.",
}
NO_ANSWER: Mapping[str, str] = {
    "timeout_connect": "Check the host and the port; a firewall may stand between.",
    "timeout_head": "Check that it is the right server and its model is loaded; a longer timeout "
    "may help.",
    "timeout_first_token": "The server responds, but slowly or not at all; a "
    "longer timeout may help.",
}
PASSING_STATUS = (408, 409, 425, 429)
PASSING_KINDS = ("in_band_error", "truncated", "empty_answer")
"""Failures of one request at a provider that works; the next one may succeed, as it may after any
5xx."""


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """A target's workload, ready to send. `input_tokens`: as the endpoint counts (None: it does
    not).

    `ttft_ns` and `response_ns` are those of the pilot (None: no pilot, or it failed). `fault` is
    set if the target did not answer the first request, or not as this API does.
    """

    workload: Workload
    input_tokens: int | None = None
    ttft_ns: int | None = None
    response_ns: int | None = None
    note: str = ""
    fault: FaultRecord | None = None


async def calibrate(
    service: Service, workload: Workload, *, input_tokens: int, name: str, pilot: bool = False
) -> Calibrated:
    """Send the first requests to a target; return its workload with synthetic prompts of
    `input_tokens`.

    The prompts of a trace and of sessions get their scale. With `pilot`, a request of full length
    is sent, too. `name` begins the ids of the calls. Raises the `Fault` if the target cannot be
    measured: one of `WHAT_TO_CHECK`, or a request that cannot be sent to it.
    """
    if workload.sessions is not None:
        tokens = min(
            SESSION_TOKENS,
            round(median(each.turns[0].input_tokens for each in workload.sessions.sessions)),
        )
        prompt = TracedRequest(0, tokens, round(workload.sessions.mean("output_tokens")) or 1)
        like = replace(workload, sessions=None, traced=[prompt])
        scaled = await calibrate(service, like, input_tokens=input_tokens, name=name, pilot=pilot)
        return replace(
            scaled,
            workload=replace(workload, scale=scaled.workload.scale),
            input_tokens=None,
        )
    trials = _Trials(service, name)
    # the line is that of the words of one input
    text_only = replace(workload, images=None, batch=1)
    calibrated = await _calibrate(trials, text_only, input_tokens)
    sized = replace(calibrated.workload, images=workload.images, batch=workload.batch)
    calibrated = replace(calibrated, workload=sized)
    if not pilot or calibrated.fault is not None:
        return calibrated
    ttft_ns, response_ns = await trials.pilot(calibrated.workload)
    return replace(calibrated, ttft_ns=ttft_ns, response_ns=response_ns)


async def _calibrate(trials: "_Trials", workload: Workload, input_tokens: int) -> Calibrated:
    try:
        if workload.traced:
            return await _scaled(trials, workload)
        if not workload.synthetic:
            return Calibrated(workload=workload, input_tokens=await trials.count(workload))
        return await _sized(trials, workload, input_tokens)
    except Fault as fault:
        if _is_fatal(fault):
            fault.hint = fault.hint or WHAT_TO_CHECK.get(fault.kind, "")
            raise
        fault.hint = fault.hint or NO_ANSWER.get(fault.kind, "")
        silent = None if trials.answered or _may_pass(fault) else record_fault(fault)
        if not workload.synthetic:
            return Calibrated(
                workload=workload,
                note=f"the first request failed: {fault_note(fault)}",
                fault=silent,
            )
        why = f"the request to calibrate it failed: {fault_note(fault)}"
        if workload.traced:
            return Calibrated(
                workload=_with_scale(workload, None), note=_unverified(why), fault=silent
            )
        return replace(_estimate(workload, input_tokens, why), fault=silent)


def _is_fatal(fault: Fault) -> bool:
    """Return whether every other request would fail, too. An HTTP 400 may reject only the limit of
    one token."""
    ours = isinstance(fault, CallerFault) and not fault.kind.startswith("http_")
    return ours or fault.kind in WHAT_TO_CHECK


def fault_note(fault: Fault) -> str:
    return f"{fault.message}. {fault.hint}".rstrip()


def _may_pass(fault: Fault) -> bool:
    """Return whether the provider works and rejected or failed only this request."""
    if isinstance(fault, ProviderFault):
        return fault.status >= 500 or fault.status in PASSING_STATUS or fault.kind in PASSING_KINDS
    return isinstance(fault, CallerFault)


class _Fit(msgspec.Struct, frozen=True):
    trials: list[tuple[int, int]]
    reason: str = ""


async def _fit(count: Callable[[int], Coroutine[Any, Any, int | None]], input_tokens: int) -> _Fit:
    """Send prompts until one has the `input_tokens` tokens. `count` sends one of so many words and
    returns its tokens."""
    lengths = SPAN, min(256, max(2 * SPAN, input_tokens))
    counts = [await count(words) for words in lengths]
    if counts[0] is None or counts[1] is None:
        return _Fit([], "the endpoint reports no usage")
    trials = [(lengths[0], counts[0]), (lengths[1], counts[1])]
    slope = 0.0
    for _ in range(CHECKS):
        (before_words, before_tokens), (words, tokens) = trials[-2:]
        if abs(words - before_words) >= SPAN:
            slope = (tokens - before_tokens) / (words - before_words)
        if not 0.2 < slope < 20:
            return _Fit(trials, f"the endpoint reports {slope:.2f} tokens per added word")
        corrected = max(0, words + round((input_tokens - tokens) / slope))
        if corrected == words:
            break
        reported = await count(corrected)
        if reported is None:
            return _Fit(trials, "the endpoint reports usage only for some requests")
        trials.append((corrected, reported))
        if abs(reported - input_tokens) <= TOLERANCE * input_tokens:
            break
    return _Fit(trials)


async def _sized(trials: "_Trials", workload: Workload, input_tokens: int) -> Calibrated:
    fit = await _fit(
        lambda words: trials.count(_of_length(workload, words, input_tokens)), input_tokens
    )
    if fit.reason:
        return _estimate(workload, input_tokens, fit.reason)
    words, tokens = fit.trials[-1]
    note = ""
    if abs(tokens - input_tokens) > TOLERANCE * input_tokens:
        least = "; the instructions alone are longer" if words == 0 else ""
        note = f"prompts have {tokens:,} input tokens instead of {input_tokens:,}{least}"
    return Calibrated(
        workload=_of_length(workload, words, input_tokens), input_tokens=tokens, note=note
    )


async def _scaled(trials: "_Trials", workload: Workload) -> Calibrated:
    median_tokens = round(median(each.input_tokens or 0 for each in workload.traced))
    has_blocks = any(each.hash_ids for each in workload.traced)

    def trial(words: int) -> Workload:
        ids = list(range(words // BLOCK_TOKENS)) if has_blocks else []
        return replace(workload, traced=[TracedRequest(0, words, 1, ids)], scale=PromptScale())

    fit = await _fit(lambda words: trials.count(trial(words)), median_tokens)
    if fit.reason:
        return Calibrated(workload=_with_scale(workload, None), note=_unverified(fit.reason))
    (few_words, few_tokens), (words, tokens) = fit.trials[0], fit.trials[-1]
    if abs(words - few_words) < SPAN:
        words, tokens = fit.trials[1]
    slope = (tokens - few_tokens) / (words - few_words)
    return Calibrated(
        workload=_with_scale(workload, PromptScale(few_tokens - slope * few_words, slope)),
        input_tokens=fit.trials[-1][1],
    )


def _with_scale(workload: Workload, scale: PromptScale | None) -> Workload:
    words = len(INSTRUCTION.split())
    estimate = PromptScale(len(INSTRUCTION) / CHARACTERS_PER_TOKEN - words)
    return replace(workload, scale=scale or estimate)


def _unverified(reason: str) -> str:
    return (
        f"input length not verified: {reason.rstrip('.')}; estimated at "
        f"{CHARACTERS_PER_TOKEN:.1f} characters a token"
    )


def _of_length(workload: Workload, words: int, input_tokens: int) -> Workload:
    """Share words out to the system prompt and the user message; with questions all are in the
    system prompt."""
    share = 1 if workload.questions else min(0.5, SYSTEM_TOKENS / max(input_tokens, 1))
    system_words = round(words * share)
    return replace(workload, system_words=system_words, user_words=words - system_words)


def _estimate(workload: Workload, input_tokens: int, reason: str) -> Calibrated:
    instructions = (len(SYSTEM) + len(USER)) / CHARACTERS_PER_TOKEN
    words = max(0, round(input_tokens - instructions))
    return Calibrated(workload=_of_length(workload, words, input_tokens), note=_unverified(reason))


class _Trials:
    """Sends requests for a single output token, to learn how many input tokens the endpoint
    counts."""

    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self._name = name
        self._sent = 0
        self._retries = 0
        self.answered = 0

    async def count(self, workload: Workload) -> int | None:
        """Return the endpoint's count. Retries failures that may pass; raises the `Fault` of the
        last attempt."""
        while True:
            try:
                return await self._send(workload)
            except Fault as fault:
                passing = not isinstance(fault, CallerFault) and (self.answered or _may_pass(fault))
                if self._retries == RETRIES or not passing or fault.kind in WHAT_TO_CHECK:
                    raise
            await asyncio.sleep(PAUSE_S * 2**self._retries)
            self._retries += 1

    async def pilot(self, workload: Workload) -> tuple[int | None, int | None]:
        """Return the ns of a response of full length to its first token and to its end; None if it
        fails."""
        call = self._call(workload, shortest=False)
        began_ns, first_ns = call.start_ns, 0
        try:
            async with await self._service(call) as reply:
                first_ns = clock.now_ns()
                async for event in reply:
                    if isinstance(event, Broken):
                        raise event.fault
        except Fault:
            return None, None
        return first_ns - began_ns, clock.now_ns() - began_ns

    def _call(self, workload: Workload, *, shortest: bool) -> Call:
        identity = f"{self._name}-{self._sent}"
        self._sent += 1
        body = Composer(workload).body(identity, 0)
        if shortest and not workload.inputs:
            body.pop("min_tokens", None)
            limits = {field: 1 for field in LENGTH_FIELDS if field in body}
            body.update(limits or {LENGTH_FIELDS[0]: 1})
        return Call(
            id=identity,
            operation=workload.operation,
            body=body,
            stream=not workload.inputs,
            start_ns=clock.now_ns(),
        )

    async def _send(self, workload: Workload) -> int | None:
        input_tokens = None
        async with await self._service(self._call(workload, shortest=True)) as reply:
            async for event in reply:
                if isinstance(event, Usage) and event.input_tokens is not None:
                    input_tokens = event.input_tokens
                elif isinstance(event, Broken):
                    raise event.fault
        self.answered += 1
        return input_tokens
