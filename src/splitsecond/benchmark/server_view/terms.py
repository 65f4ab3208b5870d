"""Our terms for what servers and GPUs report: a name, a unit, and how the values of several series
become one."""

from typing import Literal

from msgspec import Struct

Combine = Literal["sum", "mean", "max", "min"]
Kind = Literal["gauge", "counter", "histogram"]


class Term(Struct, frozen=True):
    """One term. A histogram has two values in a sample: ``NAME_sum`` and ``NAME_count``.

    `combine`: how several series of one page (engines, models, GPUs) become one value.
    """

    kind: Kind
    unit: str
    words: str
    combine: Combine = "sum"


TERMS = {
    "running": Term("gauge", "requests", "requests that are computed"),
    "waiting": Term("gauge", "requests", "requests that wait to be computed"),
    "kv_use": Term("gauge", "share", "share of the KV cache in use", "mean"),
    "preemptions": Term(
        "counter", "requests", "requests that lost their place in the KV cache and began again"
    ),
    "prompt_tokens": Term("counter", "tokens", "tokens of prompts, cached ones included"),
    "computed_tokens": Term("counter", "tokens", "tokens of prompts without cached ones"),
    "looked_up_tokens": Term(
        "counter", "tokens", "tokens of prompts that were looked up in the prefix cache"
    ),
    "cached_tokens": Term("counter", "tokens", "tokens of prompts that the prefix cache had"),
    "output_tokens": Term("counter", "tokens", "tokens of answers"),
    "drafted_tokens": Term("counter", "tokens", "tokens that speculative decoding proposed"),
    "accepted_tokens": Term("counter", "tokens", "proposed tokens that were accepted"),
    "ttft_s": Term("histogram", "s", "time to first token, as the server counts it"),
    "queue_s": Term("histogram", "s", "time of a request in the queue"),
    "prefill_s": Term("histogram", "s", "time from the queue to the first token"),
    "decode_s": Term("histogram", "s", "time from the first token to the last"),
    "e2e_s": Term("histogram", "s", "time of a whole request"),
    "gpus": Term("gauge", "GPUs", "GPUs that are seen"),
    "gpu_use": Term("gauge", "share", "share of the time in which a kernel ran", "mean"),
    "gpu_memory_bytes": Term("gauge", "bytes", "memory of the GPUs in use"),
    "power_w": Term("gauge", "W", "power of all GPUs"),
    "energy_j": Term("counter", "J", "energy of all GPUs"),
    "clock_mhz": Term("gauge", "MHz", "clock of the slowest GPU", "min"),
    "power_capped": Term("gauge", "share", "whether the power limit slows a GPU down", "max"),
    "heat_capped": Term("gauge", "share", "whether heat slows a GPU down", "max"),
}
