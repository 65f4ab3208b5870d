"""The first requests to each target: they show whether it can be measured, and how long its prompts get.

No tokenizer is needed to send 512 input tokens: the endpoint says in its usage how many it counted. Tokens are very
nearly a straight line in words (a prompt of plain words costs a fixed number for the template and the instructions,
then about one a word), so two short requests of different length give the line, a third, of the wanted length, checks
it, and where it is off the line is drawn again through the last two.

Because these are the first requests to a target, they also find what no repetition would mend (a wrong key, model,
name or certificate): that stops the run before anything is measured. Of a target that could not be reached, or is no
such API, the failure is passed on: where it is so of every target, there is nothing to measure. Any other failure
(busy, a broken answer) will be counted.
"""

from collections.abc import Mapping

import msgspec

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault, ProviderFault
from splitsecond.events import Broken, Usage
from splitsecond.load.words import WORDS
from splitsecond.load.workload import LENGTH_FIELDS, SYSTEM, USER, Composer, Workload
from splitsecond.service import Call, Service
from splitsecond.timing.observation import FaultRecord
from splitsecond.timing.timeline import record_fault

SYSTEM_TOKENS = 256
"""The system prompt's share, as published benchmarks of 512-token prompts have it; at most half of the input."""
TOLERANCE = 0.02
CHECKS = 3
"""Requests of the wanted length, at most: one to check the line and two to correct it."""
CHARACTERS_PER_TOKEN = sum(map(len, WORDS)) / len(WORDS) + 1
"""Of our words, where nobody counts: most of them are one token together with the space before."""

WHAT_TO_CHECK: Mapping[str, str] = {
    "http_401": "Check the API key, and the variable that holds it.",
    "http_403": "Check that the API key may use this model.",
    "http_404": "Check the model's name and the base URL (does it end in /v1?).",
    "dns": "Check the host name in the base URL, and the network.",
    "certificate": "Check the base URL; for a private authority set SSL_CERT_FILE.",
}
"""Faults of the first request that every other request would meet too, so that they end the run."""

NO_ANSWER: Mapping[str, str] = {
    "timeout_connect": "Check the host and the port; a firewall may stand between.",
    "timeout_head": "Is it the right server, with its model loaded? To wait longer use --timeout.",
    "timeout_first_token": "The server is there, but slow or stuck. To wait longer use --timeout.",
}
"""What to check where there was silence."""

PASSING_STATUS = (408, 409, 425, 429)
PASSING_KINDS = ("in_band_error", "truncated", "empty_answer")
"""Answers of a provider that is there and speaks: the next request may fare better. So it may after any 5xx."""


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """A target's workload, ready to send. `input_tokens` as the endpoint counted them, None: it did not say.

    `fault`: the target did not answer the first request, or not as such an API would.
    """

    workload: Workload
    input_tokens: int | None = None
    note: str = ""
    fault: FaultRecord | None = None


async def calibrate(service: Service, workload: Workload, *, input_tokens: int, name: str) -> Calibrated:
    """Sends the first requests to a target and returns its workload with synthetic prompts of `input_tokens`.

    Prompts from a file are sent as they are; for them it is one request. `name` makes the ids of the calls. Raises
    the `Fault` if the target cannot be measured at all: one of `WHAT_TO_CHECK`, or a request that cannot be served.
    """
    trials = _Trials(service, name)
    try:
        if not workload.synthetic:
            return Calibrated(workload=workload, input_tokens=await trials.count(workload))
        return await _fit(trials, workload, input_tokens)
    except Fault as fault:
        if _is_hopeless(fault):
            fault.hint = fault.hint or WHAT_TO_CHECK.get(fault.kind, "")
            raise
        fault.hint = fault.hint or NO_ANSWER.get(fault.kind, "")
        mute = None if trials.answered or _may_pass(fault) else record_fault(fault)
        if not workload.synthetic:
            return Calibrated(workload=workload, note=f"the first request failed: {in_words(fault)}", fault=mute)
        estimate = _estimate(workload, input_tokens, f"the request to calibrate it failed: {in_words(fault)}")
        return msgspec.structs.replace(estimate, fault=mute)


def _is_hopeless(fault: Fault) -> bool:
    """Whether every other request would fail too. An HTTP 400 may be for the single token that is asked for here."""
    ours = isinstance(fault, CallerFault) and not fault.kind.startswith("http_")
    return ours or fault.kind in WHAT_TO_CHECK


def in_words(fault: Fault) -> str:
    """What happened and what to try, for a note that names the target already."""
    return f"{fault.message}. {fault.hint}".rstrip()


def _may_pass(fault: Fault) -> bool:
    """Whether the provider is there and speaks, and refused or failed only this request."""
    if isinstance(fault, ProviderFault):
        return fault.status >= 500 or fault.status in PASSING_STATUS or fault.kind in PASSING_KINDS
    return isinstance(fault, CallerFault)


async def _fit(trials: "_Trials", workload: Workload, wanted: int) -> Calibrated:
    lengths = 32, min(256, max(64, wanted))
    counts = [await trials.count(_of_length(workload, words, wanted)) for words in lengths]
    if counts[0] is None or counts[1] is None:
        return _estimate(workload, wanted, "the endpoint reports no usage")
    (words, tokens), (before_words, before_tokens) = (lengths[1], counts[1]), (lengths[0], counts[0])
    for _ in range(CHECKS):
        slope = (tokens - before_tokens) / (words - before_words)
        if not 0.2 < slope < 20:
            return _estimate(workload, wanted, f"the endpoint reports {slope:.2f} tokens per added word")
        before_words, before_tokens = words, tokens
        words = max(0, words + round((wanted - tokens) / slope))
        if words == before_words:
            break
        counted = await trials.count(_of_length(workload, words, wanted))
        if counted is None:
            return _estimate(workload, wanted, "the endpoint reports usage only now and then")
        tokens = counted
        if abs(tokens - wanted) <= TOLERANCE * wanted:
            break
    note = ""
    if abs(tokens - wanted) > TOLERANCE * wanted:
        least = "; the instructions alone are longer" if words == 0 else ""
        note = f"prompts are {tokens} input tokens long, asked were {wanted}{least}"
    return Calibrated(workload=_of_length(workload, words, wanted), input_tokens=tokens, note=note)


def _of_length(workload: Workload, words: int, wanted: int) -> Workload:
    """`workload` with that many words, of which the system prompt gets its share: all, where users ask questions."""
    share = 1 if workload.questions else min(0.5, SYSTEM_TOKENS / max(wanted, 1))
    system_words = round(words * share)
    return msgspec.structs.replace(workload, system_words=system_words, user_words=words - system_words)


def _estimate(workload: Workload, wanted: int, reason: str) -> Calibrated:
    instructions = (len(SYSTEM) + len(USER)) / CHARACTERS_PER_TOKEN
    words = max(0, round(wanted - instructions))
    note = (
        f"input length not verified: {reason.rstrip('.')}; estimated at {CHARACTERS_PER_TOKEN:.1f} characters a token"
    )
    return Calibrated(workload=_of_length(workload, words, wanted), note=note)


class _Trials:
    """Requests for a single token, to hear how many input tokens are counted."""

    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self._name = name
        self._sent = 0
        self.answered = 0
        """How many were answered whole."""

    async def count(self, workload: Workload) -> int | None:
        """What the endpoint counts for a prompt of this workload; None where it does not say."""
        identity = f"{self._name}-{self._sent}"
        self._sent += 1
        body = Composer(workload).body(identity, 0)
        body.pop("min_tokens", None)
        body.update({field: 1 for field in LENGTH_FIELDS if field in body} or {LENGTH_FIELDS[0]: 1})
        counted = None
        async with await self._service(Call(id=identity, body=body, start_ns=clock.now_ns())) as reply:
            async for event in reply:
                if isinstance(event, Usage) and event.input_tokens is not None:
                    counted = event.input_tokens
                elif isinstance(event, Broken):
                    raise event.fault
        self.answered += 1
        return counted
