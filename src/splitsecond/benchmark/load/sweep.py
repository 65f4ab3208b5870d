"""Several workloads in one run: prompt lengths, or named workloads with their own lengths and
rates.

Inside `load`, a target under one of several workloads is a target of its own, ``groq/x#8k``, with
its own calibration. Its blocks alternate with those of all others, so that a slow minute affects
every workload.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.load.plan import RunPlan
from splitsecond.benchmark.workload.images import parse_images
from splitsecond.benchmark.workload.workload import SEPARATOR, Workload
from splitsecond.core.errors import CallerFault, content_faults, file_faults
from splitsecond.core.validation import wrong

MAX_INPUT_TOKENS = 10_000_000
"""The longest context window of a model (2026)."""


class NamedWorkload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths in tokens of prompt and response. `rate`: requests per second, where no load is
    given; None: none.

    `images`: those of each request, as ``1024x1024,2``; "": those of the run. `batch`: inputs of
    each request of embeddings or a ranking; None: those of the run. `effort`: how long the model
    may reason, such as "low"; "": as the run says.
    """

    name: str = ""
    input_tokens: int
    output_tokens: int | None = None
    rate: float | None = None
    images: str = ""
    batch: int | None = None
    effort: str = ""


BUILT_IN: dict[str, NamedWorkload] = {
    each.name: each
    for each in (
        NamedWorkload(name="autocomplete", input_tokens=50, output_tokens=32, rate=500 / 60),
        NamedWorkload(name="chat", input_tokens=512, output_tokens=256),
        NamedWorkload(name="summary", input_tokens=1000, output_tokens=200, rate=10 / 60),
        NamedWorkload(name="rag", input_tokens=8000, output_tokens=300),
        NamedWorkload(name="long-form", input_tokens=256, output_tokens=2000),
    )
}
"""Workloads by name. Prompt lengths and rates of `autocomplete` and `summary` are those of "Fastest
LLM Inference" (50 tokens at 500 requests per minute, 1,000 tokens at 10); the rest is our
choice."""
WORKLOAD_HINT = (
    "A workload is a table such as [autocomplete] with input_tokens = 50, "
    "output_tokens = 32, rate = 8.3."
)


def read_workloads(path: Path) -> dict[str, NamedWorkload]:
    """Return the workloads of a TOML file, one table each, by name. Raises `CallerFault` for an
    invalid file."""
    with file_faults(f"cannot read the workloads {path}", kind="bad_workload", hint=WORKLOAD_HINT):
        data = path.read_bytes()
    with content_faults(str(path), kind="bad_workload", hint=WORKLOAD_HINT):
        workloads = msgspec.toml.decode(data, type=dict[str, NamedWorkload])
    return {name: replace(each, name=name) for name, each in workloads.items()}


def check_workloads(workloads: Sequence[NamedWorkload]) -> None:
    """Raise `CallerFault` for a workload that is given twice, or whose name or numbers make no
    sense."""
    names = [each.name for each in workloads]
    for each in workloads:
        if names.count(each.name) > 1:
            raise _bad(f"the workload {each.name} is given twice")
        if not each.name or SEPARATOR in each.name or not each.name.isprintable():
            raise _bad(f"{each.name!r} cannot be the name of a workload")
        if min(each.input_tokens, each.output_tokens or 1, each.batch or 1) < 1 or (
            each.rate is not None and not 0 < each.rate < 1e6
        ):
            raise _bad(f"the workload {each.name} needs lengths of 1 or more, and a rate above 0")
        check_prompt_length(each.input_tokens, each.batch or 1)
        if each.images:
            parse_images(each.images)


def check_prompt_length(tokens: int | None, inputs: int = 1) -> None:
    """Raise `CallerFault` for prompts, or so many inputs of a request, that no model reads and that
    take minutes to write."""
    if tokens is not None and tokens > MAX_INPUT_TOKENS:
        raise wrong("input_tokens", f"{tokens:,}", f"at most {MAX_INPUT_TOKENS:,}")
    most = MAX_INPUT_TOKENS // (tokens or 1)
    if inputs > most:
        raise wrong("batch", f"{inputs:,}", f"at most {most:,} inputs of {tokens:,} tokens")


def _bad(message: str) -> CallerFault:
    return CallerFault(message, kind="bad_workload", hint=WORKLOAD_HINT)


def swept(target: str, workload: str) -> str:
    return f"{target}{SEPARATOR}{workload}"


def plain(target: str, workload: Workload) -> tuple[str, str]:
    name, _, label = target.rpartition(SEPARATOR)
    return (name, label) if label in workload.variants else (target, "")


def merged(plans: Sequence[RunPlan]) -> RunPlan:
    if len(plans) == 1:
        return plans[0]
    lanes = []
    for lane in zip(*(plan.lanes for plan in plans), strict=True):
        placed = [
            ((number + 0.5) / len(each), block)
            for each in lane
            for number, block in enumerate(each)
        ]
        lanes.append([block for _, block in sorted(placed, key=lambda pair: pair[0])])
    conditions = [condition for plan in plans for condition in plan.conditions]
    return replace(plans[0], conditions=conditions, lanes=lanes)
