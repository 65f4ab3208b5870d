"""Whether a cell passes, is refused by name, or is wrong: the client's answer against the
provider's own record."""

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from tests.clients.matrix.features import Feature
from tests.clients.matrix.received import read_chat
from tests.clients.matrix.relay import Exchange

from splitsecond.simulator.process import ReceivedRequest

CLASSES = {
    400: "BadRequest|InvalidRequest",
    401: "Authentication|Unauthorized",
    429: "RateLimit|TooManyRequests",
}
"""What the name of an exception has in libraries with a class for each status."""
OTHER_CLASSES = (
    "APICallError",
    "ApiError",
    "GoogleGenerativeAIFetchError",
    "ClientError",
    "ServerError",
    "ResponseError",
    "SDKError",
    "ModelHTTPError",
    "InstructorRetryException",
)
"""Exceptions of libraries that only tell the status."""


class Verdict(Struct, frozen=True):
    """The `state` of a cell: "passes", "refused", "left out", "estimated", "wrong", or "" where the
    client has no such feature."""

    state: str
    note: str = ""


class Evidence(Struct):
    """What is known about a cell beside the client's own words.

    `requests`: what the provider received, oldest first. `tokens`: input and output tokens of its
    last response. `cancelled`: it saw that the response was closed before its end.
    """

    requests: Sequence[ReceivedRequest]
    exchange: Exchange
    tokens: tuple[int, int] = (0, 0)
    cancelled: bool = False


def judge(feature: Feature, target: str, result: dict[str, Any], evidence: Evidence) -> Verdict:
    """Return the verdict on a cell."""
    if "unsupported" in result:
        return Verdict("", result["unsupported"])
    if feature.status:
        return _judge_error(feature, result)
    named = next((word for word in feature.words if _names(word, evidence.exchange.left_out)), None)
    if failure := result.get("failure"):
        response = bytes(evidence.exchange.response).decode("utf-8", "replace")
        if not response:  # the relay did not see which cell it was for
            response = f"HTTP/1.1 {failure['status']}\r\n\r\n{failure['message']}"
        response = response.replace(f"m-{feature.name}", "MODEL")
        refused = re.match(r"HTTP/1.1 4(00|04|22)", response) is not None
        if refused and any(
            _names(word, response.partition("\r\n\r\n")[2]) for word in feature.words
        ):
            return Verdict("refused", _short(failure["message"]))
        return Verdict("wrong", f"{failure['kinds'][0]}: {_short(failure['message'])}")
    problems = list(_answer_problems(feature, result["answer"], evidence))
    if "messages" in feature.ask and feature.ask.get("operation") != "count":
        problems += _request_problems(feature, target, evidence)
    if not problems:
        return Verdict("passes")
    if evidence.exchange.estimated and [each.partition(" ")[0] for each in problems] == ["usage"]:
        used, output = result["answer"]["usage"]
        return Verdict(
            "estimated" if used > 0 and output == evidence.tokens[1] else "wrong", problems[0]
        )
    if named is not None:
        return Verdict("left out", evidence.exchange.left_out)
    return Verdict("wrong", "; ".join(problems))


def _names(word: str, text: str) -> bool:
    return re.search(rf"(?<![A-Za-z]){re.escape(word)}"
    rf"(?![A-Za-z])" if len(word) < 3 else re.escape(word), text,
                     re.IGNORECASE) is not None  # fmt: skip


def _short(text: str) -> str:
    return " ".join(text.split())[:300]


def _judge_error(feature: Feature, result: dict[str, Any]) -> Verdict:
    """Judge a request that must fail, with the status and the class of exception that fit."""
    failure = result.get("failure")
    if failure is None:
        return Verdict("wrong", f"no exception: {_short(json.dumps(result))}")
    if feature.name == "broken":
        return Verdict("passes")
    status, expected = failure["status"], feature.status
    fits = status == expected or (expected >= 500 and status is not None and status >= 500)
    kinds = failure["kinds"]
    typed = any(
        kind in OTHER_CLASSES or re.search(CLASSES.get(expected, ""), kind) for kind in kinds
    )
    said = expected == 401 or "a test of status" in failure["message"]
    if fits and typed and said:
        return Verdict("passes")
    return Verdict("wrong", f"{kinds[0]} with status {status}: {_short(failure['message'])}")


def _answer_problems(feature: Feature, answer: dict[str, Any], evidence: Evidence) -> list[str]:
    problems = []
    for name, expected in feature.answer.items():
        value = answer.get(name)
        match name:
            case "usage":
                right = value is not None and tuple(value) == evidence.tokens
                expected = evidence.tokens
            case "parts":
                right = value is None or value >= expected
            case "json":
                value = answer.get("object", answer.get("text"))
                right = _as_json(value) == expected
            case "text" if "calls" in feature.answer and "loop" not in feature.ask:
                right = (value or "").strip() == expected.strip()
            case "text" if "stop" in feature.ask:
                right = (value or "").strip() == expected
            case "vectors":
                right = (
                    value is not None
                    and len(value) == expected
                    and value[0] != value[1]
                    and len(value[0]) > 8
                )
            case "count" | "models" | "logprobs":
                right = bool(value)
            case "text":
                right = value == expected or (
                    feature.ask.get("cancel") is True and evidence.cancelled
                )
            case _:
                right = value == expected
        if not right:
            problems.append(
                f"{name} is {_short(json.dumps(value, ensure_ascii=False))}, not {expected!r}"
            )
    if feature.ask.get("cancel") and not evidence.cancelled:
        problems.append("the provider was not told that the client has gone")
    return problems


def _as_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _request_problems(feature: Feature, target: str, evidence: Evidence) -> list[str]:
    if not evidence.requests:
        return ["the provider received no request"]
    last = evidence.requests[-1]
    try:
        sent = read_chat(target, last.body, f"{last.path}?{last.query}")
        if feature.sent(sent):
            return []
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return [
            f"the provider received {_short(json.dumps(last.body))} ({type(error).__name__}: "
            f"{error})"
        ]
    return [f"the provider received {_short(json.dumps(last.body, ensure_ascii=False))}"]
