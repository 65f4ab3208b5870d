"""`splitsecond capacity`: how much load a server of one's own bears within limits."""

from pathlib import Path
from typing import Annotated

import typer

from splitsecond.cli.options import (
    LOAD,
    MONEY,
    REQUESTS,
    RESULTS,
    ApiKeyEnv,
    BaseUrl,
    Body,
    Dialect,
    Headers,
    IgnoreEos,
    Model,
    Name,
    OutputTokens,
    Prices,
    PricesPerHour,
    Prompts,
    Seed,
    Timeout,
    Warmup,
)

MOST = "What is enough"


def capacity(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[TARGET]", help="provider/model, sim/PROFILE or engine/small; or --base-url.", show_default=False
        ),
    ] = "",
    base_url: BaseUrl = "",
    model: Model = "",
    api_key_env: ApiKeyEnv = "",
    dialect: Dialect = "",
    name: Name = "",
    header: Headers = None,
    slo: Annotated[
        str,
        typer.Option(metavar="LIMITS", help="ttft=300ms,tpot=20ms,e2e=5s,tps=50, or voice, …", rich_help_panel=MOST),
    ] = "voice",
    share: Annotated[
        str, typer.Option(metavar="SHARE", help="Of the requests must keep to them.", rich_help_panel=MOST)
    ] = "95%",
    rate: Annotated[
        bool,
        typer.Option("--rate", help="Search by requests a second, not by requests under way.", rich_help_panel=LOAD),
    ] = False,
    first: Annotated[float, typer.Option("--from", help="The lightest load.", rich_help_panel=LOAD)] = 1,
    last: Annotated[float, typer.Option("--to", help="The heaviest load.", rich_help_panel=LOAD)] = 256,
    requests: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--requests",
            help="Requests of a step before it is looked at.",
            show_default="as many as can decide it",
            rich_help_panel=LOAD,
        ),
    ] = None,
    warmup: Warmup = None,
    processes: Annotated[
        int | None, typer.Option(help="Client processes, at most.", show_default="the cores", rich_help_panel=LOAD)
    ] = None,
    seed: Seed = 0,
    input_tokens: Annotated[
        int, typer.Option(help="Length of the prompts, as the endpoint counts it.", rich_help_panel=REQUESTS)
    ] = 512,
    output_tokens: OutputTokens = 128,
    prompts: Prompts = None,
    ignore_eos: IgnoreEos = False,
    body: Body = "",
    timeout: Timeout = 120.0,
    price: Prices = None,
    price_per_hour: PricesPerHour = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            metavar="USD", help="Stop when so much is spent; needed where tokens cost.", rich_help_panel=MONEY
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The run's folder.", show_default="runs/ID", rich_help_panel=RESULTS),
    ] = None,
    json: Annotated[
        str, typer.Option(metavar="FILE", help="The findings as JSON; - for standard output.", rich_help_panel=RESULTS)
    ] = "",
    png: Annotated[bool, typer.Option("--png", help="The plots as pictures too.", rich_help_panel=RESULTS)] = False,
    html: Annotated[bool, typer.Option(help="Write report.html.", rich_help_panel=RESULTS)] = True,
) -> None:
    """Find the heaviest load at which a server keeps to limits: it doubles until they do not hold, then closes in.

    \b
    splitsecond capacity --base-url http://127.0.0.1:8000/v1 --model mine --slo voice --ignore-eos
    splitsecond capacity --base-url http://127.0.0.1:11434/v1 --model llama3.2 --slo ttft=1s,tpot=50ms --to 16
    splitsecond capacity sim/runpod-h100-mistral-7b --rate --slo ttft=300ms,tpot=20ms --price-per-hour 2.69
    """
    from contextlib import ExitStack

    from splitsecond.analysis.search import Search
    from splitsecond.analysis.slo import parse_slo
    from splitsecond.cli import asking
    from splitsecond.cli.measuring import Job, measure, new_run_id
    from splitsecond.cli.pricing import find_prices
    from splitsecond.cli.results import Output
    from splitsecond.cli.targets import Endpoint, resolve
    from splitsecond.load.climb import Climb
    from splitsecond.load.workload import Workload, read_prompts
    from splitsecond.upstream.spec import Timeouts

    given = {option: str(value) if isinstance(value, Path) else value for option, value in locals().items()}
    settings = {option: value for option, value in given.items() if isinstance(value, str | int | float | list)}
    settings |= {
        "from": settings.pop("first"),
        "to": settings.pop("last"),
    }  # by the options' names
    asking.at_least_one(input_tokens=input_tokens, output_tokens=output_tokens, timeout=timeout)
    asking.at_least_one(**{n: v for n, v in (("requests", requests), ("processes", processes)) if v is not None})
    limits = parse_slo(slo)
    wanted = asking.share(share, "--share")
    asking.span(first, last, whole=not rate)
    if max_cost is not None and not max_cost >= 0:
        raise asking.wrong("--max-cost", max_cost, "US dollars, 0 or more")
    extra = asking.json_object(body, "--body") | ({"ignore_eos": True} if ignore_eos else {})
    endpoint = Endpoint.asked(base_url=base_url, model=model, name=name, api_key_env=api_key_env, dialect=dialect)
    if target and endpoint:
        raise asking.wrong("--base-url", base_url, f"either it or {target}: a search has one target")
    run_id = new_run_id()
    workload = Workload(
        run=run_id,
        prompts=read_prompts(prompts) if prompts else [],
        output_tokens=output_tokens,
        extra=extra,
        seed=seed,
    )
    with ExitStack() as started:
        specs = resolve(
            [target] if target else [],
            endpoint,
            started,
            headers=asking.headers(header or []),
            timeouts=Timeouts(head_ms=round(timeout * 1000), first_token_ms=round(timeout * 1000)),
            seed=seed,
        )
        (spec,) = specs.values()
        prices = find_prices(specs, price or [], price_per_hour or [])
        if max_cost is None and any(each.input_usd or each.output_usd for each in prices.values()):
            raise asking.wrong("--max-cost", max_cost, f"US dollars, as {spec.name} is paid by the token")
        climb = Climb(
            spec.name,
            spec.base_url,
            Search(first, last, whole=not rate),
            limits,
            wanted,
            open_loop=rate,
            requests=requests,
            warmups=warmup,
            seed=seed,
        )
        job = Job(
            run_id=run_id,
            plan=climb.beginning(),
            specs=specs,
            workload=workload,
            input_tokens=input_tokens,
            settings=settings,
            slo=slo,
            processes=processes,
            prices=prices,
            climb=climb,
        )
        code = measure(job, Output(folder=out, json=json, html=html, png=png), max_cost)
    raise typer.Exit(code)
