"""`splitsecond watch`: the same small benchmark again and again, because providers drift."""

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

WHEN = "When"


def watch(
    targets: Targets = None,
    policy: Policies = None,
    base_url: BaseUrl = "",
    model: Model = "",
    api_key_env: ApiKeyEnv = "",
    dialect: Dialect = "",
    name: Name = "",
    header: Headers = None,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="From one round to the next: 30m, 3h, 1d.", rich_help_panel=WHEN)
    ] = "1h",
    times: Annotated[
        int | None,
        typer.Option(metavar="N", help="End after so many rounds.", show_default="never", rich_help_panel=WHEN),
    ] = None,
    concurrency: Annotated[
        str, typer.Option("-c", "--concurrency", metavar="N,N", help="Requests kept under way.", rich_help_panel=LOAD)
    ] = "1",
    requests: Annotated[
        int, typer.Option("-n", "--requests", help="Measured requests for each row of a round.", rich_help_panel=LOAD)
    ] = 20,
    warmup: Warmup = None,
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
        typer.Option(metavar="USD", help="End when all rounds in the folder have cost so much.", rich_help_panel=MONEY),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the rounds are kept.", rich_help_panel=RESULTS)
    ] = Path("watch"),
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPRESSION",
            help="Fails where it holds for a row of a round, as in 'ttft_ms.p95 > +20%'. Repeatable.",
            rich_help_panel=RESULTS,
        ),
    ] = None,
    json: Annotated[
        str,
        typer.Option(metavar="FILE", help="What was found as JSON; - for standard output.", rich_help_panel=RESULTS),
    ] = "",
    html: Annotated[bool, typer.Option(help="Write report.html.", rich_help_panel=RESULTS)] = True,
) -> None:
    """Measure the same again and again, and say what has become slower, faster or less sure.

    \b
    splitsecond watch groq/openai/gpt-oss-120b cerebras/gpt-oss-120b --every 3h --max-cost 20
    splitsecond watch --base-url http://127.0.0.1:8000/v1 --model mine --every 30m --ignore-eos
    splitsecond watch groq/openai/gpt-oss-120b --times 1 --fail-if 'ttft_ms.p95 > +20%'

    Each round is a run in a folder of its own, for `report`, `compare` and the gateway's seeds. Rounds that are in the
    folder already are the past, so a watch that is started again goes on. A round is judged by those before it, 8 at
    least: one beyond what is usual is unusual, two are a drift. With --times the exit code is 1 if a --fail-if held, if
    at the end a target has drifted for the worse, or if the last round failed as a whole.
    """
    from contextlib import ExitStack

    import msgspec

    from splitsecond.analysis.gate import parse_gate
    from splitsecond.cli import asking
    from splitsecond.cli.measuring import Job, new_run_id
    from splitsecond.cli.pricing import find_prices
    from splitsecond.cli.results import check_json
    from splitsecond.cli.targets import Endpoint, callees, parse_policies
    from splitsecond.cli.watch_session import Session, Settings
    from splitsecond.load.plan import make_plan
    from splitsecond.load.workload import Workload, read_prompts
    from splitsecond.upstream.spec import Timeouts

    given = {option: str(value) if isinstance(value, Path) else value for option, value in locals().items()}
    settings = {option: value for option, value in given.items() if isinstance(value, str | int | float | list)}
    check_json(json)
    every_ns = asking.interval(every, "--every")
    asking.at_least_one(input_tokens=input_tokens, output_tokens=output_tokens, timeout=timeout, requests=requests)
    if times is not None:
        asking.at_least_one(times=times)
    if max_cost is not None and not max_cost >= 0:
        raise asking.wrong("--max-cost", max_cost, "US dollars, 0 or more")
    gates = [parse_gate(text) for text in fail_if or ()]
    loads = asking.loads(concurrency, "", "poisson", 1.0, None)
    endpoint = Endpoint.asked(base_url=base_url, model=model, name=name, api_key_env=api_key_env, dialect=dialect)
    policies = parse_policies(policy or [])
    workload = Workload(
        run=new_run_id(),
        prompts=read_prompts(prompts) if prompts else [],
        output_tokens=output_tokens,
        extra=asking.json_object(body, "--body") | ({"ignore_eos": True} if ignore_eos else {}),
        seed=seed,
    )
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

        def job(number: int) -> Job:
            """That of one round: other prompts, and the targets in another order."""
            run_id = new_run_id()
            plan = make_plan(called.measured, loads, requests=requests, warmups=warmup, seed=seed + number)
            return Job(
                run_id=run_id,
                plan=plan,
                specs=called.specs,
                workload=msgspec.structs.replace(workload, run=run_id),
                input_tokens=input_tokens,
                settings=settings,
                prices=prices,
            )

        prices = find_prices(called.specs, price or [], price_per_hour or [])
        session = Session(job, Settings(folder=out, every_ns=every_ns, most_usd=max_cost, json=json, html=html), gates)
        code = session.run(times)
    raise typer.Exit(code)
