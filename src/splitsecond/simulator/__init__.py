"""Providers whose truth is known: OpenAI-compatible servers that send each token at a time planned in advance.

`profile` says what a provider is like (data files), `table` and `engine` turn that into times, purely; `faults` says
what goes wrong on demand; `truth` keeps what was planned and what was sent; `answer` writes one stream, `app` speaks
HTTP, `server` is the process, `process` starts one from another program.
"""
