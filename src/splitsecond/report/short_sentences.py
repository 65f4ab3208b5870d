"""Sentences of findings, each on one line of a terminal where that is possible.

A sentence that is too long for the line loses what a reader can do without: long words, then the p-value, which the
interval implies, then signs. If that does not suffice, it stays as it is. The report, JSON and Markdown have the full
text.
"""

import re

_SENTENCES = re.compile(r"(?<=[.)]\.|\w\.|%\.) (?=[A-Z])")
_SHORTER = (
    (re.compile(r"95% interval "), "95%: "),
    (re.compile(r" times as fast"), "×"),
    (re.compile(r"\bconcurrency (?=\d)"), "c="),
    (re.compile(r" requests within it\b"), " requests"),
    (re.compile(r" \(not tested: too few requests or rounds\)"), " (not tested)"),
    (re.compile(r"(?<=\d) times for "), "× for "),
    (re.compile(r"(?<=\d) per million output tokens"), "/M output tokens"),
    (re.compile(r" per dollar and million tokens"), " per $/M tokens"),
    (re.compile(r"(?<=\d%) of requests (?=\()"), " "),
    (re.compile(r" it delivers(?= \d)"), ":"),
    (re.compile(r"/M output tokens"), "/M output"),
    (re.compile(r" here (?=\(Spearman)"), " "),
    (re.compile(r" cannot be distinguished by "), " not distinguished by "),
    (re.compile(r", p [<=] [\d.e-]+(?=\))"), ""),
    (re.compile(r"95%: ([\d.,]+) to ([\d.,]+)(?=[,)])"), r"\1–\2"),
    (re.compile(r"(?<=\d)% to (?=[+−])"), " to "),
    (re.compile(r"^From (?=c=)"), ""),
    (re.compile(r"^At (c=\d+)[,:]? "), r"\1: "),
)
"""What is shorter, in the order in which it is tried."""


def short_lines(finding: str, width: int) -> list[str]:
    """Return the sentences of a finding, each shortened to `width` columns where that is possible."""
    return [_short(sentence, width) for sentence in _SENTENCES.split(finding)]


def _short(sentence: str, width: int) -> str:
    short = sentence
    for pattern, shorter in _SHORTER:
        if len(short) <= width:
            break
        short = pattern.sub(shorter, short)
    return short if len(short) <= width else sentence
