"""Services made from services. Each policy is one file, a `Service` itself, and knows neither
providers nor sockets. docs/policies.md says what each does, what it costs, when it helps and when
it hurts.

A policy may change its mind until it returns a reply. From then on the stream belongs to the
caller, who can only close it; `resume` alone acts later.
"""
