import os
from collections.abc import Sequence

import msgspec

from splitsecond.api.commands import command_failed, run_command
from splitsecond.replay.answer import WhatIf


async def what_if(
    log: str | os.PathLike[str],
    policy: str | Sequence[str],
    *,
    today: str = "",
    route: str = "",
    since: str = "14d",
    config: str | os.PathLike[str] | None = None,
    any_load: bool = False,
    calls: int | None = None,
) -> WhatIf:
    """Return what the calls of a log would have met with another policy, or several.

    `log`: its URL, a SQLite file, or a folder of Parquet files; "": that of the configuration
    `config`. `today`: the policy of `route` in that time; "": that of the configuration. `route`:
    "": the one with most calls. `since`: how far to look back. `any_load`: the speed of no target
    depends on how many of these calls it gets. At most `calls` are replayed. docs/what-if.md
    explains the answer. Raises `CallerFault` for a policy that cannot be replayed, or a log that
    cannot be read.

    It runs in a process of its own, because virtual time replaces the clock of its process.
    """
    options = {
        "--log": os.fspath(log), "--today": today, "--route": route, "--since": since,
        "--config": "" if config is None else os.fspath(config), "--calls": "" if calls is None
        else str(calls),
    }  # fmt: skip
    arguments = [text for name, value in options.items() if value for text in (name, value)]
    policies = [policy] if isinstance(policy, str) else [*policy]
    flags = ["--any-load"] if any_load else []
    _, out, errors = await run_command(
        "what-if", "--json", "-", *arguments, *flags, "--", *policies
    )
    if not out:
        raise command_failed("what_if", errors)
    return msgspec.json.decode(out, type=WhatIf)
