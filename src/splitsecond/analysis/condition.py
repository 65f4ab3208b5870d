"""The observations of one condition to its row of findings.

Figures are taken from measured requests that were answered whole. A request that the user cancelled is no error and
no success: it counts as load while it lasted, else nowhere. A row whose requests all failed stays, with empty figures.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.cost import S_PER_HOUR, Prices, with_cost
from splitsecond.analysis.figures import FIGURES, answered
from splitsecond.analysis.findings import ConditionFindings, Spread
from splitsecond.analysis.lateness import instrument_of
from splitsecond.analysis.slo import Slo
from splitsecond.analysis.spread import Floats, spread
from splitsecond.analysis.steady import event_tokens, load_of, per_second, tokens_in
from splitsecond.analysis.validity import Facts, invalid_reasons, notes
from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation

_SERVER_UNITS = {"_ms": 1.0, "_time": 1000.0, "_duration": 1e-6, "_to_first_token": 1000.0}
"""How a server's own timings are named, and what makes milliseconds of them: llama.cpp; Groq (s); Ollama (ns);
Replicate (s)."""


def condition_findings(
    asked: AskedCondition,
    observations: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    slo: Slo | None = None,
    prices: Prices | None = None,
) -> ConditionFindings:
    """The row of `asked`, from its own observations and readings. Roles other than measured and warm-up count for its
    cost only, by `prices`.

    `batching_efficiency` needs other rows, and stays None here.
    """
    sent = [o for o in observations if o.role in ("measured", "warmup")]
    measured = [o for o in sent if o.role == "measured" and o.outcome != "cancelled"]
    ok = answered(measured)
    load = load_of(sent, asked.concurrency, readings)
    error_kinds, error_examples = failures_by_kind(measured)

    def spread_of(name: str) -> Spread:
        return spread(FIGURES[name].values(ok), fast_end=FIGURES[name].fast_end)

    findings = ConditionFindings(
        condition=asked.condition,
        target=asked.target,
        concurrency=asked.concurrency,
        rate=asked.rate,
        cache_reuse=asked.cache_reuse,
        requests=len(measured),
        errors=sum(error_kinds.values()),
        error_kinds=error_kinds,
        error_examples=error_examples,
        warmups=len(sent) - sum(o.role == "measured" for o in sent),
        ttft_ms=spread_of("ttft_ms"),
        ttft_cold_ms=spread_of("ttft_cold_ms"),
        ttft_due_ms=spread_of("ttft_due_ms"),
        first_answer_ms=spread_of("first_answer_ms"),
        tps=spread_of("tps"),
        tpot_ms=spread_of("tpot_ms"),
        itl_ms=itl_ms(ok),
        itl_per_token_ms=itl_per_token_ms(ok),
        e2e_ms=spread_of("e2e_ms"),
        response_ms=spread_of("response_ms"),
        total_tps=spread_of("total_tps"),
        output_tokens_per_s=per_second(tokens_in(sent, load.steady), load.steady),
        output_tokens_per_s_whole=per_second(tokens_in(measured, load.whole), load.whole),
        requests_per_s=per_second(len(ok), load.whole),
        steady_s=load.steady.length_ns / NS_PER_S or None,
        goodput=slo.goodput(measured, load.whole, open_loop=asked.open_loop) if slo else None,
        input_tokens=_mean([o.input_tokens for o in ok]),
        output_tokens=_mean([o.output_tokens for o in ok]),
        cached_tokens=_mean([o.cached_tokens for o in ok]),
        reasoning_tokens=_mean([o.reasoning_tokens for o in ok]),
        tokens_per_event=tokens_per_event(ok),
        token_source=", ".join(sorted({o.token_source for o in ok if o.token_source})),
        phases_ms=phases_ms(ok),
        server_ms=server_ms(ok),
        instrument=instrument_of(measured, readings, load, tokens_in(sent, load.whole)),
    )
    facts = Facts(
        asked=asked,
        findings=findings,
        measured=measured,
        answered=ok,
        load=load,
        cancelled=sum(o.role == "measured" and o.outcome == "cancelled" for o in sent),
    )
    findings = msgspec.structs.replace(findings, invalid=invalid_reasons(facts), notes=notes(facts))
    return with_cost(findings, observations, prices or {}, hours=load.whole.length_ns / NS_PER_S / S_PER_HOUR)


def failures_by_kind(measured: Sequence[Observation]) -> tuple[dict[str, int], dict[str, str]]:
    """How often each kind of failure came, and of each one message."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for o in measured:
        if o.outcome == "failed":
            kind = o.fault.kind if o.fault else "unknown"
            counts[kind] += 1
            examples.setdefault(kind, o.fault.message if o.fault else "")
    return dict(counts.most_common()), {kind: text for kind, text in examples.items() if text}


def itl_ms(ok: Sequence[Observation]) -> Spread:
    """The gaps between content events of all requests together, in ms.

    Gaps of one answer depend on each other (a slow step of the server delays all of its streams), so their number
    says nothing about how sure a percentile is: there are no intervals.
    """
    gaps = [np.diff(np.array(o.token_at, dtype=np.float64)) for o in ok]
    return spread(np.concatenate(gaps) / NS_PER_MS if gaps else [], independent=False)


def itl_per_token_ms(ok: Sequence[Observation]) -> Spread:
    """The same gaps per token: one that an event of k tokens ended counts k times, each a k-th as long."""
    shared = [np.empty(0)]
    for o in ok:
        tokens = np.maximum(event_tokens(o)[1:].round(), 1.0)
        shared.append(np.repeat(np.diff(o.token_at) / tokens, tokens.astype(np.int64)))
    return spread(np.concatenate(shared) / NS_PER_MS, independent=False)


def tokens_per_event(ok: Sequence[Observation]) -> float | None:
    """Streamed tokens per content event."""
    known = [(n, len(o.token_at)) for o in ok if (n := o.streamed_tokens) is not None and o.token_at]
    events = sum(events for _, events in known)
    return sum(n for n, _ in known) / events if events else None


def phases_ms(ok: Sequence[Observation]) -> dict[str, float]:
    """Where the time of a request goes, means in ms that add up to connecting and E2E together.

    A reused connection took no time to make. "network" is the connection's round-trip time and is missing where that
    is not known; "provider" the rest of the TTFT; "streaming" from the first token to the last.
    """
    streamed = [o for o in ok if o.ttft_ns is not None and o.e2e_ns is not None]
    if not streamed:
        return {}
    ttft = _floats([o.ttft_ns for o in streamed])
    network = np.minimum(_floats([o.rtt_ns or 0 for o in streamed]), ttft)
    phases = {
        "dns": _floats([o.dns_ns for o in streamed]),
        "tcp": _floats([o.tcp_ns for o in streamed]),
        "tls": _floats([o.tls_ns for o in streamed]),
        "network": network,
        "provider": ttft - network,
        "streaming": _floats([o.e2e_ns for o in streamed]) - ttft,
    }
    if all(o.rtt_ns is None for o in streamed):
        del phases["network"]
    return {name: float(took.mean()) / NS_PER_MS for name, took in phases.items()}


def server_ms(ok: Sequence[Observation]) -> dict[str, float]:
    """What servers say of their own time: the median of each duration that they name, in ms.

    Their names carry the unit (llama.cpp's ``prompt_ms``; Groq's and Cerebras' ``prompt_time``, in seconds). What has
    no such ending is a count or a rate, and paces per token are TPOT in other words; those stay in the observations.
    """
    said: defaultdict[str, list[float]] = defaultdict(list)
    for o in ok:
        for name, value in o.server_timings.items():
            for ending, in_ms in _SERVER_UNITS.items():
                if name.endswith(ending) and "_per_" not in name:
                    said[name if ending == "_to_first_token" else name.removesuffix(ending)].append(value * in_ms)
    return {name: float(np.median(values)) for name, values in said.items()}


def _floats(values: Sequence[int | None]) -> Floats:
    return np.array(values, dtype=np.float64)


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
