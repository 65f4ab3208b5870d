"""`splitsecond explain ROUTE`: where a route's calls would go now, and why.

The running gateway answers, because only it knows the states of its targets. If none runs, the
answer is that of a gateway that starts now, with what it learns from its log and from runs of the
bench.
"""

import asyncio
import os
import urllib.parse
from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer

from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.options import Config, GatewayKey, GatewayUrl, Json, Policies, config_file
from splitsecond.cli.running_gateway import answer_of, gateway_address, not_a_gateway
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import PARSER_ERRORS, CallerFault, say
from splitsecond.core.money.cost import price_words
from splitsecond.core.wording import counted_as, percent
from splitsecond.gateway.process.reload import ConfigSource
from splitsecond.routing.configuration.checkup import tree
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.construction.preview import PreviewedChoice
from splitsecond.routing.machinery.definition import Policy
from splitsecond.routing.router.explain import PROMPT, Explained, TargetExplained
from splitsecond.routing.router.router import explained_by_history

LOOKS = {"up": "", "untested": "", "degraded": "yellow"}


def explain(
    route: Annotated[
        str, typer.Argument(metavar="ROUTE", help="A route's name, or PROVIDER/MODEL.")
    ],
    config: Config = None,
    policies: Policies = None,
    prompt: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Prompt of the call: its length and words can decide."),
    ] = "",
    url: GatewayUrl = "",
    api_key_env: GatewayKey = "",
    json: Json = "",
) -> None:
    """Show where calls to a route would go now, and why.

    \b
    splitsecond explain default
    splitsecond explain default --prompt "Translate this page"
    splitsecond explain groq/openai/gpt-oss-120b --url http://127.0.0.1:4000

    Also shows the state of each target. No request is sent to them.
    """
    check_json(json)
    settings = ConfigSource(config_file(config), os.environ, policies=policies).load()
    prompt = prompt or PROMPT
    explained = _asked(gateway_address(settings, url), route, prompt, api_key_env)
    if explained is None and url:
        raise CallerFault(f"no gateway answers at {url}", kind="no_gateway")
    if explained is None:
        explained = asyncio.run(explained_by_history(settings, route, prompt, say=say))
    own = settings.policies.policies() if settings.policies else {}
    _show(explained, own, Console(stderr=json == "-"))
    write_json(explained, json)


def _asked(address: str, route: str, prompt: str, key_env: str) -> Explained | None:
    """Return the explanation of the gateway at `address`; None if none answers. Raises
    `CallerFault` if it refuses."""
    question = urllib.parse.urlencode({"route": route, "prompt": prompt})
    answer = answer_of(address, f"/explain?{question}", key_env)
    try:
        return None if answer is None else msgspec.json.decode(answer, type=Explained)
    except PARSER_ERRORS:
        raise not_a_gateway(address) from None


def _show(explained: Explained, policies: Mapping[str, Policy], console: Console) -> None:
    def say(line: str = "", style: str = "") -> None:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)

    def say_choice(head: str, choice: PreviewedChoice, indent: int) -> None:
        say(f"{head}  {' and '.join(choice.targets) or 'no target'}", "bold")
        if why := choice.refused or choice.why:
            say(" " * indent + why)

    say(explained.route, "bold")
    for line in _policy(explained, policies):
        say(line)
    sampled = any(
        choice.odds is None and choice.calls < explained.calls for choice in explained.choices
    )
    how = f" (~: of {explained.calls} sampled calls)" if sampled else ""
    say(f"\nNow, according to {explained.source}{how}:")
    for choice in explained.choices:
        part = percent(choice.calls / explained.calls if choice.odds is None else choice.odds)
        part = f"~{part}" if sampled else part
        say_choice(f"{part:>6}", choice, 8)
    if explained.sessions:
        say("\nThe next turns of the latest sessions:")
    for choice in explained.sessions:
        say_choice("", choice, 4)
    say("\nTargets:")
    for each in explained.targets:
        say(f"  {each.status.target}", "bold")
        state, reason = each.status.state, each.status.reason
        words = reason if reason.startswith(state) else ": ".join(filter(None, (state, reason)))
        say(f"    {words}", LOOKS.get(state, "red"))
        say(f"    {', '.join(_figures(each))}")


def _policy(explained: Explained, policies: Mapping[str, Policy]) -> list[str]:
    try:
        return tree(parse(explained.policy, policies), 1)
    except CallerFault:  # it names policies that only the gateway knows
        return [f"  {explained.policy}"]


def _figures(each: TargetExplained) -> list[str]:
    status = each.status
    figures = [f"{status.in_flight} in flight"]
    if status.ttft_p50_ns is None:
        figures.append("speed unknown")
    else:
        p50 = _ms(status.ttft_p50_ns, is_bound=status.ttft_p50_is_bound)
        p95 = _ms(status.ttft_p95_ns, is_bound=status.ttft_p95_is_bound)
        figures.append(f"TTFT p50 {p50}, p95 {p95}")
    if status.tpot_ns:
        figures.append(f"{NS_PER_S / status.tpot_ns:,.0f} tokens/s")
    if status.samples:
        figures.append(f"weight of {counted_as(round(status.samples), 'recent request')}")
    if status.requests_left is not None:
        figures.append(f"{counted_as(status.requests_left, 'request')} left")
    figures.append(_price(each.facts.price))
    return figures


def _price(price: Price | None) -> str:
    if price is None:
        return "no price"
    blended = f", ${price.blended_usd:.3g} blended" if price.blended_usd else ""
    day = f" ({price.as_of})" if price.as_of else ""
    return f"{price_words(price)}{blended}{day}"


def _ms(ns: float | None, *, is_bound: bool) -> str:
    return "–" if ns is None else f"{'> ' if is_bound else ''}{ns / NS_PER_MS:.0f} ms"
