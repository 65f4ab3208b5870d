"""Sentences of findings, each on one line of a terminal where that is possible.

A sentence that is too long for the line loses what a reader can do without: long words, then the p-value and the ratio,
which the interval implies, then signs. If that does not suffice, it has the longest form that takes the fewest lines.
The report, JSON and Markdown have the full text.
"""

import re
from itertools import accumulate
from math import ceil

_SENTENCES = re.compile(r"(?<=[.)]\.|\w\.|%\.) (?=[A-Z])")
_SHORTER = (
    (re.compile(r"95% interval "), "95%: "),
    (re.compile(r" times as fast(?=[,)])"), "×"),
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
    (re.compile(r"(?<=; )this run could have seen [\d.,]+%, "), ""),
    (re.compile(r"; (?:this run could have seen|10% takes about) .*(?=\.$)"), ""),
    (re.compile(r" went from ([\d.,]+) to (?=\d)"), r" \1 → "),
    (re.compile(r", p [<=] [\d.e-]+(?=\))"), ""),
    (re.compile(r"95%: ([\d.,]+) to ([\d.,]+)(?=[,)])"), r"\1–\2"),
    (re.compile(r"(?<=\d)% to (?=[+−])"), " to "),
    (re.compile(r"(?:95%: |(?<=\())([\d.]+)% to ([\d.]+)%(?=\))"), r"\1–\2%"),
    (re.compile(r"(?<=\d) requests(?=, [\d.]+–)"), ""),
    (re.compile(r"^From (?=c=)"), ""),
    (re.compile(r"^At (c=\d+)[,:]? "), r"\1: "),
    (re.compile(r"(?<=\()[\d.,]+×, ([\d.,]+–[\d.,]+)(?=\))"), r"\1×"),
    (re.compile(r"no clear difference in (.*?): "), r"\1 undecided: "),
    (re.compile(r"(?<=\d) tokens/s(?=, )"), ""),
    (re.compile(r" is first on "), " leads in "),
    (re.compile(r"\), for the (?=better|worse)"), "), "),
    (re.compile(r"95%: (?=[+−])"), ""),
    (re.compile(r" grow (?=[\d.]+× for )"), ": "),
    (re.compile(r"(\d+(?:\.\d+)?×) for ([^\s,]+)(?=[,.])"), r"\2 \1"),
    (
        re.compile(r" p50 is ([\d.,]+)( ms)?(?: tokens/s)? for (\S+) and ([\d.,]+) for (\S+)(?= \()"),
        r" p50: \3 \1\2, \5 \4",
    ),
    (re.compile(r" times as fast(?= as )"), "× as fast"),
    (re.compile(r"\(([\d.]+) to ([\d.]+)\)"), r"(\1–\2)"),
    (re.compile(r"; prices are per million tokens"), ""),
    (re.compile(r"^No other target is both faster and cheaper than "), "Speed/price frontier: "),
    (re.compile(r" tokens/s at (?=\$)"), " at "),
    (re.compile(r"^(\S+) at (?=\S+/\1 )"), ""),
    (re.compile(r", the heaviest load of this search: use --to for heavier ones"), ", the --to limit"),
    (
        re.compile(r"a million tokens in this run's mix of input and output cost least at "),
        "$/M tokens, cheapest first: ",
    ),
)
"""What is shorter, in the order in which it is tried."""


def short_lines(finding: str, width: int) -> list[str]:
    """Return the sentences of a finding, each shortened to `width` columns where that is possible."""
    return [_short(sentence, width) for sentence in _SENTENCES.split(finding)]


def _short(sentence: str, width: int) -> str:
    """Return the longest form of a sentence that takes the fewest lines."""
    forms = accumulate(_SHORTER, lambda short, rule: rule[0].sub(rule[1], short), initial=sentence)
    return min(forms, key=lambda form: ceil(len(form) / width))
