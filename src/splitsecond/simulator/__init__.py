"""Providers whose truth is known: servers of every dialect that send each token at a time planned in advance.

`profile` says what a provider is like (data files), `table` and `engine` turn that into times, purely; `prompt_cache`
remembers prompts, `allowance` limits what is asked for, `faults` says what goes wrong on demand; `truth` keeps what was
planned and what was sent. `endpoints` and `counting` say what is asked where, `asked` understands one request; `answer`
produces one answer, `delivery` sends it, `app` speaks HTTP (with `asgi`), `server` is the process, `process` starts one
from another program.
"""
