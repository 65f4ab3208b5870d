"""Providers whose truth is known: servers of every API format that send each token at a planned time.

`profile` describes a provider (data files). `table` and `engine` turn the description into times, without a clock;
`producers` hand the tokens over at these times and `sender` sends them. `prompt_cache`, `rate_limit` and `faults`
simulate what their names say; `truth` records what was planned and what was sent. `endpoints` lists the paths,
`request` parses a request, `response` writes the response. `app` answers requests, `server` is the process, and
`process` starts one from another program.
"""
