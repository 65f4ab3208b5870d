"""`splitsecond explain ROUTE`: where a route's calls would go now, and why.

The running gateway is asked, because only it knows how its targets stand. Where none runs, the answer is what one would
know that starts now: from its log and the runs of the bench.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splitsecond.cli.serve import DEFAULT
from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.errors import CallerFault

if TYPE_CHECKING:
    from rich.console import Console

    from splitsecond.gateway.configuration.settings import Settings
    from splitsecond.gateway.explain import Explained, TargetExplained
    from splitsecond.policy.targets.facts import Facts

WAIT_S = 5.0


def explain(
    route: Annotated[str, typer.Argument(metavar="ROUTE", help="A route's name, or PROVIDER/MODEL.")],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The configuration; splitsecond.yaml where there is one.", show_default=False
        ),
    ] = None,
    prompt: Annotated[
        str, typer.Option(metavar="TEXT", help="What a call would ask: its length and words may decide.")
    ] = "",
    url: Annotated[
        str, typer.Option(metavar="URL", help="The gateway's address, where it is not the configuration's.")
    ] = "",
    api_key_env: Annotated[
        str, typer.Option(metavar="NAME", help="The variable with a key for all routes, for a gateway elsewhere.")
    ] = "",
    json: Annotated[str, typer.Option(metavar="FILE", help="The same as JSON; - for standard output.")] = "",
) -> None:
    """Explain where calls to ROUTE would go now, why, and how each of its targets stands. Nothing is sent to them."""
    import asyncio

    from rich.console import Console

    from splitsecond.cli.results import check_json, write_json
    from splitsecond.gateway.explain import PROMPT, by_history
    from splitsecond.gateway.process.reload import Source, say

    check_json(json)
    settings = Source(config or (DEFAULT if DEFAULT.exists() else None), os.environ, {}).load()
    prompt = prompt or PROMPT
    found = _asked(_address(settings, url), route, prompt, api_key_env)
    if found is None and url:
        raise CallerFault(f"no gateway answers at {url}", kind="no_gateway")
    if found is None:
        found = asyncio.run(by_history(settings, route, prompt, say))
    _show(found, Console(stderr=json == "-"))
    write_json(found, json)


def _address(settings: "Settings", url: str) -> str:
    if url:
        return url.rstrip("/").removesuffix("/v1")
    host = settings.listen.host
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.listen.port}"


def _asked(address: str, route: str, prompt: str, key_env: str) -> "Explained | None":
    """What the gateway at `address` says; None where none answers there. Raises `CallerFault` for its refusal."""
    import urllib.error
    import urllib.parse
    import urllib.request

    import msgspec

    from splitsecond.gateway.explain import Explained

    question = urllib.parse.urlencode({"route": route, "prompt": prompt})
    headers = {"authorization": f"Bearer {os.environ.get(key_env, '')}"} if key_env else {}
    request = urllib.request.Request(f"{address}/explain?{question}", headers=headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=WAIT_S) as answer:
            return msgspec.json.decode(answer.read(), type=Explained)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(4000).decode("utf-8", "replace")
        raise CallerFault(
            f"the gateway at {address} says no ({error.code}): {_message(said)}", kind="refused"
        ) from None
    except msgspec.DecodeError:
        words = f"what answers at {address} is no gateway of this version"
        raise CallerFault(words, kind="no_gateway", hint="Name another with --url.") from None
    except OSError:
        return None


def _message(said: str) -> str:
    import msgspec

    try:
        return str(msgspec.json.decode(said)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return said[:200]


def _show(found: "Explained", console: "Console") -> None:
    from splitsecond.gateway.configuration.checkup import tree
    from splitsecond.policy.expression import parse

    def say(line: str = "", style: str = "") -> None:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)

    say(found.route, "bold")
    for line in tree(parse(found.policy), 1):
        say(line)
    say(f"\nNow, as known to {found.source}:")
    for choice in found.choices:
        say(f"{choice.calls / found.calls:6.0%}  {' and '.join(choice.targets) or 'nobody'}", "bold")
        if why := choice.refused or choice.why:
            say(f"        {why}")
    say("\nTargets:")
    for each in found.targets:
        say(f"  {each.stands.target}", "bold")
        say(f"    {each.stands.reason or each.stands.state}", "" if each.stands.state == "up" else "red")
        say(f"    {', '.join(_figures(each))}")


def _figures(each: "TargetExplained") -> list[str]:
    stands, facts = each.stands, each.facts
    figures = [f"{stands.in_flight} under way"]
    if stands.ttft_p50_ns is None:
        figures.append("speed unknown")
    else:
        figures.append(f"TTFT p50 {_ms(stands.ttft_p50_ns)}, p95 {_ms(stands.ttft_p95_ns)}")
    if stands.tpot_ns:
        figures.append(f"{NS_PER_S / stands.tpot_ns:.0f} tokens/s")
    if stands.samples:
        figures.append(f"known as by {stands.samples:.0f} fresh requests")
    if stands.requests_left is not None:
        figures.append(f"{stands.requests_left} requests left")
    figures.append(_price(facts))
    return figures


def _price(facts: "Facts") -> str:
    from splitsecond.analysis.cost import price_words
    from splitsecond.catalog.price import Price

    if facts.input_usd is None or facts.output_usd is None:
        return "price unknown"
    price = Price(
        input_usd=facts.input_usd,
        output_usd=facts.output_usd,
        cached_usd=facts.cached_usd,
        per_hour_usd=facts.per_hour_usd,
    )
    blended = f", ${price.blended_usd:.3g} blended" if price.blended_usd else ""
    day = f" ({facts.priced})" if facts.priced else ""
    return f"{price_words(price)}{blended}{day}"


def _ms(ns: float | None) -> str:
    return "–" if ns is None else f"{ns / NS_PER_MS:.0f} ms"
