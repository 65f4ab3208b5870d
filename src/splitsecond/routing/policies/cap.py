"""`cap(x, max_tokens=500)`: a limit on the length of answers."""

from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import WHOLE_OPERATIONS, Call, Reply, Service
from splitsecond.core.validation import plain_value
from splitsecond.core.wire.client_format import client_format
from splitsecond.core.wire.output_limit import LIMITS
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.prompt import examined
from splitsecond.routing.machinery.settings import Count


class Cap(PolicyService):
    def __init__(self, context: PolicyContext, service: Service, *, max_tokens: Count) -> None:
        super().__init__(context)
        self._service = service
        self._most = max_tokens.value

    async def __call__(self, call: Call) -> Reply:
        if call.operation in WHOLE_OPERATIONS:
            return await self._service(call)
        return await self._service(
            msgspec.structs.replace(call, body=await examined(call, self._capped))
        )

    def _capped(self, call: Call) -> dict[str, Any]:
        fields = dict(call.body)
        names = client_format(call).limit_fields
        has_limit = False
        for name in names:
            limit = _whole_number(name, fields.get(name))
            if limit is not None:
                has_limit = True
                if limit > self._most:
                    fields[name] = self._most
        if not has_limit:
            fields[names[-1]] = self._most
        for field, name in LIMITS.items():
            if field not in fields or field in names:
                continue
            if not name:
                fields[field] = self._lower(field, fields[field])
            elif isinstance(inside := plain_value(fields[field]), dict) and name in inside:
                fields[field] = {**inside, name: self._lower(name, inside[name])}
        return fields

    def _lower(self, name: str, value: Any) -> Any:
        limit = _whole_number(name, value)
        return self._most if limit is None or limit <= 0 else min(limit, self._most)


def _whole_number(name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, Raw):
            return msgspec.json.decode(value, type=int | None)
        return msgspec.convert(value, int)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's {name} is wrong: {error}") from error


cap = Policy(Cap, example='cap("a/x", max_tokens=500)', needs_stream=())
