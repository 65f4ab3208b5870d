"""Removal of secrets from texts that are printed, stored or sent to others: messages, URLs, what
was asked of a run.

Known secrets are replaced wherever they stand. Others are recognised by where they stand (a URL's
user and password, a query parameter such as `key`, the value of an Authorization header), by their
form (`sk-…`), or by the asterisks or dots with which a provider masks the middle of a key.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

MIN_SECRET = 8
"""Characters. A shorter key protects nothing ("none", "EMPTY"), and may stand in any message."""
MARK = "[key]"

_OUTSIDE = r"\s\"'`<>()\[\]{},;&…"
_LIKE_A_KEY = (
    rf"(?=[^{_OUTSIDE}]{{0,200}}[0-9])(?=[^{_OUTSIDE}]{{0,200}}[a-z])"
    rf"[^{_OUTSIDE}]{{{MIN_SECRET - 1},}}[^{_OUTSIDE}.:!?]"
)
"""Letters and digits in one piece. A sentence's full stop is no part of it."""
_PREFIXES = "sk|gsk|xai|hf|r8|pplx|nvapi|csk|fw|tgp"
_SHOWN = 80
"""Characters that a provider shows of a key whose middle it replaces by asterisks or dots."""
_PARAMETER = (
    r"[\w.~-]{0,40}(?:keys?|token|secret|passw(?:or)?d|pwd|(?<![a-z])sig|signature|auth|credential)(?![a-z])"
    r"[\w.~-]{0,9}"
)
# Every repetition before the secret is bounded, so that no text takes long. xai-grok-… is a profile
# of the simulator.
_SECRETS = (
    r"(?P<user>\b(?i:[a-z][a-z0-9+.-]{0,19})://)(?!USER[:@])[^/\s\"'@<>]{0,200}(?=@)"
    rf"|(?P<query>[?&](?i:{_PARAMETER})=)[^&\s\"'<>#]+"
    r"|(?P<named>(?i:(?<![a-z0-9])(?:authorization|bearer|basic|key|token|secret|password)(?:\sprovided)?)"
    rf"(?:[\"']?\s?[:=]\s?|\s)[\"']?){_LIKE_A_KEY}"
    rf"|\b(?!xai-grok-)(?:(?:{_PREFIXES})[-_]{_LIKE_A_KEY}|AIza[\w-]{{10,}}|ya29\.[\w-]{{10,}}"
    r"|A[KS]IA[A-Z0-9]{12,}|eyJ[\w-]{10,999}\.[\w.-]+)"
    rf"|(?<![\w*])[\w-]{{0,{_SHOWN}}}\*{{3,}}[\w*-]*"
    rf"|\b(?:{_PREFIXES})[-_][\w-]{{0,{_SHOWN}}}(?:\.{{3}}|…)[\w-]*"
)


@cache
def _secrets() -> re.Pattern[str]:
    return re.compile(_SECRETS)  # takes 6 ms, and most processes redact nothing when they start


def redacted(value: Any, secrets: Sequence[str] = ()) -> Any:
    """`value`, a text or lists and objects of texts, with "[key]" in the place of each secret.

    `secrets`: those that are known. The beginning of one at which an excerpt ends is replaced too.
    """
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MARK)
            if value.endswith("…"):
                begun = next(
                    (n for n in range(len(secret) - 1, 3, -1) if value.endswith(secret[:n] + "…")),
                    0,
                )
                value = f"{value[: len(value) - begun - 1]}{MARK}…" if begun else value
        return _secrets().sub(_marked, value)
    if isinstance(value, dict):
        return {name: redacted(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(each, secrets) for each in value]
    return value


def _marked(match: re.Match[str]) -> str:
    prefix = match["user"] or match["query"] or match["named"] or ""
    return prefix + MARK
