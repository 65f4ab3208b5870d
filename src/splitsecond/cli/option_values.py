"""Parsing of options: text becomes values, or a `CallerFault` that names the option and what it
expects."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from splitsecond.benchmark.findings.recommendation import AtLoad
from splitsecond.benchmark.load.sweep import BUILT_IN, NamedWorkload, read_workloads
from splitsecond.benchmark.runs.settings import INPUT_TOKENS, Server
from splitsecond.core import clock
from splitsecond.core.catalog.ownership import Ownership, machines
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import one_of, wrong
from splitsecond.core.wire.reasoning import EFFORTS

_ADDRESS = re.compile(r"((?:[^=:/]+=)?)([\w.-]+:\d+)((?:/.*)?)")
"""An address without a scheme: HOST:PORT or HOST:PORT/PATH, also after NAME=."""
RATES = ("input_usd", "output_usd", "cached_usd", "cache_write_usd")


def full_address(text: str) -> str:
    """Return "HOST:PORT" as the URL of a server there, with the path ``/v1`` if it has none, and
    any other text as it is."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return text
    name, address, path = match.groups()
    return f"{name}http://{address}{path if path.strip('/') else '/v1'}"


def servers(
    base_urls: Sequence[str],
    model: str,
    name: str = "",
    api_key_env: str = "",
    api_format: str = "",
) -> list[Server]:
    """Return the servers that options describe: "URL" or "NAME=URL" each, with the same model, key
    and API format.

    Raises `CallerFault` for options without a server, for one name for several, and for a name that
    is given twice.
    """
    if not base_urls:
        options = {
            "--model": model,
            "--name": name,
            "--api-key-env": api_key_env,
            "--api-format": api_format,
        }
        if without_server := [option for option, value in options.items() if value]:
            raise CallerFault(
                f"{' and '.join(without_server)} needs --base-url with it", kind="bad_option"
            )
    if name and len(base_urls) > 1:
        raise wrong("--name", name, "--base-url NAME=URL for each of several servers")
    urls: dict[str, str] = {}
    for text in map(full_address, base_urls):
        own, url = named_url(text)
        if own and own in urls:
            raise CallerFault(f"--base-url: {own} is the name of two servers", kind="bad_option")
        if text in urls:
            raise CallerFault(
                f"--base-url: {text} is given twice",
                kind="bad_option",
                hint="Name them: a=URL b=URL.",
            )
        urls[own or text] = url
    same = {"model": model, "api_key_env": api_key_env, "api_format": api_format or "openai"}
    return [
        Server(base_url=url, name=name if key == url else key, **same) for key, url in urls.items()
    ]


def judged_load(text: str) -> AtLoad:
    """Return the load that a text such as c=16 or rate=2.5 names. Raises `CallerFault` for another
    one."""
    kind, _, amount = text.partition("=")
    try:
        value = float(amount)
    except ValueError:
        value = 0.0
    if kind not in ("c", "rate") or not 0 < value < math.inf:
        raise wrong("--at", text, "a load of the run, such as c=16 or rate=5")
    return AtLoad(value, kind == "c")


def named_url(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    return (name, url) if equals and "://" not in name else ("", text)


def prices(
    per_token: Sequence[str], per_hour: Sequence[str], owned: Sequence[str] = ()
) -> dict[str, Price]:
    """Return the prices of --price, --price-per-hour and --owned by target; "" has the price of all
    other targets."""
    today = clock.wall_time().date().isoformat()
    by_target: dict[str, Price] = {}
    for option, texts in (
        ("--price", per_token),
        ("--price-per-hour", per_hour),
        ("--owned", owned),
    ):
        for text in texts:
            target, _, figures = text.rpartition("=")
            before = by_target.get(target, Price(as_of=today, source="the command line"))
            if option == "--price":
                rates = _figures(option, text, figures, 2, len(RATES))
                by_target[target] = replace(before, **dict(zip(RATES, rates, strict=False)))
            elif option == "--owned":
                machine = _ownership(text, figures)
                by_target[target] = replace(
                    before, per_hour_usd=machine.usd_per_hour, owned=machine
                )
            else:
                by_target[target] = replace(
                    before, per_hour_usd=_figures(option, text, figures, 1, 1)[0]
                )
    return by_target


def _ownership(text: str, figures: str) -> Ownership:
    by_name = machines()
    name, _, others = figures.partition(",")
    if name in by_name:
        life, kwh = others.split(",") if others.count(",") == 1 else ("", "")
        figures = f"{by_name[name].purchase_usd:g},{life},{by_name[name].watts:g},{kwh}"
    try:
        purchase, years, watts, kwh_usd = map(float, figures.split(","))
    except ValueError:
        purchase = years = watts = kwh_usd = -1.0
    if not (0 <= purchase < 1e9 and 0 < years <= 100 and 0 <= watts < 1e7 and 0 <= kwh_usd < 1e3):
        expected = (
            f"USD,YEARS,WATTS,USD/KWH such as 1500,3,450,0.15, or {' or '.join(by_name)} "
            "with YEARS,USD/KWH"
        )
        raise wrong("--owned", text, f"{expected}; for one target TARGET=…")
    return Ownership(purchase_usd=purchase, life_years=years, watts=watts, usd_per_kwh=kwh_usd)


def _figures(option: str, text: str, figures: str, least: int, most: int) -> list[float]:
    try:
        numbers = [float(figure) for figure in figures.split(",")]
    except ValueError:
        numbers = []
    if not (least <= len(numbers) <= most and all(0 <= figure < 1e9 for figure in numbers)):
        expected = (
            "US dollars per hour, such as 2.69"
            if most == 1
            else "INPUT,OUTPUT[,CACHED[,CACHE WRITE]] in US dollars"
        )
        raise wrong(option, text, f"{expected}; for one target TARGET=…")
    return numbers


def tokens(text: str, option: str) -> int:
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    try:
        count = round(float(text[:-1] if scale > 1 else text) * scale)
    except (ValueError, OverflowError):
        count = 0
    if count < 1:
        raise wrong(option, text, "a number of tokens such as 512, 8k or 1M")
    return count


def calls_per_day(text: str) -> float:
    """Parse ``10k/day``, ``2M/month`` or ``500/hour``; a month has 30 days."""
    amount, _, period = text.partition("/")
    a_day = {"hour": 24.0, "day": 1.0, "month": 1 / 30}.get(period.strip())
    if a_day is None:
        raise wrong("--calls", text, "a number of calls an hour, a day or a month, such as 10k/day")
    return tokens(amount.strip(), "--calls") * a_day


def workloads(
    lengths: str,
    names: Sequence[str],
    file: Path | None,
    batches: Sequence[int] = (),
    efforts: Sequence[str] = (),
    *,
    keep_rate: bool,
) -> list[NamedWorkload]:
    """Return the workloads of a sweep: of several prompt lengths, `batches` or reasoning `efforts`,
    or named ones; empty for none.

    Without `keep_rate`, the load of the command line replaces their rates.
    """
    parts = [part.strip() for part in lengths.split(",") if part.strip()]
    if names and parts:
        raise wrong(
            "--workload", names[0], "no --input-tokens with it: a workload has its own lengths"
        )
    if file is not None and not names:
        raise wrong("--workloads", str(file), "--workload NAME with it")
    if len(batches) > 1 or efforts:
        return _batches_or_efforts(parts, names, batches, efforts)
    if len(parts) > 1:
        return [
            NamedWorkload(name=part, input_tokens=tokens(part, "--input-tokens")) for part in parts
        ]
    by_name = BUILT_IN | (read_workloads(file) if file else {})
    chosen = [by_name[one_of("--workload", name, tuple(by_name))] for name in names]
    return chosen if keep_rate else [replace(each, rate=None) for each in chosen]


def _batches_or_efforts(
    lengths: Sequence[str], names: Sequence[str], batches: Sequence[int], efforts: Sequence[str]
) -> list[NamedWorkload]:
    if len(lengths) > 1 or names or (len(batches) > 1 and efforts):
        option = "--reasoning-effort" if efforts else "--batch"
        raise wrong(option, efforts or batches, "one --input-tokens, and no other sweep with it")
    length = tokens(lengths[0], "--input-tokens") if lengths else INPUT_TOKENS["fresh"]
    if efforts:
        return [
            NamedWorkload(name=f"effort-{each}", input_tokens=length, effort=each)
            for each in efforts
        ]
    return [
        NamedWorkload(name=f"batch-{each}", input_tokens=length, batch=each) for each in batches
    ]


def efforts(text: str) -> list[str]:
    """Parse ``low`` or ``low,high``. Raises `CallerFault` for an unknown level."""
    levels = [part.strip() for part in text.split(",") if part.strip()]
    return [one_of("--reasoning-effort", each, EFFORTS) for each in levels]
