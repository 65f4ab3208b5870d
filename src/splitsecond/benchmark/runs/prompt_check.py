from collections.abc import Iterable
from typing import Any

from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import API_FORMATS, quirks_of
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wording import listed

MODEL = "owner/model"
"""Any name: here, prompts are checked and not models."""


def check_prompts(workload: Workload, name: str, specs: Iterable[TargetSpec]) -> None:
    """Raise `CallerFault` for a prompt of the file `name` that the API format of a target cannot
    express, such as a sound or a document."""
    for spec in specs:
        quirks = quirks_of(spec)
        for number, prompt in enumerate(workload.prompts, 1):
            body = {**prompt, **workload.extra}
            if (fault := _fault(body, spec.api_format, quirks)) is not None:
                others = [form for form in API_FORMATS if not _fault(body, form, Quirks())]
                hint = f"API formats that can: {listed(others)}. {fault.hint}".strip()
                raise CallerFault(
                    f"{name}: prompt {number}: {fault.message}",
                    kind=fault.kind,
                    target=spec.name,
                    hint=hint,
                )


def _fault(body: dict[str, Any], api_format: str, quirks: Quirks) -> CallerFault | None:
    encode = API_FORMATS[api_format].encode
    try:
        transcoding.request(Call(id="", body=body), api_format, encode, MODEL, quirks)
    except CallerFault as fault:
        return fault
    return None
