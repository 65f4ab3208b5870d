"""`splitsecond bench`: time targets, side by side in one run."""

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
    Policies,
    Prices,
    PricesPerHour,
    Prompts,
    Seed,
    Targets,
    Timeout,
    Warmup,
)


def bench(
    targets: Targets = None,
    policy: Policies = None,
    base_url: BaseUrl = "",
    model: Model = "",
    api_key_env: ApiKeyEnv = "",
    dialect: Dialect = "",
    name: Name = "",
    header: Headers = None,
    concurrency: Annotated[
        str,
        typer.Option(
            "-c",
            "--concurrency",
            metavar="N,N",
            help="Requests kept under way.",
            show_default="1,8,32",
            rich_help_panel=LOAD,
        ),
    ] = "",
    requests: Annotated[
        int, typer.Option("-n", "--requests", help="Measured requests for each row.", rich_help_panel=LOAD)
    ] = 50,
    rate: Annotated[
        str, typer.Option(metavar="R,R", help="Requests a second, whatever the answers do.", rich_help_panel=LOAD)
    ] = "",
    arrivals: Annotated[
        str, typer.Option(help="With --rate: constant, poisson or gamma; or trace.", rich_help_panel=LOAD)
    ] = "poisson",
    burstiness: Annotated[
        float, typer.Option(help="Shape of gamma arrivals: below 1 in bursts, 1 is Poisson.", rich_help_panel=LOAD)
    ] = 1.0,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Arrivals from a file: seconds, one a line.", rich_help_panel=LOAD),
    ] = None,
    warmup: Warmup = None,
    blocks: Annotated[
        int | None,
        typer.Option(
            help="Blocks for each row; those of all targets alternate.", show_default="up to 4", rich_help_panel=LOAD
        ),
    ] = None,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="Measure different hosts at the same time.", rich_help_panel=LOAD)
    ] = False,
    processes: Annotated[
        int | None, typer.Option(help="Processes for one row, at most.", show_default="the cores", rich_help_panel=LOAD)
    ] = None,
    seed: Seed = 0,
    input_tokens: Annotated[
        int | None,
        typer.Option(
            help="Length of the prompts, as the endpoint counts it.",
            show_default="512; 4608 to reuse the cache",
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    output_tokens: OutputTokens = 512,
    prompts: Prompts = None,
    cache: Annotated[
        str,
        typer.Option(
            help="fresh: every prompt begins differently; reuse: each row also with prompts that begin alike, and what "
            "the provider's prompt cache saves.",
            rich_help_panel=REQUESTS,
        ),
    ] = "fresh",
    ignore_eos: IgnoreEos = False,
    body: Body = "",
    timeout: Timeout = 120.0,
    slo: Annotated[
        str,
        typer.Option(
            metavar="LIMITS", help="Goodput under ttft=300ms,tpot=20ms, or voice, chat, …", rich_help_panel=RESULTS
        ),
    ] = "",
    price: Prices = None,
    price_per_hour: PricesPerHour = None,
    max_cost: Annotated[
        float | None,
        typer.Option(metavar="USD", help="Stop when so much is spent; keep what was measured.", rich_help_panel=MONEY),
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
    """Time LLM endpoints: time to first token, tokens per second, end to end, throughput; with intervals.

    \b
    splitsecond bench groq/openai/gpt-oss-120b cerebras/gpt-oss-120b
    splitsecond bench --base-url http://127.0.0.1:8000/v1 --model mine -c 1,8,32 -n 50 --ignore-eos
    splitsecond bench sim/groq sim/together --rate 5 --slo voice
    splitsecond bench sim/groq --policy 'hedge("sim/groq", "sim/together")'
    splitsecond bench anthropic/claude-haiku-4-5 openai/gpt-5-mini --cache reuse --max-cost 5
    """
    from contextlib import ExitStack

    from splitsecond.analysis.slo import parse_slo
    from splitsecond.cli import asking
    from splitsecond.cli.measuring import Job, measure, new_run_id
    from splitsecond.cli.pricing import find_prices
    from splitsecond.cli.results import Output
    from splitsecond.cli.targets import Endpoint, callees, parse_policies
    from splitsecond.load.plan import make_plan
    from splitsecond.load.workload import Workload, read_prompts
    from splitsecond.upstream.spec import Timeouts

    input_tokens = asking.input_length(input_tokens, cache)
    given = {option: str(value) if isinstance(value, Path) else value for option, value in locals().items()}
    settings = {option: value for option, value in given.items() if isinstance(value, str | int | float | list)}
    asking.at_least_one(input_tokens=input_tokens, output_tokens=output_tokens, timeout=timeout, requests=requests)
    if processes is not None:
        asking.at_least_one(processes=processes)
    if slo:
        parse_slo(slo)
    if max_cost is not None and not max_cost >= 0:
        raise asking.wrong("--max-cost", max_cost, "US dollars, 0 or more")
    loads = asking.loads(concurrency, rate, arrivals, burstiness, trace)
    extra = asking.json_object(body, "--body") | ({"ignore_eos": True} if ignore_eos else {})
    reuse = cache == "reuse"
    run_id = new_run_id()
    workload = Workload(
        run=run_id,
        prompts=read_prompts(prompts) if prompts else [],
        output_tokens=output_tokens,
        questions=reuse,
        extra=extra,
        seed=seed,
    )
    endpoint = Endpoint.asked(base_url=base_url, model=model, name=name, api_key_env=api_key_env, dialect=dialect)
    policies = parse_policies(policy or [])
    if policies and side_by_side:
        raise asking.wrong("--side-by-side", side_by_side, "no --policy with it, as that calls several hosts itself")
    with ExitStack() as started:
        called = callees(
            targets or [],
            endpoint,
            policies,
            started,
            headers=asking.headers(header or []),
            timeouts=Timeouts(head_ms=round(timeout * 1000), first_token_ms=round(timeout * 1000)),
            seed=seed,
        )
        plan = make_plan(
            called.measured,
            loads,
            requests=requests,
            warmups=warmup,
            blocks=blocks,
            seed=seed,
            side_by_side=side_by_side,
            cache_reuse=reuse,
        )
        if reuse and prompts is None and (advice := asking.too_short_to_cache(input_tokens)):
            typer.echo(advice, err=True)
        job = Job(
            run_id=run_id,
            plan=plan,
            specs=called.specs,
            workload=workload,
            input_tokens=input_tokens,
            settings=settings,
            slo=slo,
            processes=processes,
            prices=find_prices(called.specs, price or [], price_per_hour or []),
        )
        code = measure(job, Output(folder=out, json=json, html=html, png=png), max_cost)
    raise typer.Exit(code)
